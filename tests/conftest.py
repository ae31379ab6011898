"""What all tests share."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes says how busy the machine is.
settings.register_profile("srl", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("srl")


@pytest.fixture(autouse=True, scope="session")
def compiled_programs_are_kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compiles each program once in a session, in this process and in those that tests start."""
    folder = tmp_path_factory.mktemp("compiled")
    os.environ["SRL_COMPILATION_CACHE"] = str(folder)
    from srl.launch.compilation import keep_compiled_programs

    keep_compiled_programs()
    return folder
