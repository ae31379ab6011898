"""Trains on this machine, in this process, until the budget, a signal or an error."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

from srl.config.experiment import Experiment
from srl.core.backends import backend_of
from srl.core.errors import UserError
from srl.dataflow.plans import idle_gpu
from srl.evaluation.background import processes_beside
from srl.launch.processes import train_in_processes
from srl.loop.devices import expect_devices
from srl.loop.make_training import make_training
from srl.loop.stage import Stage
from srl.loop.training import Training
from srl.record.run_record import RunFolder
from srl.run.crash import CrashReporter
from srl.run.display import Display
from srl.run.hooks import Hooks
from srl.run.terminal import (
    DONE,
    FAILED,
    INTERRUPTED,
    End,
    OnFailure,
    Stop,
    TimeLimit,
    ending_of,
    logging_to,
    recording_end,
    report_failure,
    resume_hint,
    shown,
)
from srl.run.train_loop import Run, closing, finished
from srl.run.watchdog import Watchdog
from srl.system.compilation import keep_compiled_programs

logger = logging.getLogger(__name__)

WORKER = "trainer"


def train(
    experiment: Experiment,
    folder: RunFolder,
    *,
    resume: bool = False,
    trainer: Training | None = None,
    quiet: bool = False,
    on_failure: OnFailure = report_failure,
) -> int:
    """Runs an experiment in its folder, or goes on with it.

    Args:
        experiment: As the folder has it.
        folder: The run's.
        resume: Whether to go on from the newest checkpoint.
        trainer: Trains it; by default as the plan has it.
        quiet: Whether to show nothing.
        on_failure: Reports the error that training ends with; it may raise another.

    Returns:
        The exit code: 0 done, 1 failed, 130 interrupted after a checkpoint. Where the end was asked
        for and no update comes, the process itself ends, with code 130.

    Raises:
        UserError: When the experiment cannot run as it is; a new run then leaves no folder, unless
            it was shown.
    """
    plan = experiment.settled_plan
    if trainer is None and plan.processes > 1:
        return train_in_processes(
            experiment, folder, resume=resume, quiet=quiet, on_failure=on_failure
        )
    return _train_here(experiment, folder, trainer, on_failure, resume=resume, quiet=quiet)


def _train_here(
    experiment: Experiment,
    folder: RunFolder,
    trainer: Training | None,
    on_failure: OnFailure,
    *,
    resume: bool,
    quiet: bool,
) -> int:
    stop, limit = Stop(quiet=quiet), TimeLimit(experiment.minutes)
    show = _TerminalShow(experiment, stop, quiet)
    with recording_end(folder) as end, logging_to(folder, WORKER), stop, closing(show):
        if trainer is None:
            keep_compiled_programs()
            trainer = make_training(experiment)
        hooks = Hooks(experiment, folder.path)

        def to_stop() -> bool:
            return stop.requested or (limit.passed and run.trained)

        run = Run(experiment, folder.path, trainer, show, to_stop, hooks=hooks.asking)
        if resume and (done := finished(experiment, run.checkpoints)):
            show.say(f"{folder.path} is finished: {done}; extend it with --env-steps N")
            return end(DONE)
        show.display.header(folder)
        if idle := idle_gpu(experiment.settled_plan, experiment.env):
            show.say(idle)
        try:
            expect_devices()
            with _watched(run, show, stop, end), run:  # a hang at its end is told, too
                run.start(resume=resume)
                with processes_beside(experiment, folder.path, show.say):
                    run.loop()
                if trainer.environments.account:
                    show.say(trainer.environments.account)
            if hooks.failure is not None:
                raise hooks.failure
        except UserError:
            if not resume and not show.display.folder_shown:
                folder.discard()
            raise
        # `stop` takes a Ctrl-C: this is another one, or code of others that wants to exit.
        except (Exception, KeyboardInterrupt, SystemExit) as error:
            end(FAILED, error)
            on_failure(error, folder, WORKER)
            return FAILED
        code, text, reason = ending_of(
            folder,
            finished=run.finished,
            by_hook=hooks.stopped,
            out_of_time=None if stop.requested else limit,
        )
        show.say(text)
        return end(code, reason)


@contextlib.contextmanager
def _watched(run: Run, show: _TerminalShow, stop: Stop, end: End) -> Iterator[None]:
    """Reports crashes of this process, and hangs of the run, while this is entered."""
    experiment, folder = run.experiment, RunFolder(run.folder)
    crash = CrashReporter(folder.path, WORKER, _after_a_crash(experiment))

    def ending() -> str:
        crash.expect_end()
        end(INTERRUPTED)
        return resume_hint(folder) or (
            f"; there is no checkpoint yet: `srl resume {shown(folder)}` begins anew"
        )

    watchdog = Watchdog(
        experiment.heartbeat_seconds,
        folder.log(WORKER),
        stop,
        show.say,
        awaited=lambda: run.trainer.environments.awaited,
        ending=ending,
        beat=crash.beat,
    )
    with crash, watchdog as show.watch:
        yield


def _after_a_crash(experiment: Experiment) -> str:
    """Describes a way to train on environments that abort their process."""
    again = "in separate processes, which restart when they die"
    if backend_of(experiment.env).threaded:
        return f"if the environment is at fault: `--plan inline` steps and acts {again}"
    if experiment.workers:
        return ""
    return f"if the environment is at fault: `--workers N` steps environments {again}"


class _TerminalShow:
    """Shows a run on the terminal and in its log."""

    def __init__(self, experiment: Experiment, stop: Stop, quiet: bool) -> None:
        self.display = Display(experiment, stopping=lambda: stop.requested, quiet=quiet)
        self.say, self.close = self.display.say, self.display.close
        self.watch: Watchdog | None = None

    def start(self, trainer: Training) -> None:
        self.display.start(trainer.learner)

    def stage(self, stage: Stage) -> None:
        if self.watch:
            self.watch.stage(stage)
        self.display.stage(stage)

    def alive(self) -> None:
        if self.watch:
            self.watch.alive()
        self.display.stage(Stage.STEPPING)

    def tick(self, trainer: Training, now: float) -> None:
        if self.watch:
            self.watch.updated()
        self.display.tick(trainer.learner.progress, now)

    def report(self, report: dict[str, Any]) -> None:
        self.display.report(report)
        logger.info("update %d: %s", report["updates"], self.display.summary(report))
