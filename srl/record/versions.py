"""The version that a run offers for evaluation, and the result: files in a folder of the run's.

The learner writes the version and the evaluator the result, each over the one before, so that
nothing piles up, and either may die at any time. There is at most one version without a result.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from srl.core.errors import Unwritable, described
from srl.record import array_file
from srl.record.array_file import Unreadable
from srl.record.checkpoint import Checkpoints
from srl.record.files import read_object, write_atomically, writing

OFFERED = "offered"
"""The version's file is of the form of a checkpoint, and has this name in place of a number."""

_LONGEST = 300  # characters of an error


class _RunWaits(Exception):
    """The run waits for a result, and a film would delay it."""


class Versions:
    """The version that is offered by one run, and its result."""

    def __init__(self, run: Path) -> None:
        self._folder = run / "evaluation"
        self._offered = self._folder / f"{OFFERED}{array_file.SUFFIX}"
        self._result, self._urgent = self._folder / "result.json", self._folder / "urgent"
        self._over = self._folder / "over"
        self._filming, self._no_films = self._folder / "filming", self._folder / "no_films"

    # ---- the learner's side ----

    def clear(self) -> None:
        """Forgets what an earlier training of the run has left.

        Raises:
            Unwritable: If the folder cannot be written.
        """
        with writing(self._folder, Unwritable):
            self._folder.mkdir(exist_ok=True)
            files = self._offered, self._result, self._urgent, self._filming, self._no_films
            for file in files:
                file.unlink(missing_ok=True)

    def offer(
        self, arrays: Mapping[str, np.ndarray], texts: Mapping[str, str], *, urgent: bool
    ) -> str:
        """Offers a version in the place of the one before.

        Args:
            arrays: Of a checkpoint, as far as acting needs them.
            texts: Of a checkpoint: its metadata.
            urgent: Whether the run waits for the result.

        Returns:
            The identity of the version, by which its result is known.

        Raises:
            Unwritable: If it cannot be written.
        """
        with writing(self._folder, Unwritable):
            identity = array_file.write(self._offered, arrays, texts)
            if urgent:
                self._urgent.touch()
        return identity

    def result(self, identity: str) -> dict[str, Any] | None:
        """The metrics of a version; None before it is evaluated."""
        result = read_object(self._result)
        metrics = result.get("metrics")
        known = result.get("identity") == identity and isinstance(metrics, dict)
        return metrics if known else None

    @property
    def given_up(self) -> bool:
        """True if no version is evaluated any more."""
        return self._over.exists()

    def no_films(self) -> str:
        """Why versions are not filmed any more; empty where they are, or never were to be."""
        with suppress(OSError, ValueError):
            return self._no_films.read_text()
        return ""

    # ---- the evaluator's side ----

    def begin(self) -> None:
        """Records that versions are evaluated from now on."""
        self._over.unlink(missing_ok=True)

    def clear_urgent(self) -> None:
        """Forgets that an earlier training waited for its last version."""
        self._urgent.unlink(missing_ok=True)

    def offered(self) -> str | None:
        """The identity of the version that is offered; None where there is none."""
        with suppress(Unreadable):
            return array_file.read_header(self._offered)[1]
        return None

    @property
    def checkpoints(self) -> Checkpoints:
        """Gives the version by the name OFFERED."""
        return Checkpoints(self._folder)

    def put_result(self, identity: str, metrics: Mapping[str, float]) -> None:
        """Writes the result of a version.

        Raises:
            OSError: If it cannot be written.
        """
        text = json.dumps({"identity": identity, "metrics": metrics})
        write_atomically(self._result, text.encode())

    def evaluated(self) -> str | None:
        """The identity of the version of which there is a result."""
        return read_object(self._result).get("identity")

    @contextmanager
    def filming(self) -> Iterator[Callable[[], None]]:
        """Notes that a film is being made, until it ends; what fails then ends all filming.

        Gives a function to call as it is made, which ends it, and nothing else, where the run waits
        for a result by now.

        Raises:
            Exception: What making it has raised.
        """
        self._filming.touch()
        try:
            yield self._expect_time
        except _RunWaits:
            pass
        except Exception as error:
            text = " ".join(described(error).split())
            write_atomically(self._no_films, text[:_LONGEST].encode())
            raise
        finally:
            self._filming.unlink(missing_ok=True)

    def note_death(self) -> None:
        """Ends all filming if the process before this one has died of it.

        Where the run waits for a result, it was killed to be started anew.
        """
        if self._filming.exists() and not self.urgent:
            text = "the process died as it rendered"
            write_atomically(self._no_films, text.encode())
        self._filming.unlink(missing_ok=True)

    def _expect_time(self) -> None:
        if self.urgent:
            raise _RunWaits

    @property
    def urgent(self) -> bool:
        """True if the run waits for the result."""
        return self._urgent.exists()

    def give_up(self) -> None:
        """Records that no version is evaluated any more."""
        with suppress(OSError):
            self._folder.mkdir(exist_ok=True)
            self._over.touch()
