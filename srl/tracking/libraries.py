"""Libraries that not every installation has."""

from __future__ import annotations

import importlib.util

from srl.core.errors import UserError
from srl.core.optional_packages import install_command


def expect_library(tracker: str, module: str) -> None:
    """Raises UserError unless the library of a tracker, an extra of srl's, is installed."""
    if importlib.util.find_spec(module) is None:
        raise UserError(
            f"the tracker {tracker} needs the Python module {module}, which is not installed here: "
            f"{install_command(tracker)}"
        )
