"""Signals, logs and the end of a training, in whatever processes it runs."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from srl.core.errors import SrlError, UserError, described, explained, formatted
from srl.record.checkpoint import Checkpoints
from srl.record.files import short_path
from srl.record.run_record import RunFolder
from srl.run.status import write_outcome
from srl.system.child_process import die_of_the_second
from srl.system.lasting_output import lasting_output

logger = logging.getLogger(__name__)

DONE, FAILED, MISTAKEN, INTERRUPTED = 0, 1, 2, 130
"""Exit codes of a training: finished, failed, refused, or interrupted after a checkpoint."""
KILLED = "the process was killed, or an environment ended it with exit()"
"""The reason of a failure that the process could not report."""
PATIENCE_SECONDS = 5.0
"""The time that a training which is to end may take without progress towards its update's end."""


class Stop:
    """Turns the first SIGINT or SIGTERM into a request; a second Ctrl-C ends the process at once.

    That loses nothing: checkpoints become visible whole, and so do lines of metrics. Both work too
    while the main thread is in an environment's C code and cannot run Python: then a thread reads
    the signals, which Python's own handler writes into a pipe.
    """

    def __init__(self, *numbers: int, quiet: bool = False) -> None:
        """Listens to SIGINT and SIGTERM, or to the signals given; reports a stop unless quiet."""
        self._quiet = quiet
        self.requested = False
        self.requested_at = 0.0
        """When it was requested, by the monotonic clock."""
        self.numbers = numbers or (signal.SIGINT, signal.SIGTERM)
        self._lock = threading.Lock()

    def __enter__(self) -> Stop:
        self._before: dict[int, Any] = {}
        if threading.current_thread() is threading.main_thread():
            for number in self.numbers:
                self._before[number] = signal.signal(number, self._handle)
            die_of_the_second(signal.SIGINT)
            readable, self._pipe = os.pipe()
            os.set_blocking(self._pipe, False)
            self._wakeup_before = signal.set_wakeup_fd(self._pipe, warn_on_full_buffer=False)
            self._reader = threading.Thread(
                target=self._read, args=(readable,), name="signals", daemon=True
            )
            self._reader.start()
            _entered.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._before:
            _entered.remove(self)
            signal.set_wakeup_fd(self._wakeup_before)
            os.write(self._pipe, _NO_SIGNAL)  # a fork may hold the pipe open
            self._reader.join()
            os.close(self._pipe)

    def leave_to_parent(self) -> None:
        """Is called in a fork of this process: signals to the fork are not for the training.

        They would reach it through the pipe. The fork's first SIGINT, which is a Ctrl-C in the
        terminal of both, does nothing: the parent may need the fork for its last update.
        """
        signal.set_wakeup_fd(-1)
        for number, handler in self._before.items():
            if signal.getsignal(number) == self._handle:
                signal.signal(number, _ignore if number == signal.SIGINT else handler)
        die_of_the_second(signal.SIGINT)

    def _handle(self, *_: object) -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        self._request()

    def _read(self, readable: int) -> None:
        with open(readable, "rb", buffering=0) as pipe:
            while (number := pipe.read(1)) != _NO_SIGNAL:
                if number[0] in self.numbers:
                    self._request()

    def _request(self) -> None:
        # A handler runs in the middle of the main thread, which must not wait for itself.
        if self.requested or not self._lock.acquire(blocking=False):
            return
        self.requested, self.requested_at = True, time.monotonic()
        if not self._quiet:
            write_line("stopping after this update and a checkpoint; Ctrl-C again quits at once")


_NO_SIGNAL = b"\0"
_entered: list[Stop] = []
_forking = threading.local()


def _ignore(*_: object) -> None:
    """Does nothing; SIG_IGN would be handed on to what the process starts."""


def _before_fork() -> None:
    """Keeps signals from a fork until it has left them to its parent."""
    numbers = [number for stop in _entered for number in stop.numbers]
    _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)


def _after_fork() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)


def _in_fork() -> None:
    for stop in _entered:
        stop.leave_to_parent()
    _after_fork()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_fork)


def write_line(text: str) -> None:
    """Writes a line to the terminal at once, whatever threads hold; gives the cursor back."""
    show_cursor = "\x1b[?25h" if os.isatty(2) else ""
    with contextlib.suppress(OSError):  # its reader may be lost
        os.write(2, f"{show_cursor}\n{text}\n".encode())


class TimeLimit:
    """The minutes that a training may take, from here on."""

    def __init__(self, minutes: float | None) -> None:
        """Begins to count; None is no limit."""
        self._minutes = math.inf if minutes is None else minutes
        self._end = time.monotonic() + 60 * self._minutes

    @property
    def passed(self) -> bool:
        """True if they are over."""
        return time.monotonic() >= self._end

    def __str__(self) -> str:
        return f"the {self._minutes:g} minutes of this start are over"


