"""Where a controller shows what happens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class Terminal(Protocol):
    """Where a run shows what happens."""

    def say(self, text: str) -> None:
        """Shows a line of text."""

    def report(self, metrics: Mapping[str, Any]) -> None:
        """Shows a report of the learner's."""
