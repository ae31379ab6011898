"""Runs where JAX_PLATFORMS names a device that is not there."""

import os
import subprocess
import sys


def test_a_device_that_is_not_there_is_told_in_a_line(tmp_path):
    words = "run native:CartPole-v1 --num-envs 2 --updates 1 --plan fused --run-dir".split()
    done = subprocess.run(
        [sys.executable, "-m", "srl", *words, str(tmp_path / "run")],
        env={**os.environ, "JAX_PLATFORMS": "rocm"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stderr.startswith("srl: JAX_PLATFORMS is 'rocm', and JAX has no such device here")
    assert not (tmp_path / "run").exists()
