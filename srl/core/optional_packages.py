"""The versions of installed packages; the command that installs optional ones."""

from __future__ import annotations

import importlib.metadata
import re
import shlex
import sys

DISTRIBUTION = "srl-rl"
"""The name of srl's own package, which no index has."""


def installed_version(distribution: str = DISTRIBUTION) -> str:
    """The version of an installed distribution, which is not imported; "unknown" without it."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def install_command(extra: str) -> str:
    """Gives the command that installs the packages of one of srl's extras.

    It names the packages themselves, so that it is right in a checkout and for an installed wheel
    alike, and never asks an index for srl.

    Args:
        extra: As in pyproject.toml, such as plot.
    """
    try:
        lines = importlib.metadata.requires(DISTRIBUTION) or ()
    except importlib.metadata.PackageNotFoundError:
        lines = ()  # srl was not installed, but put on the path
    wanted = re.compile(rf"""\bextra\s*==\s*['"]{re.escape(extra)}['"]""")
    parts = [line.partition(";") for line in lines]
    requirements = [name.strip() for name, _, marker in parts if wanted.search(marker)]
    if not requirements:
        return f"pip install what srl's pyproject.toml lists under {extra!r}"
    return pip_install(*requirements)


def pip_install(*arguments: str) -> str:
    """Gives a command of pip's for the Python that runs."""
    return shlex.join([sys.executable, "-m", "pip", "install", *arguments])
