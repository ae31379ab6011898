"""The trials of a sweep: settings, the runs that try them, and what these came to."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from srl.core.errors import UserError
from srl.extras.sweep.space import Settings
from srl.run.managed_run import ManagedRun
from srl.run.metrics import number
from srl.run.status import read_reason

STEPS = 20
"""Parts of a run after which it can be judged."""


@dataclass(frozen=True)
class Objective:
    """The metric that trials are compared by."""

    key: str
    """Its name in `metrics.jsonl`."""
    minimize: bool

    def value(self, report: Mapping[str, Any]) -> float:
        """The metric in a report; NaN where there is none."""
        return number(report.get(self.key))

    def last(self, newest_first: Iterable[Mapping[str, Any]]) -> float:
        """The last value that is reported; NaN if none is."""
        values = map(self.value, newest_first)
        return next(filter(math.isfinite, values), math.nan)

    def score(self, value: float) -> float:
        """Gives the score of a value: more is better, and minus infinity stands for none."""
        if math.isnan(value):
            return -math.inf
        return -value if self.minimize else value


@dataclass
class Trial:
    """One choice of settings."""

    number: int
    settings: Settings
    runs: list[ManagedRun]
    """One for each seed, whose arguments end with it; of a population's member one alone."""
    pruned: int | None = None
    """The step, of `STEPS`, after which it was ended as it did not do well."""
    judged: int = 0
    """The last step whose score is recorded."""
    recorded: bool = False
    """True once its end is recorded."""
    failure: str = ""
    """Why it has failed since this command began; empty if it has not."""
    open: set[Path] = field(default_factory=set)
    """The folders of those of its runs that are being trained, or wait for that."""

    def value(self, objective: Objective) -> float:
        """The mean over its runs of what each came to last; NaN until each has reported."""
        return float(np.mean([objective.last(run.newest_first()) for run in self.runs]))

    def progress(self) -> float:
        """The share of its budget that is used up."""
        return float(np.mean([run.progress() for run in self.runs]))

    def finished(self) -> bool:
        """True once all of its runs are finished."""
        return all(run.finished() for run in self.runs)

    def new_scores(self, objective: Objective) -> list[tuple[int, float]]:
        """Gives each step after `judged` that the first run has passed, and its last value."""
        run, found = self.runs[0], dict[int, float]()
        for report in run.newest_first():
            if math.isfinite(value := objective.value(report)):
                if (step := int(STEPS * run.share_of(report))) <= self.judged:
                    break
                found.setdefault(step, value)
        return sorted(found.items())

    def command(self) -> str:
        """The command that trains with these settings, but for the folder and the seed."""
        arguments = self.runs[0].arguments
        return shlex.join(["srl", "run", *(arguments[:-2] if len(self.runs) > 1 else arguments)])


def failure_of(run: ManagedRun, log: Path) -> str:
    """Why a run has ended before its budget was used up, in a line."""
    if reason := read_reason(run.path):
        return reason
    try:
        _ = run.experiment
        lines = log.read_text(errors="replace").split("\n") if log.exists() else []
    except UserError as error:
        return str(error)
    written = [line for line in lines if line.strip()]
    return written[-1].removeprefix("srl: ") if written else "it ended without a word"
