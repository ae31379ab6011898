"""Measurement of the training speed of runs; its arguments are SECONDS and RUN_DIRs.

It is a separate process, so that its memory, a GPU's too, is free before the run begins.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from srl.config.experiment import Experiment
from srl.core.errors import RunError, UserError
from srl.launch.controller import Controller
from srl.loop.make_training import make_training
from srl.record.run_record import RunFolder
from srl.run.folder import open_run
from srl.system.compilation import keep_compiled_programs

_WARM_SECONDS = 0.5
_REPORT_SECONDS = 0.25
_BOUND = 0.8  # actors' wait for the learner, at which more of them gain a tenth at most
_MOST_SECONDS = 60.0  # until there are two reports


class Measured(NamedTuple):
    """The result."""

    fps: float
    """Env steps a second, once warm."""
    bottleneck: str
    """Describes what holds it back."""
    waits: float
    """The share of actors' time that they wait for the learner; 0 in plans without actors."""


def main(argv: Sequence[str]) -> int:
    """Prints the result of each run, or the error, as a line of JSON.

    Other text that is printed meanwhile, as experiments and environments do, goes to standard
    error. Of a plan that fewer actors kept waiting for the learner, more actors are not measured.
    """
    seconds, *run_dirs = argv
    with os.fdopen(os.dup(1), "w") as answers, contextlib.redirect_stdout(sys.stderr):
        os.dup2(2, 1)  # for what C++ prints, and programs that an environment starts
        for answer in _answers(run_dirs, float(seconds)):
            answers.write(json.dumps(answer) + "\n")
            answers.flush()
    gc.freeze()  # as in workers; nobody needs what environments leave open here
    return 0


def _answers(run_dirs: Sequence[str], seconds: float) -> Iterator[Mapping[str, Any]]:
    learner_bound: set[str] = set()
    for run_dir in run_dirs:
        folder, resolved = open_run(run_dir, trust=True)
        plan = resolved.experiment.settled_plan.name
        try:
            if plan in learner_bound:
                raise RunError("more actors would wait for the learner, too")
            found = measure(resolved.experiment, folder, seconds)
            answer = found._asdict()
            if found.waits > _BOUND:
                learner_bound.add(plan)
        except (UserError, RunError) as error:
            answer = {"error": str(error)}
        yield answer


def measure(experiment: Experiment, folder: RunFolder, seconds: float) -> Measured:
    """Trains for so many seconds after warming up; longer where two updates take longer.

    Raises:
        UserError: If the experiment cannot run as it is.
        RunError: If it fails, or two updates take more than a minute.
    """
    watch = _Measurement(seconds)
    if experiment.settled_plan.processes > 1:
        _train_in_processes(experiment, folder, watch)
    else:
        _train_here(experiment, folder, watch)
    return watch.found()


def _train_here(experiment: Experiment, folder: RunFolder, watch: _Measurement) -> None:
    keep_compiled_programs()
    trainer = make_training(experiment)
    trainer.folder = folder.path
    with contextlib.closing(trainer):
        trainer.start()
        reported = time.perf_counter()
        while not watch.enough():
            trainer.update()
            if time.perf_counter() > reported + _REPORT_SECONDS:
                reported = time.perf_counter()
                watch.report(trainer.report())


def _train_in_processes(experiment: Experiment, folder: RunFolder, watch: _Measurement) -> None:
    plan, seconds = experiment.settled_plan, experiment.heartbeat_seconds
    controller = Controller(plan, folder, watch, heartbeat_seconds=seconds)
    with contextlib.closing(controller):
        controller.run(watch.enough)


class _Measurement:
    """Takes reports until there are enough."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._first = self._last = 0.0
        self._reports: list[tuple[float, Mapping[str, Any]]] = []

    def say(self, text: str) -> None:
        """Ignores the lines that a run shows."""

    def report(self, metrics: Mapping[str, Any]) -> None:
        """Takes a report, which is as old as it takes to arrive."""
        now = time.perf_counter()
        self._first = self._first or now
        if now >= self._first + _WARM_SECONDS:
            self._reports.append((now, metrics))

    def enough(self) -> bool:
        now = time.perf_counter()
        self._last = self._last or now
        if len(self._reports) > 1:
            return self._reports[-1][0] - self._reports[0][0] >= self._seconds
        return now > self._last + _MOST_SECONDS

    def found(self) -> Measured:
        if len(self._reports) < 2:
            raise RunError(f"it did not do two updates in {_MOST_SECONDS:.0f} s")
        (begin, first), (end, last) = self._reports[0], self._reports[-1]
        fps = (last["env_steps"] - first["env_steps"]) / (end - begin)
        waits = [last[name] for name in last if name.endswith("/send wait")]
        return Measured(fps, last["bottleneck"], max(waits, default=0.0))
