"""The interface of a trainer: it trains runs, reports their ends, and stops some."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from srl.run.managed_run import ManagedRun


class Trainer(Protocol):
    """Trains several runs at a time. Runs are known by their paths."""

    look_seconds: float
    """Seconds between two calls of `ended`."""

    @property
    def waiting(self) -> bool:
        """True while there are runs that have not ended."""
        ...

    def begin(self, runs: Sequence[ManagedRun]) -> None:
        """Has runs trained, in this order, as soon as there is room.

        Raises:
            UserError: If that cannot be asked for.
        """
        ...

    def trains(self, run: ManagedRun) -> bool:
        """Tells if a run is being trained now."""
        ...

    def ended(self) -> list[ManagedRun]:
        """The runs that have ended since the last call, finished or not."""
        ...

    def stop(self, run: ManagedRun) -> None:
        """Ends a run after a checkpoint; one that has not begun is left out."""
        ...

    def leave(self) -> str:
        """Ends this command's part before all runs have ended; gives a line that reports how."""
        ...

    def log(self, run: ManagedRun) -> Path:
        """The file with what a run has written to its terminal."""
        ...
