"""A sweep: what is searched and how trials are compared, with its folder."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from srl.extras.sweep.folder import Chosen, Record, SweepFolder
from srl.extras.sweep.space import Listed, Searched, Settings
from srl.extras.sweep.trials import Objective, Trial
from srl.run.managed_run import ManagedRun


class Search(Protocol):
    """Chooses trials."""

    def wanted(self, waiting: bool) -> list[Trial]:
        """The trials to begin now, or to go on with; no more will come if there are none.

        Args:
            waiting: Whether runs have not ended yet; then there may be more later.

        Raises:
            RunError: If no trial can go on.
        """
        ...

    def pruned(self, trial: Trial) -> bool:
        """Tells if a running trial is to be ended, as it does not do well."""
        ...


@dataclass
class Sweep:
    """The common part of a sweep's trials."""

    folder: SweepFolder
    asked: Mapping[str, Any]
    """The values of the command, as JSON holds them: another command's sweep is another one."""
    target: str
    fixed: tuple[str, ...]
    """Arguments of `srl run` that are the same in all trials."""
    searched: tuple[Searched, ...]
    seeds: tuple[int, ...]
    """The seeds of each trial's runs; none for the experiment's own."""
    seed: int
    """The seed of all that is drawn."""
    objective: Objective
    record: Record
    trials: list[Trial] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Makes the trials that are recorded."""
        for number, chosen in enumerate(self.record.trials):
            self.trials.append(self._trial(number, chosen))

    def add(self, settings: Settings) -> Trial:
        """Records a new trial."""
        chosen = Chosen(dict(settings))
        trial = self._trial(len(self.trials), chosen)
        self.trials.append(trial)
        self.record.trials.append(chosen)
        return trial

    def save(self) -> None:
        """Writes the record."""
        for trial, chosen in zip(self.trials, self.record.trials, strict=True):
            chosen.settings, chosen.pruned = dict(trial.settings), trial.pruned
        self.folder.write(self.asked, self.record)

    def drawn(self, number: int, *, shuffled: bool) -> dict[str, str]:
        """The settings of a trial: listed ones take turns in all combinations, others are drawn.

        Args:
            number: Of the trial, from which, and from the sweep's seed, they follow.
            shuffled: Whether combinations take turns in a drawn order.
        """
        lists = [setting.values for setting in self.searched if isinstance(setting, Listed)]
        place = number % combinations(self.searched)
        if shuffled:
            order = np.random.default_rng(self.seed).permutation(combinations(self.searched))
            place = int(order[place])
        values = iter(next(itertools.islice(itertools.product(*lists), place, None)))
        rng = np.random.default_rng([self.seed, number])
        return {
            setting.flag: next(values) if isinstance(setting, Listed) else setting.drawn(rng)
            for setting in self.searched
        }

    def managed_run(self, name: str, settings: Settings, *more: str) -> ManagedRun:
        """A run with these settings and further arguments, in a folder of this name."""
        given = itertools.chain.from_iterable(settings.items())
        arguments = (self.target, *self.fixed, *given, *more)
        return ManagedRun(self.folder.path / name, arguments)

    def _trial(self, number: int, chosen: Chosen) -> Trial:
        name = f"trial-{number:03}"
        runs = [
            self.managed_run(f"{name}-seed-{seed}", chosen.settings, "--seed", str(seed))
            for seed in self.seeds
        ] or [self.managed_run(name, chosen.settings)]
        return Trial(number, chosen.settings, runs, chosen.pruned)


def combinations(searched: tuple[Searched, ...]) -> int:
    """Counts the ways in which the listed settings can be combined; 1 where none is listed."""
    return math.prod(len(each.values) for each in searched if isinstance(each, Listed))


class DrawnSearch:
    """All combinations of listed settings, or so many trials with drawn ones."""

    def __init__(self, sweep: Sweep, trials: int, *, shuffled: bool) -> None:
        """Records the trials that are not there yet."""
        self._sweep, self._begun = sweep, False
        for number in range(len(sweep.trials), trials):
            sweep.add(sweep.drawn(number, shuffled=shuffled))

    def wanted(self, waiting: bool) -> list[Trial]:
        """Implements `Search.wanted`: all that are not finished, once."""
        if self._begun:
            return []
        self._begun = True
        return [trial for trial in self._sweep.trials if not trial.finished()]

    def pruned(self, trial: Trial) -> bool:
        """Implements `Search.pruned`: never."""
        return False
