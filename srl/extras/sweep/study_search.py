"""Trials of a study: combinations and drawn settings, or those that Optuna chooses by the others.

Optuna ends trials early where they do badly.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from srl.extras.sweep.folder import JOURNAL, import_optuna
from srl.extras.sweep.space import Settings
from srl.extras.sweep.sweep import Sweep
from srl.extras.sweep.trials import STEPS, Trial
from srl.record.files import writing

PRUNERS = ("median", "hyperband", "none")
_UNJUDGED_TRIALS, _UNJUDGED_STEPS = 4, STEPS // 5  # by the median pruner


class StudySearch:
    """See `Search`."""

    def __init__(
        self,
        sweep: Sweep,
        choose: Callable[[int], Settings],
        trials: int,
        at_once: int,
        pruner: str = "none",
    ) -> None:
        """Chooses nothing yet.

        Args:
            sweep: The trials that there are.
            choose: Gives the settings of a trial, by its number.
            trials: How many there are to be.
            at_once: How many are chosen before one of them has ended.
            pruner: One of `PRUNERS`.
        """
        self._sweep, self._choose, self._trials, self._at_once = sweep, choose, trials, at_once
        self._begun, self._prunes = False, pruner != "none"
        sweep.study.pruner = _pruner(pruner)

    def wanted(self, waiting: bool) -> list[Trial]:
        """Implements `Search.wanted`: as many as run at a time."""
        trials = self._sweep.trials
        for trial in trials:
            if not trial.recorded and not trial.open and not trial.failure and trial.finished():
                self._record_end(trial)
        wanted = [] if self._begun else [t for t in trials if t.pruned is None and not t.finished()]
        self._begun = True
        running = len(wanted) + sum(bool(trial.open) for trial in trials)
        while running < self._at_once and len(trials) < self._trials:
            wanted.append(self._sweep.add(self._choose(len(trials))))
            running += 1
        return wanted

    def pruned(self, trial: Trial) -> bool:
        """Implements `Search.pruned`: by the reports of the trial's first run, step by step."""
        if not self._prunes or trial.recorded:
            return False
        scores = trial.new_scores(self._sweep.objective)
        if self._report(trial, scores[:-1]):  # the last one may not be over
            trial.pruned = trial.judged
            self._tell(trial, None, "PRUNED")
        return trial.pruned is not None

    def _record_end(self, trial: Trial) -> None:
        self._report(trial, trial.new_scores(self._sweep.objective))
        value = trial.value(self._sweep.objective)
        known = math.isfinite(value)
        self._tell(trial, value if known else None, "COMPLETE" if known else "FAIL")

    def _report(self, trial: Trial, scores: list[tuple[int, float]]) -> bool:
        """Reports new scores, up to one after which Optuna ends the trial."""
        # The storage holds one study, so a trial's id is its number.
        asked = import_optuna().trial.Trial(self._sweep.study, trial.number)
        for step, score in scores:
            trial.judged = step
            with writing(self._sweep.folder / JOURNAL):
                asked.report(score, step)
                if asked.should_prune():
                    return True
        return False

    def _tell(self, trial: Trial, value: float | None, state: str) -> None:
        trial.recorded = True
        with writing(self._sweep.folder / JOURNAL):
            self._sweep.study.tell(
                trial.number, value, state=import_optuna().trial.TrialState[state]
            )


def _pruner(name: str) -> Any:
    pruners = import_optuna().pruners
    if name == "median":
        return pruners.MedianPruner(_UNJUDGED_TRIALS, _UNJUDGED_STEPS)
    if name == "hyperband":
        return pruners.HyperbandPruner(min_resource=1, max_resource=STEPS)
    return pruners.NopPruner()
