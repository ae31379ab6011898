"""What every way to train does with signals, with logs and with paths that people read."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from srl.child_process import die_of_the_second
from srl.launch.folder import RunFolder

INTERRUPTED = 130
"""The exit code of a process that was interrupted."""
PATIENCE_SECONDS = 5.0
"""That a training which is to end may show no progress towards the end of its update."""


class Stop:
    """Turns the first SIGINT or SIGTERM into a request; a second Ctrl-C ends the process at once.

    That loses nothing: checkpoints become visible whole, and so do lines of metrics. Both work too
    while the main thread is in an environment's C code and cannot run Python: then a thread reads
    the signals, which Python's own handler writes into a pipe.
    """

    def __init__(self, *numbers: int) -> None:
        """Listens to SIGINT and SIGTERM, or to the signals given."""
        self.requested = False
        self.requested_at = 0.0
        """Of the monotonic clock."""
        self._numbers = numbers or (signal.SIGINT, signal.SIGTERM)
        self._lock = threading.Lock()

    def __enter__(self) -> Stop:
        self._before: dict[int, Any] = {}
        if threading.current_thread() is threading.main_thread():
            for number in self._numbers:
                self._before[number] = signal.signal(number, self._handle)
            die_of_the_second(signal.SIGINT)
            readable, self._pipe = os.pipe()
            os.set_blocking(self._pipe, False)
            self._wakeup_before = signal.set_wakeup_fd(self._pipe, warn_on_full_buffer=False)
            self._reader = threading.Thread(
                target=self._read, args=(readable,), name="signals", daemon=True
            )
            self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._before:
            signal.set_wakeup_fd(self._wakeup_before)
            os.close(self._pipe)
            self._reader.join()

    def _handle(self, *_: object) -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        self._request()

    def _read(self, readable: int) -> None:
        """Notes signals until the pipe is closed."""
        with open(readable, "rb", buffering=0) as pipe:
            while numbers := pipe.read(1):
                if numbers[0] in self._numbers:
                    self._request()

    def _request(self) -> None:
        # A handler runs in the middle of the main thread, which must not wait for itself.
        if self.requested or not self._lock.acquire(blocking=False):
            return
        self.requested, self.requested_at = True, time.monotonic()
        tell("stopping after this update and a checkpoint; Ctrl-C again quits at once")


def tell(text: str) -> None:
    """Writes a line to the terminal at once, whatever threads hold; gives the cursor back."""
    show_cursor = "\x1b[?25h" if sys.stderr.isatty() else ""
    os.write(2, f"{show_cursor}\n{text}\n".encode())


def cure(folder: RunFolder, version: int | None) -> str:
    """How a failed run goes on, to end a line; nothing without a checkpoint."""
    return f"; `srl resume {shown(folder)}` goes on after update {version}" if version else ""


@contextlib.contextmanager
def logging_to(folder: RunFolder, worker: str) -> Iterator[None]:
    """Logs of this process go to the worker's file, warnings to the terminal too."""
    file = logging.FileHandler(folder.log(worker), delay=True)
    file.handleError = lambda record: None  # a full disk is told once, by what needs it
    form = f"%(asctime)s %(levelname)s {worker} %(name)s: %(message)s"
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


def shown(folder: RunFolder, worker: str | None = None) -> str:
    """A path as short as it can be written from here."""
    path = str(folder.log(worker) if worker else folder.path)
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative
