"""Builds the C++ tests, with warnings as errors, and runs them."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "csrc-tests"


def run(*command: str | Path) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PATH": path})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_cpp_tests_build_without_warnings_and_pass():
    run(
        "cmake",
        *("-G", "Ninja", "-S", ROOT, "-B", BUILD),
        *("-DSRL_BUILD_TESTS=ON", "-DCMAKE_COMPILE_WARNING_AS_ERROR=ON"),
        "-DCMAKE_CXX_FLAGS_RELEASE=-O1 -DNDEBUG",  # a fifth less to compile
        f"-DPython_EXECUTABLE={sys.executable}",
    )
    run("cmake", "--build", BUILD)
    assert ", 0 failed" in run(BUILD / "srl_tests")
