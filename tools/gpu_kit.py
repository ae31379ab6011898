"""Collects all that a GPU machine without a network needs to run `srl bench gpu`.

python tools/gpu_kit.py python3.12

The folder dist/gpu-kit then holds srl's wheel for that Python, the wheels that a machine with JAX,
Flax, Optax, NumPy, ONNX and Matplotlib lacks, and gpu_check.sh, which installs them from the folder
and measures the GPU. Packages that training does not import are left out.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import wheels
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = wheels.ROOT
THERE = ("jax", "flax", "optax", "numpy", "onnx", "matplotlib")
"""Packages that the machine has, with all that they require."""
SRL = "srl-rl"
"""The name of srl's wheel."""
EXTRAS = "atari,gymnax"
"""Extras of srl, for the environments that the benchmark trains on."""
LEFT_OUT = ("mujoco-studio", "glfw", "pyopengl", "imageio-ffmpeg")
"""Packages for windows, pictures and films."""
MOST_BYTES = 60_000_000

Packages = dict[str, dict[str, Any]]
"""Pip's report of each package, by its canonical name."""


def main() -> None:
    """Builds the kit that the command line names."""
    parser = argparse.ArgumentParser(description="Collects a kit for GPU machines.")
    parser.add_argument("python", metavar="PYTHON", help="such as python3.12")
    parser.add_argument("--output", type=Path, default=ROOT / "dist/gpu-kit", metavar="FOLDER")
    options = parser.parse_args()
    build(options.python, options.output)


def build(python: str, output: Path) -> None:
    """Fills the folder anew; ends with an error if it becomes too large to be carried."""
    shutil.rmtree(output, ignore_errors=True)
    wheel = wheels.build(python, output)
    required = f"{wheel}[{EXTRAS}]"
    found, environment = resolved(python, [required, *THERE])
    there = closure(THERE, found, environment)
    lacking = closure([f"{SRL}[{EXTRAS}]"], found, environment) - there - {SRL}
    exact = [f"{name}=={found[name]['metadata']['version']}" for name in sorted(lacking)]
    pip = [python, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    wheels.run(*pip, "--dest", str(output), *exact)
    shutil.copy(ROOT / "tools/gpu_check.sh", output)
    files = sorted(output.iterdir())
    size = sum(file.stat().st_size for file in files)
    for file in files:
        print(f"{file.stat().st_size / 1e6:6.1f} MB  {file.name}")  # noqa: T201
    print(f"{size / 1e6:6.1f} MB  {output}")  # noqa: T201
    if size > MOST_BYTES:
        sys.exit(f"the kit may have {MOST_BYTES / 1e6:.0f} MB; leave out a package")


def resolved(python: str, requirements: Iterable[str]) -> tuple[Packages, dict[str, str]]:
    """The versions that pip would install together, and the environment of their markers."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        pip = [python, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet"]
        wheels.run(*pip, "--only-binary", ":all:", "--report", str(report), *requirements)
        content = json.loads(report.read_text())
    found = {canonicalize_name(each["metadata"]["name"]): each for each in content["install"]}
    return found, content["environment"]


def closure(roots: Iterable[str], found: Packages, environment: dict[str, str]) -> set[str]:
    """The canonical names of the roots and of all that they require, without `LEFT_OUT`."""
    waiting = [Requirement(root) for root in roots]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        wanted = waiting.pop()
        key = canonicalize_name(wanted.name), frozenset(wanted.extras)
        if key in seen or key[0] in LEFT_OUT:
            continue
        seen.add(key)
        for text in found[key[0]]["metadata"].get("requires_dist", ()):
            requirement = Requirement(text)
            marker = requirement.marker
            extras = wanted.extras or {""}
            if marker is None or any(marker.evaluate({**environment, "extra": e}) for e in extras):
                waiting.append(requirement)
    return {name for name, _ in seen}


if __name__ == "__main__":
    main()
