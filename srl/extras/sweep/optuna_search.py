"""Trials that Optuna chooses, and ends early where they do badly.

Optuna keeps nothing: its study is made from the trials that there are whenever it is asked, and
its sampler's seed follows from the trial's number. So a sweep that was stopped goes on as it would
have.
"""

from __future__ import annotations

import importlib
import math
from typing import Any

import numpy as np

from srl.core.errors import UserError
from srl.core.optional_packages import install_command
from srl.extras.sweep.space import Range, Searched
from srl.extras.sweep.sweep import Sweep
from srl.extras.sweep.trials import STEPS, Trial

PRUNERS = ("median", "hyperband", "none")
_UNJUDGED_TRIALS, _UNJUDGED_STEPS = 4, STEPS // 5  # by the median pruner


class OptunaSearch:
    """See `Search`: the tree-structured Parzen estimator, and a pruner."""

    def __init__(self, sweep: Sweep, trials: int, parallel: int, pruner: str) -> None:
        """Asks for nothing yet.

        Args:
            sweep: The trials that there are.
            trials: How many there are to be.
            parallel: How many runs are trained at a time.
            pruner: One of `PRUNERS`.

        Raises:
            UserError: If Optuna is not installed.
        """
        self._optuna = _optuna()
        self._sweep, self._trials, self._pruner = sweep, trials, pruner
        self._at_once = -(-parallel // len(sweep.seeds or (0,)))
        self._judged: dict[int, int] = {}  # the step up to which each trial was judged
        self._begun = False

    def wanted(self, waiting: bool) -> list[Trial]:
        """Implements `Search.wanted`: as many as run at a time."""
        trials = self._sweep.trials
        wanted = [] if self._begun else [t for t in trials if t.pruned is None and not t.finished()]
        self._begun = True
        running = len(wanted) + sum(bool(trial.open) for trial in trials)
        while running < self._at_once and len(trials) < self._trials:
            wanted.append(self._sweep.add(self._chosen(len(trials))))
            running += 1
        return wanted

    def pruned(self, trial: Trial) -> bool:
        """Implements `Search.pruned`: by the reports of the trial's first run, step by step."""
        if self._pruner == "none":
            return False
        scores = trial.scores_by_step(self._sweep.objective)
        for step, _ in scores[:-1]:  # the last one may not be over
            if step > self._judged.get(trial.number, 0):
                self._judged[trial.number] = step
                if self._is_bad(trial, step):
                    trial.pruned = step
                    return True
        return False

    def _chosen(self, number: int) -> dict[str, str]:
        """The settings of the next trial."""
        study = self._study()
        (seed,) = np.random.SeedSequence([self._sweep.seed, number]).generate_state(1)
        # Trials that run count as bad ones, so that others are not near them.
        study.sampler = self._optuna.samplers.TPESampler(seed=int(seed), constant_liar=True)
        given = study.ask(self._distributions()).params
        return {
            each.flag: each.text(given[each.flag]) if isinstance(each, Range) else given[each.flag]
            for each in self._sweep.searched
        }

    def _is_bad(self, trial: Trial, step: int) -> bool:
        """Asks the pruner about a trial after a step."""
        study = self._study(before=trial)
        asked, bad = self._again(study, trial), False
        for reached, score in trial.scores_by_step(self._sweep.objective):
            if reached <= step:
                asked.report(score, reached)
                bad = asked.should_prune()
        return bad

    def _study(self, before: Trial | None = None) -> Any:
        """Optuna's study of all trials, or of those before one."""
        study = self._optuna.create_study(
            study_name="sweep",  # by which Optuna divides trials for hyperband
            direction="minimize" if self._sweep.objective.minimize else "maximize",
            pruner=self._made_pruner(),
        )
        for trial in self._sweep.trials:
            if trial is before:
                break
            self._tell(study, trial)
        return study

    def _tell(self, study: Any, trial: Trial) -> None:
        """Adds a trial to the study, with what it has come to."""
        asked = self._again(study, trial)
        for step, score in trial.scores_by_step(self._sweep.objective):
            if step <= (trial.pruned or STEPS):
                asked.report(score, step)
                asked.should_prune()  # hyperband notes by it how far the trial has come
        states = self._optuna.trial.TrialState
        if trial.pruned is not None:
            study.tell(asked, state=states.PRUNED)
        elif trial.failure:
            study.tell(asked, state=states.FAIL)
        elif trial.finished():
            value = trial.value(self._sweep.objective)
            known = math.isfinite(value)
            study.tell(asked, value if known else None, None if known else states.FAIL)

    def _again(self, study: Any, trial: Trial) -> Any:
        """Optuna's trial with the settings of one of ours."""
        values = {each.flag: _value(each, trial.settings[each.flag]) for each in self._searched}
        study.enqueue_trial(values)
        return study.ask(self._distributions())

    @property
    def _searched(self) -> tuple[Searched, ...]:
        return self._sweep.searched

    def _distributions(self) -> dict[str, Any]:
        return {each.flag: self._distribution(each) for each in self._searched}

    def _distribution(self, setting: Searched) -> Any:
        kinds = self._optuna.distributions
        if not isinstance(setting, Range):
            return kinds.CategoricalDistribution(setting.values)
        if setting.whole:
            ends = int(setting.low), int(setting.high)
            return kinds.IntDistribution(*ends, log=setting.log)
        return kinds.FloatDistribution(setting.low, setting.high, log=setting.log)

    def _made_pruner(self) -> Any:
        pruners = self._optuna.pruners
        if self._pruner == "median":
            return pruners.MedianPruner(_UNJUDGED_TRIALS, _UNJUDGED_STEPS)
        if self._pruner == "hyperband":
            return pruners.HyperbandPruner(min_resource=1, max_resource=STEPS)
        return pruners.NopPruner()


def _value(setting: Searched, text: str) -> Any:
    if not isinstance(setting, Range):
        return text
    return int(text) if setting.whole else float(text)


def _optuna() -> Any:
    try:
        optuna: Any = importlib.import_module("optuna")
    except ImportError:
        raise UserError(f"Optuna is not installed: {install_command('sweep')}") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
