"""Output of a process that outlives its terminal, and any reader of its output."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any, TextIO

_MAY_PASS = (errno.ENOSPC, errno.EDQUOT)  # of a file on a full disk


@contextlib.contextmanager
def lasting_output(*, hangup: bool = False) -> Iterator[None]:
    """Makes a lost terminal or pipe no error while it is entered, in any thread.

    Text that nobody can read is dropped. Without `hangup` so is that for a full disk.

    Args:
        hangup: Whether SIGHUP, which a closed terminal sends, ends the process as usual. By default
            it is ignored, also by processes that are started meanwhile, as under `nohup`; a handler
            of the program's stays.
    """
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (_lasting(stream, full=hangup) for stream in before)
    in_main = threading.current_thread() is threading.main_thread()
    ignored = not hangup and in_main and signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
    if ignored:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        sys.stdout, sys.stderr = before
        if ignored:
            signal.signal(signal.SIGHUP, signal.SIG_DFL)


def keep_output() -> None:
    """Makes a lost terminal or pipe no error from now on, for processes that are started."""
    sys.stdout, sys.stderr = _lasting(sys.stdout), _lasting(sys.stderr)


class _Lasting(io.FileIO):
    """A descriptor that leads nowhere once its reader is lost."""

    full_is_error = False

    def write(self, data: Any, /) -> int:
        """Writes bytes; gives how many are dealt with."""
        try:
            return super().write(data)
        except OSError as error:
            if error.errno in _MAY_PASS and self.full_is_error:
                raise
            if error.errno not in _MAY_PASS:
                _lead_nowhere(self.fileno())
            return memoryview(data).nbytes


def _lead_nowhere(fd: int) -> None:
    """Replaces what a descriptor leads to, for native code and later child processes too."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, fd)
    os.close(nothing)


def _lasting(stream: TextIO | None, *, full: bool = False) -> Any:
    """The stream with a descriptor of this kind; as it is where it leads to a program's own."""
    if stream is None:  # the process was started without it
        return open(os.devnull, "w")
    buffer: Any = getattr(stream, "buffer", None)
    raw: Any = getattr(buffer, "raw", buffer)
    if type(raw) not in (io.FileIO, _Lasting) or raw.fileno() not in (1, 2):
        return stream  # a notebook's, or a test's
    with contextlib.suppress(OSError):
        stream.flush()
    lasting = _Lasting(raw.fileno(), "wb", closefd=False)
    lasting.full_is_error = full
    return io.TextIOWrapper(
        lasting if buffer is raw else io.BufferedWriter(lasting),
        encoding=stream.encoding,
        errors="backslashreplace",  # a terminal without some letter ends no run either
        line_buffering=getattr(stream, "line_buffering", False),
        write_through=getattr(stream, "write_through", False),
    )
