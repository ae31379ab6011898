"""What every way to train does with signals, with logs and with paths that people read."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any

from srl.launch.folder import RunFolder


class Stop:
    """Turns the first SIGINT or SIGTERM into a request; a second Ctrl-C ends the process at once.

    That loses nothing: checkpoints become visible whole, and so do lines of metrics.
    """

    def __init__(self) -> None:
        self.requested = False

    def __enter__(self) -> Stop:
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
