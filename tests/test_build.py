"""A build that cannot succeed says in one message what is missing; one that does has all files."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def tools(tmp_path):
    """A folder with cmake and ninja and nothing else, to be the whole path."""
    search = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    folder = tmp_path / "tools"
    folder.mkdir()
    for name in ("cmake", "ninja"):
        found = shutil.which(name, path=search)
        assert found, f"{name} is not installed; run: make test"
        (folder / name).symlink_to(found)
    return folder


def script(path: Path, line: str) -> Path:
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)
    return path


def configure(folder: Path, path: Path | str, *settings: str, python: Path | str = sys.executable):
    """What CMake complains of, as one line."""
    cmake = shutil.which("cmake", path=str(path))
    where = ["-G", "Ninja", "-S", ROOT, "-B", folder / "build"]
    done = subprocess.run(
        [cmake, *where, f"-DPython_EXECUTABLE={python}", *settings],
        env={"PATH": str(path), "HOME": str(folder)},
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    assert done.stderr.count("CMake Error") == 1
    return " ".join(done.stderr.split())


def test_a_build_without_a_compiler_says_so(tools, tmp_path):
    assert "needs a C++20 compiler to build, but there is none" in configure(tmp_path, tools)


def test_a_build_with_an_old_compiler_says_so(tools, tmp_path):
    old = script(tools / "g++-old", f'exec {shutil.which("g++")} "$@" -std=c++17')
    told = configure(tmp_path, f"{tools}:{os.environ['PATH']}", f"-DCMAKE_CXX_COMPILER={old}")
    assert f"(GCC 11, Clang 14 or later), and {old} (GNU" in told


def test_a_build_without_mujoco_says_so(tools, tmp_path):
    bare = script(tools / "python", f'exec {sys.executable} -I -S "$@"')
    told = configure(tmp_path, f"{tools}:{os.environ['PATH']}", python=bare)
    assert "needs the Python package mujoco 4.0 to build" in told
    assert "pip install 'mujoco>=4.0,<4.1'" in told


def test_a_build_without_pybind11_says_so(tools, tmp_path):
    told = configure(
        tmp_path, f"{tools}:{os.environ['PATH']}", "-DCMAKE_DISABLE_FIND_PACKAGE_pybind11=ON"
    )
    assert "needs the Python package pybind11 2.13 or later to build" in told


def test_a_build_without_jaxlib_says_so(tools, tmp_path):
    finds_all_but_jaxlib = (
        "import importlib.util as u, sys; found = u.find_spec; "
        "u.find_spec = lambda name, *_: None if name == 'jaxlib' else found(name)"
    )
    (tmp_path / "sitecustomize.py").write_text(finds_all_but_jaxlib)
    line = f'PYTHONPATH={tmp_path} exec {sys.executable} "$@"'
    python = script(tools / "python", line)
    told = configure(tmp_path, f"{tools}:{os.environ['PATH']}", python=python)
    assert "needs the Python package jaxlib 0.10 or later to build" in told


def test_a_wheel_has_the_files_of_the_page_that_shows_episodes(tmp_path):
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    settings = ["wheel.cmake=false", f"build-dir={tmp_path / 'build'}"]
    only_python = [f"--config-settings={x}" for x in settings]
    command = [*pip, *only_python, "--wheel-dir", tmp_path, ROOT]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    carried = set(zipfile.ZipFile(wheel).namelist())
    wanted = {f"srl/{file.relative_to(ROOT / 'srl')}" for file in (ROOT / "srl").rglob("page/*.*")}
    wanted |= {f"srl/{file.relative_to(ROOT)}" for file in (ROOT / "envs").rglob("*.js")}
    assert len(wanted) == 4
    assert wanted <= carried


@pytest.mark.slow
def test_a_wheel_installs_anywhere_its_tag_says_and_has_nothing_that_does_not_belong(tmp_path):
    tool = [sys.executable, ROOT / "tools" / "wheels.py", sys.executable, "--output", tmp_path]
    done = subprocess.run(tool, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    tag = rf"cp3{sys.version_info.minor}-cp3{sys.version_info.minor}-manylinux_2_\d\d_x86_64"
    assert re.fullmatch(rf"srl_rl-[\d.]+-{tag}\.whl", wheel.name)
    with zipfile.ZipFile(wheel) as archive:
        carried = archive.namelist()
        (metadata,) = (archive.read(name).decode() for name in carried if "/METADATA" in name)
    assert re.search(r"(?m)^Requires-Dist: mujoco==4\.0\.\d+$", metadata)
    sources = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True).stdout
    belongs = {name for name in sources.splitlines() if name.startswith("srl/")}
    belongs |= {f"srl/{name}" for name in sources.splitlines() if name.startswith("envs/")}
    headers = {f"srl/include/srl/{file.name}" for file in (ROOT / "csrc" / "srl").iterdir()}
    (module,) = (name for name in carried if name.endswith(".so"))  # MuJoCo's is not among them
    own = {name for name in carried if ".dist-info/" not in name and not name.endswith("/")}
    assert own == belongs | headers | {module}
