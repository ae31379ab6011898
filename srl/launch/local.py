"""Trains on this machine, in this process, until the budget, a signal or an error."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from typing import Any, Protocol

from srl.checkpoint import Checkpoints
from srl.dataflow.plans import resolve
from srl.errors import RunError, UserError
from srl.experiment import Experiment
from srl.launch.compilation import keep_compiled_programs
from srl.launch.display import Display
from srl.launch.folder import RunFolder
from srl.metrics import MetricsWriter
from srl.types import Tree

logger = logging.getLogger(__name__)

DONE, FAILED, INTERRUPTED = 0, 1, 130
WORKER = "trainer"


class TrainerLike(Protocol):
    """What the launcher drives."""

    @property
    def env_steps(self) -> int:
        """Steps that environments have done."""
        ...

    @property
    def agent_steps(self) -> int:
        """Steps that agents have done."""
        ...

    @property
    def updates(self) -> int:
        """Finished calls of `learn`."""
        ...

    @property
    def resumes_exactly(self) -> bool:
        """False where environments cannot be saved and restart their episodes."""
        ...

    def start(self) -> None:
        """Makes the environments and compiles; trains nothing."""

    def update(self) -> None:
        """Takes one unroll and learns from it."""

    def report(self) -> dict[str, Any]:
        """The metrics since the last report."""
        ...

    def check(self) -> None:
        """Raises RunError where training has diverged, so that its state is worth nothing."""

    def state(self) -> Tree:
        """Everything that `restore` needs."""
        ...

    def restore(self, tree: Tree) -> None:
        """Goes on from a saved state."""

    def close(self) -> None:
        """Lets go of the environments."""


def train(
    experiment: Experiment,
    folder: RunFolder,
    *,
    resume: bool = False,
    trainer: TrainerLike | None = None,
) -> int:
    """Runs an experiment in its folder, or goes on with it.

    Returns:
        The exit code: 0 done, 1 failed, 130 interrupted after a checkpoint.

    Raises:
        UserError: When the experiment cannot run as it is; a new run then leaves no folder.
    """
    checkpoints = Checkpoints(folder.checkpoints, experiment.keep_checkpoints)
    display = Display(experiment)
    with folder.locked(), _logging_to(folder), _Stop() as stop:
        if resume and (done := _finished(experiment, checkpoints)):
            display.say(f"{folder.path} is finished: {done}; extend it with --env-steps N")
            return DONE
        display.header(folder)
        run = _Run(experiment, folder, checkpoints, display, stop)
        try:
            with contextlib.ExitStack() as stack:
                stack.enter_context(_closing(checkpoints))
                stack.enter_context(_closing(display))
                run.start(trainer, resume, stack)
                run.loop()
        except UserError:
            if not resume and not run.trained:
                folder.discard()
            raise
        except Exception as error:
            _tell_failure(error, folder, checkpoints)
            return FAILED
        if not run.finished:
            display.say(f"interrupted; `srl resume {_shown(folder)}` goes on")
            return INTERRUPTED
        display.say(f"done; the run is in {_shown(folder)}")
        return DONE


class _Run:
    """The parts of a run in progress."""

    def __init__(
        self,
        experiment: Experiment,
        folder: RunFolder,
        checkpoints: Checkpoints,
        display: Display,
        stop: _Stop,
    ) -> None:
        self.experiment, self.folder, self.checkpoints = experiment, folder, checkpoints
        self.display, self.stop = display, stop
        self.trained = False

    def start(self, trainer: TrainerLike | None, resume: bool, stack: contextlib.ExitStack) -> None:
        """Opens everything; `stack` closes it."""
        self.trainer = trainer = trainer or make_trainer(self.experiment)
        stack.enter_context(_closing(trainer))
        trainer.start()
        if resume:
            self._restore()
        self.metrics = MetricsWriter(self.folder.path, trainer.env_steps if resume else None)
        stack.enter_context(_closing(self.metrics))
        self.display.start(trainer)

    def _restore(self) -> None:
        version = self.checkpoints.latest()
        if version is None:
            self.display.say("there is no checkpoint yet; the run starts from the beginning")
            return
        tree, _ = self.checkpoints.restore(version, like=self.trainer.state())
        self.trainer.restore(tree)
        self.display.say(f"goes on after {self.trainer.env_steps:,} env steps")
        if not self.trainer.resumes_exactly:
            self.display.say(
                "the environments cannot be restored: their episodes start anew, so the run will "
                "differ from one that was never stopped"
            )

    def loop(self) -> None:
        """Trains until the budget is used up or a stop is requested; then saves."""
        trainer, display, stop = self.trainer, self.display, self.stop
        every = report_interval(self.experiment)
        checkpoint_seconds = 60 * self.experiment.checkpoint_minutes
        next_checkpoint = time.monotonic() + checkpoint_seconds
        reported = True
        while not stop.requested and not self.finished:
            trainer.update()
            self.trained = True
            now = time.monotonic()
            reported = trainer.updates % every == 0
            if reported:
                self._report()
            if now >= next_checkpoint:
                next_checkpoint = now + checkpoint_seconds
                self._save(wait=False)
            display.tick(trainer, now)
        # A line between two of the grid is the last: a stopped run goes on without one.
        if not reported and self.finished:
            self._report()
        self._save(wait=True)

    @property
    def finished(self) -> bool:
        """Whether the budget is used up."""
        return budget_used(self.experiment, self.trainer.env_steps, self.trainer.updates)

    def _report(self) -> None:
        report = self.trainer.report()
        self.metrics.write(report)
        self.display.report(self.trainer, report)
        logger.info("update %d: %s", self.trainer.updates, self.display.summary(report))
        self.checkpoints.check()

    def _save(self, *, wait: bool) -> None:
        trainer = self.trainer
        trainer.check()  # or it would push out checkpoints that are good
        counts = {
            "env_steps": int(trainer.env_steps),
            "agent_steps": int(trainer.agent_steps),
            "updates": int(trainer.updates),
            "time": time.time(),
        }
        self.checkpoints.save(int(trainer.updates), trainer.state(), counts, wait=wait)
        logger.info("checkpoint of update %d", trainer.updates)


def make_trainer(experiment: Experiment) -> TrainerLike:
    """Gives what trains the experiment as its plan says."""
    keep_compiled_programs()
    plan = resolve(experiment.plan, experiment.env)
    if plan != "auto" and plan.fragment("step").compiled:
        from srl.workers.fused import Fused

        return Fused(experiment)
    from srl.workers.trainer import Trainer

    return Trainer(experiment)


def report_interval(experiment: Experiment) -> int:
    """Updates between two report lines; the same however often a run is stopped."""
    if experiment.report_every:
        return experiment.report_every
    steps = experiment.num_envs * experiment.algorithm.unroll_length
    updates = experiment.updates or math.ceil(experiment.env_steps / steps)
    return max(1, min(updates // 50, 100))


def budget_used(experiment: Experiment, env_steps: int, updates: int) -> bool:
    """Whether the experiment ends here."""
    if experiment.updates is not None:
        return updates >= experiment.updates
    return env_steps >= experiment.env_steps


def _finished(experiment: Experiment, checkpoints: Checkpoints) -> str:
    """What a finished run has done; nothing if it is not finished."""
    if checkpoints.latest() is None:
        return ""
    counts = checkpoints.metadata()
    if not budget_used(experiment, counts["env_steps"], counts["updates"]):
        return ""
    return f"{counts['env_steps']:,} env steps, {counts['updates']:,} updates"


class _Stop:
    """Turns the first SIGINT or SIGTERM into a request; a second Ctrl-C ends the process at once.

    That loses nothing: checkpoints become visible whole, and so do lines of metrics.
    """

    def __init__(self) -> None:
        self.requested = False

    def __enter__(self) -> _Stop:
        self._before: dict[int, Any] = {}
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._request)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _request(self, *_: object) -> None:
        self.requested = True
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        show_cursor = "\x1b[?25h" if sys.stderr.isatty() else ""
        text = "stopping after this update and a checkpoint; Ctrl-C again quits at once"
        os.write(2, f"{show_cursor}\n{text}\n".encode())


@contextlib.contextmanager
def _closing(part: Any) -> Iterator[None]:
    """Closes a part at the end; what that raises does not hide an earlier error."""
    try:
        yield
    except BaseException:
        try:
            part.close()
        except Exception as error:
            logger.warning("%s", error)
        raise
    part.close()


@contextlib.contextmanager
def _logging_to(folder: RunFolder) -> Iterator[None]:
    """Logs of this process go to the worker's file, warnings to the terminal too."""
    file = logging.FileHandler(folder.log(WORKER), delay=True)
    file.handleError = lambda record: None  # a full disk is told once, by what needs it
    form = f"%(asctime)s %(levelname)s {WORKER} %(name)s: %(message)s"
    file.setFormatter(logging.Formatter(form))
    handlers = [file, *filter(None, [logging.lastResort])]
    root, ours = logging.getLogger(), logging.getLogger("srl")
    level = ours.level
    ours.setLevel(logging.INFO)
    for handler in handlers:
        root.addHandler(handler)
    try:
        yield
    finally:
        ours.setLevel(level)
        for handler in handlers:
            root.removeHandler(handler)
        with contextlib.suppress(OSError):
            file.close()


def _tell_failure(error: Exception, folder: RunFolder, checkpoints: Checkpoints) -> None:
    """Names the worker and its log; an error that was not foreseen comes with its traceback."""
    trace = "".join(traceback.format_exception(error))
    with contextlib.suppress(OSError), folder.log(WORKER).open("a") as log:
        log.write(trace)
    foreseen = isinstance(error, RunError) and error.__cause__ is None
    text = f"{error}\n" if foreseen else trace
    version = checkpoints.latest()
    cure = f"; `srl resume {_shown(folder)}` goes on after update {version}" if version else ""
    sys.stderr.write(f"{text}{WORKER} failed; its log is {_shown(folder, WORKER)}{cure}\n")


def _shown(folder: RunFolder, worker: str | None = None) -> str:
    """A path as short as it can be written from here."""
    path = str(folder.log(worker) if worker else folder.path)
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative
