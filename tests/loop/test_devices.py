"""What is on which device, what an update moves, and what memory it takes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CHECKS = Path(__file__).with_name("device_checks.py")


@pytest.mark.parametrize("name", ["one", "all_devices", "fused_native", "fused_in_jax"])
def test_an_update_leaves_everything_on_its_device_and_in_its_memory(name):
    environment = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
    }
    command = [sys.executable, str(CHECKS), name]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