def ending_of(
    folder: RunFolder, *, finished: bool, by_hook: bool, out_of_time: TimeLimit | None
) -> tuple[int, str, str]:
    """The exit code of a training without an error, a line for the user, and a reason to record."""
    if finished:
        return DONE, f"done; the run is in {shown(folder)}", ""
    goes_on = f"`srl resume {shown(folder)}` goes on"
    if by_hook:
        return DONE, f"stopped by a hook; {goes_on}", "stopped by a hook"
    if out_of_time is not None:
        return DONE, f"{out_of_time}; {goes_on}", str(out_of_time)
    return INTERRUPTED, f"interrupted; {goes_on}", ""


def resume_hint(folder: RunFolder) -> str:
    """Gives the command to resume a failed run, to end a line; nothing without a checkpoint."""
    with contextlib.suppress(UserError):  # what else is wrong is shown already
        version = Checkpoints(folder.checkpoints).latest()
        if version is not None:
            return f"; `srl resume {shown(folder)}` goes on after update {version}"
    return ""


def failed(folder: RunFolder, worker: str, what: str = "") -> str:
    """A line which reports that a worker, or else `what`, has failed, with the worker's log."""
    goes_on = resume_hint(folder).removeprefix("; ")
    hint = goes_on and f"; once its cause is fixed, {goes_on}"
    return f"{what or worker} failed; its log is {shown(folder, worker)}{hint}"


def report_failure(error: BaseException, folder: RunFolder, worker: str, what: str = "") -> None:
    """Reports an error on the terminal, and with its whole traceback in the worker's log."""
    logger.info("%s", formatted(error))
    sys.stderr.write(f"{explained(error)}\n{failed(folder, worker, what)}\n")


OnFailure = Callable[..., None]
"""Reports an error as `report_failure` does: of a folder's worker, or of what else failed."""
End = Callable[..., int]
"""Takes a training's exit code, and the reason of a failure, to record them; gives the code."""


@contextlib.contextmanager
def recording_end(folder: RunFolder) -> Iterator[End]:
    """Keeps others from training a run, and records in its folder how this training ends.

    Neither a lost terminal nor a lost pipe ends it.

    Raises:
        UserError: If another process trains the run.
    """

    def end(code: int, reason: BaseException | str = "") -> int:
        if isinstance(reason, BaseException):
            reason = str(reason) if isinstance(reason, SrlError) else described(reason)
        with contextlib.suppress(OSError):  # on a full disk; then only `srl top` lacks it
            write_outcome(folder.path, code, reason.partition("\n")[0])
        return code

    with folder.locked(), lasting_output():
        end(FAILED, KILLED)  # until it ends otherwise
        try:
            yield end
        except UserError as error:
            if folder.config.exists():
                end(MISTAKEN, error)
            raise


class _LogFile(logging.FileHandler):
    """A log that need not be writable: a full disk is reported once, by what needs it."""

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(OSError):
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:
        """Reports nothing."""


def _worth_the_terminal(record: logging.LogRecord) -> bool:
    """Tells if a record is not merely the log's copy of a displayed text."""
    return record.levelno >= logging.WARNING or not record.name.startswith("srl")


@contextlib.contextmanager
def logging_to(folder: RunFolder, worker: str) -> Iterator[None]:
    """Logs of this process go to the worker's file, warnings to the terminal too."""
    file = _LogFile(folder.log(worker), delay=True)
    form = f"%(asctime)s %(levelname)s {worker} %(name)s: %(message)s"
    file.setFormatter(logging.Formatter(form))
    root, ours = logging.getLogger(), logging.getLogger("srl")
    # Some libraries, as they are imported, show all records on the terminal.
    others = [other for other in root.handlers if type(other) is logging.StreamHandler]
    handlers: list[logging.Handler] = [file]
    if not others and logging.lastResort:
        handlers.append(logging.lastResort)
    level = ours.level
    ours.setLevel(logging.INFO)
    for handler in handlers:
        root.addHandler(handler)
    for other in others:
        other.addFilter(_worth_the_terminal)
    try:
        yield
    finally:
        ours.setLevel(level)
        for other in others:
            other.removeFilter(_worth_the_terminal)
        for handler in handlers:
            root.removeHandler(handler)
        with contextlib.suppress(OSError):
            file.close()


def shown(folder: RunFolder, worker: str | None = None) -> str:
    """The path of a run's folder, or of a worker's log, as short as it can be written from here."""
    return short_path(folder.log(worker) if worker else folder.path)
