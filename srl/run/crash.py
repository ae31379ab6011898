"""Reports the end of a training process that native code, such as an environment's, has aborted.

A process that dies of a signal can write its stack into one file and no more. A small process
beside it, which only waits, therefore writes the log and the terminal.
"""

from __future__ import annotations

import faulthandler
import os
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from srl.system.child_process import child_command, crash_place

_GOODBYE = b"\0the process ends in good order\0"


class CrashReporter:
    """While it is entered, an abrupt end of this process is reported."""

    def __init__(self, folder: Path, worker: str, hint: str) -> None:
        """Starts nothing yet.

        Args:
            folder: Of the run, whose log of the worker gets all stacks.
            worker: What messages call this process.
            hint: What to do, shown last; may be empty.
        """
        self._words = str(folder), worker, hint

    def __enter__(self) -> CrashReporter:
        theirs, self._pipe = os.pipe()
        self._process = subprocess.Popen(
            child_command(
                "srl.run.crash",
                str(theirs),
                str(os.getpid()),
                *self._words,
                ignores_interrupts=True,
            ),
            stdin=subprocess.DEVNULL,
            stdout=2,
            pass_fds=(theirs,),
        )
        os.close(theirs)
        faulthandler.enable(self._pipe)
        return self

    def expect_end(self) -> None:
        """Notes that the process is about to end, for a reason that is shown already."""
        faulthandler.enable(2)
        with suppress(BrokenPipeError):
            os.write(self._pipe, _GOODBYE)

    def __exit__(self, *_: object) -> None:
        self.expect_end()
        os.close(self._pipe)
        self._process.wait()


def main(argv: Sequence[str]) -> int:
    """Waits for the end of a process, and reports it unless it was in good order.

    Args:
        argv: The descriptor of the pipe for the stacks, the process, the folder of the run, what
            messages call the process, and a hint.

    Returns:
        The exit code.
    """
    pipe, watched, folder, worker, hint = argv
    interrupted: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: interrupted.append(number))
    dump = _last_words(int(pipe), int(watched))
    if dump.endswith(_GOODBYE) or (interrupted and not dump):  # a second Ctrl-C quits at once
        return 0
    _report(dump.decode(errors="replace").strip(), Path(folder), worker, hint)
    return 0


def _report(text: str, path: Path, worker: str, hint: str) -> None:
    from srl.run.folder import RunFolder
    from srl.run.status import write_outcome
    from srl.run.terminal import FAILED, KILLED, failed

    folder = RunFolder(path)
    with suppress(OSError), folder.log(worker).open("a") as file:
        file.write(f"{text or 'the process ended without a word'}\n")
    if text:
        reason = text.partition("\n")[0]
        shown = crash_place(text)
        with suppress(OSError):
            write_outcome(path, FAILED, reason)
    else:
        shown = KILLED
    lines = [shown, failed(folder, worker), hint]
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
