"""Reports a training process that native code, such as an environment's, has aborted or blocked.

A process that dies of a signal can write its stack into one file and no more. A small process
beside it, which only waits, therefore writes the log and the terminal. It also notices native code
that holds Python's lock, while no thread of the training can report anything.
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

from srl.system.child_process import DUMP_SIGNAL, child_command, crash_place
from srl.system.supervised import process_state

_ROUND_SECONDS = 1.0
_GOODBYE = b"\0the process ends in good order\0"


class CrashReporter:
    """While it is entered, an abrupt end of this process is reported, and so are missing beats."""

    def __init__(self, folder: Path, worker: str, hint: str) -> None:
        """Starts nothing yet.

        Args:
            folder: Of the run, whose log of the worker gets all stacks.
            worker: What messages call this process.
            hint: What to do, shown last; may be empty.
        """
        self._arguments = str(folder), worker, hint

    def __enter__(self) -> CrashReporter:
        dump, self._pipe = os.pipe()
        beats, self._beats = os.pipe()
        os.set_blocking(self._beats, False)
        self._process = subprocess.Popen(
            child_command(
                "srl.run.crash",
                str(dump),
                str(beats),
                str(os.getpid()),
                *self._arguments,
                ignores_signals=True,
            ),
            stdin=subprocess.DEVNULL,
            stdout=2,
            pass_fds=(dump, beats),
        )
        os.close(dump)
        os.close(beats)
        faulthandler.enable(self._pipe)
        faulthandler.register(DUMP_SIGNAL, 2)
        return self

    def beat(self, limit_seconds: float) -> None:
        """Shows that Python code can run here.

        Args:
            limit_seconds: The time without another beat after which the stacks of all threads are
                written to the terminal. It counts only while neither process is stopped.
        """
        with suppress(BrokenPipeError, BlockingIOError):
            os.write(self._beats, b"%d\n" % limit_seconds)

    def expect_end(self) -> None:
        """Notes that the process is about to end, for a reason that is shown already."""
        faulthandler.enable(2)
        with suppress(BrokenPipeError):
            os.write(self._pipe, _GOODBYE)

    def __exit__(self, *_: object) -> None:
        self.expect_end()
        faulthandler.unregister(DUMP_SIGNAL)
        os.close(self._pipe)
        os.close(self._beats)
        self._process.wait()


def main(argv: Sequence[str]) -> int:
    """Waits for the end of a process, and reports it unless it was in good order.

    Args:
        argv: The descriptors of the pipes for the stacks and for the beats, the process, the folder
            of the run, what messages call the process, and a hint.

    Returns:
        The exit code.
    """
    pipe, beats, watched, folder, worker, hint = argv
    interrupted: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: interrupted.append(number))
    dump = _wait(int(pipe), int(beats), int(watched), worker)
    if dump.endswith(_GOODBYE) or (interrupted and not dump):  # a second Ctrl-C quits at once
        return 0
    _report(dump.decode(errors="replace").strip(), Path(folder), worker, hint)
    return 0


def _report(text: str, path: Path, worker: str, hint: str) -> None:
    from srl.record.run_record import RunFolder
    from srl.run.status import write_outcome
    from srl.run.terminal import FAILED, KILLED, failed

    folder = RunFolder(path)
    with suppress(OSError), folder.log(worker).open("a") as file:
        file.write(f"{text or 'the process ended without a stack'}\n")
    if text:
        reason = text.partition("\n")[0]
        shown = crash_place(text)
        with suppress(OSError):
            write_outcome(path, FAILED, reason)
    else:
        shown = KILLED
    lines = [shown, failed(folder, worker), hint]
    sys.stderr.write("\n".join(filter(None, lines)) + "\n")


def _wait(pipe: int, beats: int, watched: int, worker: str) -> bytes:
    """Returns what a process has written by its end, or until it has ended in good order."""
    os.set_blocking(pipe, False)
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    poll.register(beats, select.POLLIN)
    try:
        pidfd = os.pidfd_open(watched)
        poll.register(pidfd, select.POLLIN)
    except ProcessLookupError:
        pidfd = -1
    dump, silent_rounds, limit_seconds = b"", 0, 0
    while not dump.endswith(_GOODBYE):
        ready = [fd for fd, _ in poll.poll(1000 * _ROUND_SECONDS)]
        if beats in ready:
            silent_rounds = 0
            if lines := os.read(beats, 1 << 16).splitlines():
                limit_seconds = int(lines[-1])
            else:
                poll.unregister(beats)
        elif not ready and limit_seconds and not process_state(watched).startswith("stopped"):
            # Rounds do not go on while this process is stopped too, as the clock does.
            silent_rounds += 1
            if silent_rounds == round(limit_seconds / _ROUND_SECONDS):
                sys.stderr.write(
                    f"{worker} has run no Python code for {limit_seconds} s; native code may hold "
                    "Python's lock:\n"
                )
                sys.stderr.flush()
                with suppress(ProcessLookupError):
                    os.kill(watched, DUMP_SIGNAL)
        # Forks of the process may hold the pipe too, so that only the process' end counts.
        ended = pidfd < 0 or pidfd in ready
        with suppress(BlockingIOError):
            while part := os.read(pipe, 1 << 16):
                dump += part
            ended = True
        if ended:
            break
    return dump
