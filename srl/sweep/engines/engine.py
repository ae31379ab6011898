"""The interface of an engine: it trains runs, reports their ends, and stops some."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from srl.kept_run import KeptRun


class Engine(Protocol):
    """Trains several runs at a time. Runs are known by their paths."""

    look_seconds: float
    """Seconds between two calls of `ended`."""

    @property
    def waiting(self) -> bool:
        """True while there are runs that have not ended."""
        ...

    def begin(self, runs: Sequence[KeptRun]) -> None:
        """Has runs trained, in this order, as soon as there is room.

        Raises:
            UserError: If that cannot be asked for.
        """
        ...

    def trains(self, run: KeptRun) -> bool:
        """Tells if a run is being trained now."""
        ...

    def ended(self) -> list[KeptRun]:
        """The runs that have ended since the last call, finished or not."""
        ...

    def stop(self, run: KeptRun) -> None:
        """Ends a run after a checkpoint; one that has not begun is left out."""
        ...

    def leave(self) -> str:
        """Ends this command's part before all runs have ended; gives a line that reports how."""
        ...

    def log(self, run: KeptRun) -> Path:
        """The file with what a run has written to its terminal."""
        ...
