"""Optional packages: messages and documents name them, and no package of srl's on an index."""

import importlib.metadata
import re
import shlex
import sys
import tomllib
from pathlib import Path

import pytest

from srl.core.optional_packages import install_command

ROOT = Path(__file__).parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


@pytest.mark.parametrize("extra", EXTRAS)
def test_the_command_installs_what_the_project_lists(extra):
    python, dash, pip, install, *requirements = shlex.split(install_command(extra))
    assert (python, dash, pip, install) == (sys.executable, "-m", "pip", "install")
    # Metadata may write the limits of a version in another order.
    assert [*map(sorted, requirements)] == [*map(sorted, EXTRAS[extra])]


def test_where_srl_is_not_installed_the_project_file_is_named(monkeypatch):
    def absent(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "requires", absent)
    assert install_command("plot") == "pip install what srl's pyproject.toml lists under 'plot'"


def test_nothing_asks_an_index_for_srl():
    name = "srl" + "-rl"
    wrong = re.compile(rf"{name}\[|install [^\n]*\b{name}\b")
    folders = ("srl", "csrc", "envs", "docs", "experiments", "tests", "tools")
    files = [file for folder in folders for file in (ROOT / folder).rglob("*") if file.is_file()]
    files += [ROOT / name for name in ("CHANGELOG.md", "Makefile", "README.md", "mkdocs.yml")]
    found = [str(file) for file in files if wrong.search(file.read_text(errors="replace"))]
    assert found == []
