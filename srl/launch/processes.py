"""Trains by a plan of several processes, which a controller in this one starts and watches."""

from __future__ import annotations

import contextlib
import logging
import signal
import time

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
from srl.run.display import Display
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
from srl.streams.transport import Transport
from srl.system.background.cpu_limit import cores_granted
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
    """Runs an experiment's workers in its folder, or goes on with it; see `srl.launch.local.train`.

    Workers load the experiment from the folder. They run on `hosts`, by default on this machine.
    For `role` and `transport` see `Controller`.
    """
    lead = _Lead(experiment, folder, resume, hosts, quiet)
    with lead.recording() as end, logging_to(folder, WORKER), lead.stop:
        if resume and (done := finished(experiment, Checkpoints(folder.checkpoints))):
            lead.display.say(f"{folder.path} is finished: {done}; extend it with --env-steps N")
            return end(DONE)
        lead.show_beginning()
        controller = lead.controller(role, transport)
        try:
            lead.to_the_end(controller)
        except UserError:
            if not resume and not lead.display.folder_shown and hosts is None:
                folder.discard()
            raise
        except Superseded as reason:  # the run has not failed
            logger.info("%s", reason)
            lead.display.say(str(reason))
            return FAILED
        except Exception as error:
            end(FAILED, error)
            on_failure(error, folder, WORKER, "the run")
            return FAILED
        code, text, reason = lead.ending(controller)
        lead.display.say(text)
        return end(code, reason)


class _Lead:
    """A run as the process sees it that leads it."""

    def __init__(
        self,
        experiment: Experiment,
        folder: RunFolder,
        resume: bool,
        hosts: Hosts | None,
        quiet: bool,
    ) -> None:
        self._experiment, self._folder, self._resume = experiment, folder, resume
        self._hosts, self._here = hosts, hosts is None
        # An engine that takes a host away sends SIGTERM: then the next controller goes on.
        self.stop = Stop(*((signal.SIGINT, signal.SIGUSR1) if hosts else ()), quiet=quiet)
        self._limit = TimeLimit(experiment.minutes)
        self.display = Display(experiment, stopping=lambda: self.stop.requested, quiet=quiet)
        self._next_look = 0.0
        self._hooks = Hooks(experiment, folder.path)

    def recording(self) -> contextlib.AbstractContextManager[End]:
        """Records the end; of several controllers on several hosts the latest counts."""
        if self._here:
            return recording_end(self._folder)
        return contextlib.nullcontext(lambda code, *_: code)  # see RemoteHosts

    def show_beginning(self) -> None:
        """Shows the run, and what this machine lacks for it."""
        self.display.header(self._folder)
        if self._here:
            cores, gpus = cores_granted(), len(machine_gpus())
            if lacking := shortage(self._experiment.settled_plan, cores, gpus):
                self.display.say(f"{lacking}: workers share what there is")

    def controller(self, role: str, transport: Transport) -> Controller:
        return Controller(
            self._experiment.settled_plan,
            self._folder,
            self.display,
            heartbeat_seconds=self._experiment.heartbeat_seconds,
            resume=self._resume,
            role=role,
            transport=transport,
            hosts=self._hosts,
            hooks=self._hooks.asking,
            all_that_step=why_all_that_step(self._experiment),
        )

    def to_the_end(self, controller: Controller) -> None:
        """Runs the workers and the background processes, and closes the controller.

        Unless all workers are here, each host looks at its own limits, and one of them evaluates.
        """
        experiment, plan = self._experiment, self._experiment.settled_plan
        with contextlib.closing(controller), contextlib.closing(self.display):
            if self._here:
                expect_open_files(plan, num_groups(plan, experiment))
            try:
                with processes_beside(
                    experiment, self._folder.path, self.display.say, evaluates=self._here
                ):
                    controller.run(
                        lambda: self._asked_to_stop(controller),
                        patient=lambda: not self.stop.requested,
                    )
            finally:
                for line in controller.account():
                    self.display.say(line)
        if self._hooks.failure is not None:
            raise self._hooks.failure

    def _asked_to_stop(self, controller: Controller) -> bool:
        now = time.monotonic()
        if not self.display.started and now >= self._next_look:  # there may be thousands to look at
            self._next_look = now + _LOOK_SECONDS
            show_stage(self.display, controller)
        return self.stop.requested or (self._limit.passed and controller.trained)

    def ending(self, controller: Controller) -> tuple[int, str, str]:
        """Gives the exit code of a run without an error, a line about it, and the reason."""
        early = controller.interrupted or self._hooks.stopped
        checkpoints = Checkpoints(self._folder.checkpoints)
        return ending_of(
            self._folder,
            finished=not early or bool(finished(self._experiment, checkpoints)),
            by_hook=not controller.interrupted,
            out_of_time=None if self.stop.requested else self._limit,
        )


def show_stage(display: Display, controller: Controller) -> None:
    """Shows in which stage the workers are."""
    stage, details, display.updates = controller.stage()
    display.stage(stage, details)
