"""The settings of an algorithm that may change while a run learns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from srl.config.experiment import Experiment
from srl.core.schedule import Schedule
from srl.core.types import Array, Tree
from srl.loop.learning.progress import Progress

Settings = dict[str, Array]
"""Values of adjustable settings, as operands: float32 []."""


class Adjustable:
    """The adjustable settings of a run: by hooks, and by schedules."""

    def __init__(self, experiment: Experiment, progress: Progress) -> None:
        """Takes them as the experiment has them."""
        algorithm = experiment.algorithm
        self._experiment, self._progress = experiment, progress
        self._first = {name: getattr(algorithm, name) for name in algorithm.adjustable}
        self._settings = self._first
        self._used: dict[str, float] | None = None  # by the last update
        self._operands: Settings = {}

    @property
    def now(self) -> dict[str, float]:
        """The settings in the present pass of the loop."""
        learns = self._experiment.graph.learns
        begun = self._progress.updates // learns * learns  # for all of a pass, under every plan
        progress = min(begun / self._experiment.expected_updates, 1.0)
        return {
            name: x.value(progress) if isinstance(x, Schedule) else float(x)
            for name, x in self._settings.items()
        }

    def change(self, settings: Mapping[str, float]) -> None:
        """Gives settings other values from the next update on; schedules end there."""
        self._settings = {**self._settings, **settings}

    @property
    def changed(self) -> dict[str, float]:
        """The settings that were changed from what the experiment has."""
        return {name: x for name, x in self._settings.items() if x != self._first[name]}

    @property
    def moving(self) -> dict[str, float]:
        """The last update's values of settings that were changed, or follow a schedule."""
        used = self.now if self._used is None else self._used
        schedules = {name for name, x in self._settings.items() if isinstance(x, Schedule)}
        return {name: x for name, x in used.items() if name in schedules | self.changed.keys()}

    def operands(self, place: Callable[[Tree], Any]) -> Settings:
        """Gives them as operands of all that is compiled, so that a change compiles nothing.

        So is the number of updates in the run.

        Args:
            place: Puts numbers where the programs run, which is done for each change only.
        """
        now = self.now
        if self._used != now:
            given = {**now, "updates": self._experiment.expected_updates}
            self._operands = place({name: np.float32(x) for name, x in given.items()})
            self._used = now
        return self._operands

    def place_again(self) -> None:
        """Puts the operands elsewhere when they are next asked for."""
        self._used = None
