"""Reports the end of a training process that native code, such as an environment's, has aborted.

A process that dies of a signal can write its stack into one file and no more. A small process
beside it, which only waits, therefore writes the log and the terminal.
"""

from __future__ import annotations

import faulthandler
import json
import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from srl.child_process import innermost_frames

_BOOTSTRAP = """
import json, sys
arguments = json.loads(sys.argv.pop())
sys.path[:] = arguments.pop("path")
from srl.launch.crash import main
main(**arguments)
"""
_GOODBYE = b"\0the process ends in good order\0"


class CrashReporter:
    """While it is entered, an abrupt end of this process is reported."""

    def __init__(self, worker: str, log: Path, hint: str) -> None:
        """Starts nothing yet.

        Args:
            worker: What messages call this process.
            log: The file for all stacks.
            hint: What to do, shown last; may be empty.
        """
        self._told = {"worker": worker, "log": str(log), "hint": hint}

    def __enter__(self) -> CrashReporter:
        theirs, self._pipe = os.pipe()
        path = [entry for entry in sys.path if isinstance(entry, str)]
        arguments = {"path": path, "pipe": theirs, "watched": os.getpid(), **self._told}
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _BOOTSTRAP, json.dumps(arguments)],
            stdin=subprocess.DEVNULL,
            stdout=2,
            pass_fds=(theirs,),
        )
        os.close(theirs)
        faulthandler.enable(self._pipe)
        return self

    def __exit__(self, *_: object) -> None:
        faulthandler.enable(2)
        with suppress(BrokenPipeError):
            os.write(self._pipe, _GOODBYE)
        os.close(self._pipe)
        self._process.wait()


def main(pipe: int, watched: int, worker: str, log: str, hint: str) -> None:
    """Waits for the end of a process, and reports it unless it was in good order.

    Args:
        pipe: Descriptor of the pipe for the stacks.
        watched: The process.
        worker: What messages call it.
        log: The file for all stacks.
        hint: Shown last.
    """
    interrupted: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: interrupted.append(number))
    dump = _last_words(pipe, watched)
    if dump.endswith(_GOODBYE) or (interrupted and not dump):  # a second Ctrl-C quits at once
        return
    text = dump.decode(errors="replace").strip()
    with suppress(OSError), open(log, "a") as file:
        file.write(f"{text or 'the process ended without a word'}\n")
    if text:
        reason = text.partition("\n")[0]
        told = f"{reason}; it was here:\n{innermost_frames(text)}"
    else:
        told = "the process was killed, or an environment ended it with exit()"
    lines = [told, f"{worker} failed; its log is {os.path.relpath(log)}", hint]
    sys.stderr.write("\n".join(filter(None, lines)) + "\n")


def _last_words(pipe: int, watched: int) -> bytes:
    """What a process has written by its end, or until it has ended in good order."""
    os.set_blocking(pipe, False)
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    try:
        pidfd = os.pidfd_open(watched)
        poll.register(pidfd, select.POLLIN)
    except ProcessLookupError:
        pidfd = -1
    dump = b""
    while not dump.endswith(_GOODBYE):
        # Others may hold the pipe, forks of the process, so that its end alone tells.
        ended = pidfd < 0 or any(fd == pidfd for fd, _ in poll.poll())
        with suppress(BlockingIOError):
            while part := os.read(pipe, 1 << 16):
                dump += part
            ended = True
        if ended:
            break
    return dump
