"""The terminal of a controller."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class Terminal(Protocol):
    """The output of a run's messages and reports."""

    def say(self, text: str) -> None:
        """Shows a line of text."""

    def report(self, metrics: Mapping[str, Any], /) -> None:
        """Shows a report of the learner's."""
