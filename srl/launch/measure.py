"""Measurement of an experiment's training speed; its arguments are RUN_DIR and SECONDS.

It is a separate process, so that the memory of one plan, a GPU's too, is free before the next is
measured.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from srl.config.experiment import Experiment
from srl.core.errors import RunError, UserError
from srl.launch.controller import Controller
from srl.launch.local import in_processes
from srl.loop.make_training import make_training
from srl.record.run_record import RunFolder
from srl.run.folder import open_run

_WARM_SECONDS = 1.0
_REPORT_SECONDS = 0.5
_MOST_SECONDS = 60.0  # until there are two reports


class Measured(NamedTuple):
    """The result."""

    fps: float
    """Env steps a second, once warm."""
    bottleneck: str
    """Describes what holds it back."""


def main(argv: Sequence[str]) -> int:
    """Prints the result, or the error, as one line of JSON."""
    folder, resolved = open_run(Path(argv[0]), trust=True)
    try:
        found = measure(resolved.experiment, folder, float(argv[1]))
        sys.stdout.write(json.dumps(found._asdict()) + "\n")
    except (UserError, RunError) as error:
        sys.stdout.write(json.dumps({"error": str(error)}) + "\n")
    return 0


def measure(experiment: Experiment, folder: RunFolder, seconds: float) -> Measured:
    """Trains for so many seconds after warming up; longer where two updates take longer.

    Raises:
        UserError: If the experiment cannot run as it is.
        RunError: If it fails, or two updates take more than a minute.
    """
    watch = _Measurement(seconds)
    if in_processes(experiment.settled_plan):
        _train_in_processes(experiment, folder, watch)
    else:
        _train_here(experiment, folder, watch)
    return watch.found()


def _train_here(experiment: Experiment, folder: RunFolder, watch: _Measurement) -> None:
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
        """Tells if nothing more has to be measured."""
        now = time.perf_counter()
        self._last = self._last or now
        if len(self._reports) > 1:
            return self._reports[-1][0] - self._reports[0][0] >= self._seconds
        return now > self._last + _MOST_SECONDS

    def found(self) -> Measured:
        """The rate from the first report to the last."""
        if len(self._reports) < 2:
            raise RunError(f"it did not do two updates in {_MOST_SECONDS:.0f} s")
        (begin, first), (end, last) = self._reports[0], self._reports[-1]
        fps = (last["env_steps"] - first["env_steps"]) / (end - begin)
        return Measured(fps, last["bottleneck"])
