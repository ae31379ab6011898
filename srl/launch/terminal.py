"""What every way to train does with signals, with logs and with paths that people read."""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from srl.launch.folder import RunFolder


class Stop:
    """Turns the first SIGINT or SIGTERM into a request; a second Ctrl-C ends the process at once.

    That loses nothing: checkpoints become visible whole, and so do lines of metrics.
    """

    def __init__(self, *numbers: int) -> None:
        """Listens to SIGINT and SIGTERM, or to the signals given."""
        self.requested = False
        self._numbers = numbers or (signal.SIGINT, signal.SIGTERM)

    def __enter__(self) -> Stop:
        self._before: dict[int, Any] = {}
        if threading.current_thread() is threading.main_thread():
            for number in self._numbers:
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


def cure(folder: RunFolder, version: int | None) -> str:
    """How a failed run goes on, to end a line; nothing without a checkpoint."""
    return f"; `srl resume {shown(folder)}` goes on after update {version}" if version else ""


class Watch:
    """Names a training in this process that shows no progress, and writes down where it is.

    Nothing is killed: there is nobody who could start this process again.
    """

    def __init__(self, limit_seconds: float, log: Path, say: Callable[[str], None]) -> None:
        """Takes what to tell it.

        Args:
            limit_seconds: That may pass between two calls of `alive`, after the first.
            log: Where the stacks of all threads go.
            say: Shows a line.
        """
        self._limit, self._log, self._say = limit_seconds, log, say
        self._alive: float | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, name="watch", daemon=True)

    def alive(self) -> None:
        """Marks progress."""
        self._alive = time.monotonic()

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        told = None
        while not self._ended.wait(min(1.0, self._limit / 4)):
            since = self._alive
            if since is None or since == told or time.monotonic() - since <= self._limit:
                continue
            told = since
            text = f"the training has shown no progress for {self._limit:g} s"
            self._say(f"{text}; the stack of each thread is in {self._log}")
            with contextlib.suppress(OSError), self._log.open("a") as log:
                log.write(f"{text}:\n")
                log.flush()
                faulthandler.dump_traceback(log)


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
