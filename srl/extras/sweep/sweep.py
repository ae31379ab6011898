"""A sweep: what is searched and how trials are compared, with its trials."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from srl.config.experiment import load_experiment
from srl.core.errors import UserError
from srl.extras.sweep.folder import JOURNAL, import_optuna
from srl.extras.sweep.space import Listed, Searched, Settings
from srl.extras.sweep.trials import Objective, Trial
from srl.record.files import writing
from srl.run.managed_run import ManagedRun

MOST_COMBINATIONS = 100_000
"""The most that take turns; beyond it the values of lists are drawn like those of ranges."""


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

    folder: Path
    study: Any
    """Optuna's study, the sweep's record; see `open_study`."""
    target: str
    fixed: tuple[str, ...]
    """Arguments of `srl run` that are the same in all trials."""
    searched: tuple[Searched, ...]
    seeds: tuple[int, ...]
    """The seeds of each trial's runs; none for the experiment's own."""
    seed: int
    """The seed of all that is drawn."""
    objective: Objective
    here: bool = True
    """True if this machine trains the runs, and its cores decide the sizes of plans."""
    trials: list[Trial] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        states = import_optuna().trial.TrialState
        for kept in self.study.trials:
            trial = self._trial(
                {each.flag: each.text(kept.params[each.flag]) for each in self.searched}
            )
            trial.judged, trial.recorded = kept.last_step or 0, kept.state.is_finished()
            trial.pruned = kept.last_step if kept.state == states.PRUNED else None

    def add(self, settings: Settings) -> Trial:
        """Records a new trial, all of it at once."""
        optuna = import_optuna()
        new = optuna.trial.create_trial(
            state=optuna.trial.TrialState.RUNNING,
            params={each.flag: each.value(settings[each.flag]) for each in self.searched},
            distributions=distributions(self.searched),
        )
        with writing(self.folder / JOURNAL):
            self.study.add_trial(new)
        return self._trial(settings)

    def drawn(self, number: int, *, shuffled: bool) -> Settings:
        """The settings of a trial: listed ones take turns in all combinations, others are drawn.

        Args:
            number: Of the trial, from which, and from the sweep's seed, they follow.
            shuffled: Whether combinations take turns in a drawn order. Beyond `MOST_COMBINATIONS`
                they are drawn: hardly any comes twice.
        """
        count = combinations(self.searched)
        if shuffled and count > MOST_COMBINATIONS:
            return drawn(self.searched, self._seed(number))
        place = number % count
        if shuffled:
            place = int(np.random.default_rng(self.seed).permutation(count)[place])
        lists = [each for each in self.searched if isinstance(each, Listed)]
        turns = itertools.product(*(each.values for each in lists))
        values = next(itertools.islice(turns, place, None))
        fixed = {each.flag: value for each, value in zip(lists, values, strict=True)}
        return {**drawn(self.searched, self._seed(number)), **fixed}

    def suggested(self, number: int) -> Settings:
        """The settings of a trial by Optuna's tree-structured Parzen estimator."""
        # Trials that run count as bad ones, so that others are not near them.
        sampler = import_optuna().samplers.TPESampler(seed=self._seed(number), constant_liar=True)
        return _sampled(self.searched, sampler, self.study)

    def _seed(self, number: int) -> int:
        """A seed for a trial: a sweep that was stopped goes on as it would have."""
        return int(np.random.SeedSequence([self.seed, number]).generate_state(1)[0])

    def managed_run(self, name: str, settings: Settings, *more: str) -> ManagedRun:
        """A run with these settings and further arguments, in a folder of this name."""
        given = itertools.chain.from_iterable(settings.items())
        arguments = (self.target, *self.fixed, *given)
        sizes = () if self.here else _sizes(*arguments)
        return ManagedRun(self.folder / name, (*arguments, *sizes, *more))

    def _trial(self, settings: Settings) -> Trial:
        """Adds a trial that is in the study."""
        number = len(self.trials)
        name = f"trial-{number:03}"
        runs = [
            self.managed_run(f"{name}-seed-{seed}", settings, "--seed", str(seed))
            for seed in self.seeds
        ] or [self.managed_run(name, settings)]
        self.trials.append(Trial(number, settings, runs))
        return self.trials[-1]


def _sizes(target: str, *overrides: str) -> tuple[str, ...]:
    """Arguments for the actors of a run on a cluster, whatever machine it comes to.

    What is requested for the run, and what it does there, are then the same.
    """
    try:
        plan = load_experiment(target, overrides, here=False).experiment.settled_plan
    except UserError:  # reported when the run is to begin
        return ()
    flag = f"--plan.{plan.home('step')}.replicas"
    named = any(word.partition("=")[0] == flag for word in overrides)
    return () if plan.one_process or named else (flag, str(plan.fragment("step").replicas))


def combinations(searched: tuple[Searched, ...]) -> int:
    """Counts the ways in which the listed settings can be combined; 1 where none is listed."""
    return math.prod(len(each.values) for each in searched if isinstance(each, Listed))


def distributions(searched: Sequence[Searched]) -> dict[str, Any]:
    """Optuna's distributions, by flag."""
    kinds = import_optuna().distributions
    return {each.flag: each.distribution(kinds) for each in searched}


def drawn(searched: Sequence[Searched], seed: int) -> Settings:
    """Random settings."""
    return _sampled(searched, import_optuna().samplers.RandomSampler(seed))


def _sampled(searched: Sequence[Searched], sampler: Any, known: Any = None) -> Settings:
    """Settings by a sampler of Optuna's, which knows the trials of a study."""
    # A study in memory: the journal gets the settings as they are trained, in a few digits.
    study = import_optuna().create_study(direction=known and known.direction, sampler=sampler)
    study.add_trials(known.trials if known else ())
    params = study.ask(distributions(searched)).params
    return {each.flag: each.text(params[each.flag]) for each in searched}
