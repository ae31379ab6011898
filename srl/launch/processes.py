"""Trains by a plan of several processes, which a controller in this one starts and watches."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import time
from collections.abc import Mapping
from typing import Any

from srl.config.experiment import Experiment
from srl.core.errors import UserError
from srl.dataflow.plan import num_groups, shortage
from srl.evaluation.background import processes_beside
from srl.launch.beginning import why_all_that_step
from srl.launch.controller import Controller
from srl.launch.hosts.hosts import Hosts, Superseded
from srl.launch.hosts.resources import expect_open_files
from srl.record.checkpoint import Checkpoints
from srl.record.run_record import RunFolder
from srl.run.display import Counts, Display
from srl.run.hooks import Hooks
from srl.run.terminal import (
    DONE,
    FAILED,
    End,
    OnFailure,
    Stop,
    TimeLimit,
    ending_of,
    logging_to,
    recording_end,
    report_failure,
)
from srl.run.train_loop import finished
from srl.streams import Transport
from srl.system.gpus import machine_gpus

logger = logging.getLogger(__name__)

WORKER = "controller"
_LOOK_SECONDS = 0.5


def train_in_processes(
    experiment: Experiment,
    folder: RunFolder,
    *,
    resume: bool = False,
    role: str = "",
    transport: Transport = "host",
    hosts: Hosts | None = None,
    quiet: bool = False,
    on_failure: OnFailure = report_failure,
) -> int:
    """Runs an experiment's workers in its folder, or goes on with it.

    Args:
        experiment: As the folder has it: workers load it from there.
        folder: The run's.
        resume: Whether to go on from the newest checkpoint.
        role: module:function that workers run in place of what their nodes ask for.
        transport: Of the streams between workers: shared memory on a host, or as between hosts.
        hosts: Where the workers run; on this machine by default.
        quiet: Whether to show nothing.
        on_failure: Reports the error that training ends with; it may raise another.

    Returns:
        The exit code: 0 done, 1 failed, 130 interrupted after a checkpoint.

    Raises:
        UserError: When the experiment cannot run as it is; a new run then leaves no folder, unless
            it was shown.
    """
    plan = experiment.settled_plan
    # An engine that takes a host away sends SIGTERM: then the next controller goes on.
    stop = Stop(*((signal.SIGINT, signal.SIGUSR1) if hosts else ()), quiet=quiet)
    limit = TimeLimit(experiment.minutes)
    screen = _Screen(Display(experiment, stopping=lambda: stop.requested, quiet=quiet))
    # Of several controllers on several hosts the latest counts: see RemoteHosts.
    recording: contextlib.AbstractContextManager[End] = (
        recording_end(folder) if hosts is None else contextlib.nullcontext(lambda code, *_: code)
    )
    with recording as end, logging_to(folder, WORKER), stop:
        checkpoints = Checkpoints(folder.checkpoints)
        if resume and (done := finished(experiment, checkpoints)):
            screen.say(f"{folder.path} is finished: {done}; extend it with --env-steps N")
            return end(DONE)
        screen.display.header(folder)
        if hosts is None:
            lacking = shortage(plan, len(os.sched_getaffinity(0)), len(machine_gpus()))
            if lacking:
                screen.say(f"{lacking}: workers share what there is")
        hooks = Hooks(experiment, folder.path)
        controller = Controller(
            plan,
            folder,
            screen,
            heartbeat_seconds=experiment.heartbeat_seconds,
            resume=resume,
            role=role,
            transport=transport,
            hosts=hosts,
            hooks=hooks.asking,
            all_that_step=why_all_that_step(experiment),
        )
        try:
            with contextlib.closing(controller), contextlib.closing(screen.display):
                _run(controller, experiment, folder, screen, stop, limit, here=hosts is None)
            if hooks.failure is not None:
                raise hooks.failure
        except UserError:
            if not resume and not screen.display.folder_shown and hosts is None:
                folder.discard()
            raise
        except Superseded as reason:  # the run has not failed
            logger.info("%s", reason)
            screen.say(str(reason))
            return FAILED
        except Exception as error:
            end(FAILED, error)
            on_failure(error, folder, WORKER, "the run")
            return FAILED
        code, text, reason = _ending(controller, experiment, folder, hooks, stop, limit)
        screen.say(text)
        return end(code, reason)


def _run(
    controller: Controller,
    experiment: Experiment,
    folder: RunFolder,
    screen: _Screen,
    stop: Stop,
    limit: TimeLimit,
    *,
    here: bool,
) -> None:
    """Runs the workers and the background processes to the end.

    Unless all workers are `here`, each host looks at its own limits, and one of them evaluates.
    """

    def asked_to_stop() -> bool:
        screen.look(controller)
        return stop.requested or (limit.passed and controller.trained)

    if here:
        expect_open_files(experiment.settled_plan, num_groups(experiment.settled_plan, experiment))
    try:
        with processes_beside(experiment, folder.path, screen.say, evaluates=here):
            controller.run(asked_to_stop, patient=lambda: not stop.requested)
    finally:
        for line in controller.account():
            screen.say(line)


def _ending(
    controller: Controller,
    experiment: Experiment,
    folder: RunFolder,
    hooks: Hooks,
    stop: Stop,
    limit: TimeLimit,
) -> tuple[int, str, str]:
    """Gives the exit code of a run without an error, the line that says so, and the reason."""
    early = controller.interrupted or hooks.stopped
    return ending_of(
        folder,
        finished=not early or bool(finished(experiment, Checkpoints(folder.checkpoints))),
        by_hook=not controller.interrupted,
        out_of_time=None if stop.requested else limit,
    )


class _Screen:
    """Shows what workers report; the bar from the first report on."""

    def __init__(self, display: Display) -> None:
        self.display = display
        self._counts: Counts | None = None
        self._next_look = 0.0

    def look(self, controller: Controller) -> None:
        """Shows in which stage the workers are, until there is a report."""
        now = time.monotonic()
        if self._counts is None and now >= self._next_look:  # there may be thousands to look at
            self._next_look = now + _LOOK_SECONDS
            stage, details, self.display.updates = controller.stage()
            self.display.stage(stage, details)

    def say(self, text: str) -> None:
        self.display.say(text)

    def report(self, metrics: Mapping[str, Any]) -> None:
        begun = self._counts is not None
        self._counts = counts = Counts(metrics["env_steps"], metrics["updates"])
        if not begun:
            self.display.start(counts)
        self.display.report(counts, metrics)
