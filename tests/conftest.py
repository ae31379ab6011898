"""What all tests share."""

import os
from pathlib import Path

import pytest


@pytest.fixture(autouse=True, scope="session")
def compiled_programs_are_kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compiles each program once in a session, in this process and in those that tests start."""
    folder = tmp_path_factory.mktemp("compiled")
    os.environ["SRL_COMPILATION_CACHE"] = str(folder)
    from srl.launch.compilation import keep_compiled_programs

    keep_compiled_programs()
    return folder
