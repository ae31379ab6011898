"""Child processes under supervision: one start, one end and one stack after a crash for all."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import IO, Any, NamedTuple

from srl.system.child_process import DUMP_SIGNAL, child_command
from srl.system.started import Offspring

_ABSENT_SECONDS = 5.0
_STATES = {
    "R": "running",
    "S": "sleeping",
    "D": "waiting for a device",
    "Z": "dead",
    "T": "stopped by a signal (SIGCONT makes it go on)",
    "t": "stopped by a debugger",
}


class Ended(NamedTuple):
    """The end of a process."""

    code: int  # minus the signal's number where it was killed
    how: str  # to follow the process' name
    dump: str  # its stacks since the last call of `stack`, if it failed; the crash comes last


class Child:
    """A process of srl's and all that it starts: a group that Ctrl-C does not reach."""

    def __init__(
        self,
        module: str,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        within: Offspring | None = None,
        stdout: IO[Any] | int | None = None,
        stderr: IO[Any] | int | None = None,
        pass_fds: Sequence[int] = (),
        **command: Any,
    ) -> None:
        """Starts it; its standard input is empty.

        Args:
            module: As for `child_command`.
            *arguments: Likewise.
            environment: Variables in addition to those of this process.
            within: The offspring of several processes, of which this is one.
            stdout: Of the process; this one's by default.
            stderr: Likewise.
            pass_fds: Descriptors that it inherits.
            **command: Options of `child_command`.

        Raises:
            OSError: If the machine has no room for a process.
        """
        self._offspring = Offspring(within)
        with ExitStack() as undo:
            self._dump = os.memfd_create("srl-dump", os.MFD_CLOEXEC)
            undo.callback(os.close, self._dump)
            self._process = self._offspring.start(
                child_command(module, *arguments, dump=self._dump, **command),
                environment,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                pass_fds=(self._dump, *pass_fds),
            )
            undo.callback(self._process.wait)
            undo.callback(self._offspring.end)
            self.pid = self._process.pid
            self.pidfd = os.pidfd_open(self.pid)
            """A descriptor that is readable once the process has ended; `reap` closes it."""
            undo.pop_all()
        self._ended: Ended | None = None
        self._shown = 0  # bytes of the dump that `stack` has given

    @property
    def ended(self) -> bool:
        """True if the process has ended; `reap` must follow."""
        looked = os.WEXITED | os.WNOWAIT | os.WNOHANG
        return os.waitid(os.P_PID, self.pid, looked) is not None

    def wait(self, seconds: float) -> bool:
        """Waits for at most so long; tells if the process has ended."""
        poll = select.poll()
        poll.register(self.pidfd, select.POLLIN)
        return bool(poll.poll(1000 * max(seconds, 0.0)))

    def state(self) -> str:
        """Describes whether it runs, sleeps or is stopped."""
        return process_state(self.pid)

    def stack(self, seconds: float = 1.0) -> str:
        """Its Python stacks, if it can write them within so long; a stopped process cannot."""
        before = size = os.fstat(self._dump).st_size
        with suppress(ProcessLookupError):
            os.kill(self.pid, DUMP_SIGNAL)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            time.sleep(0.02)
            last, size = size, os.fstat(self._dump).st_size
            if size == last > before:
                break
        self._shown = size
        return self._dumped(before, size)

    def _dumped(self, begin: int, end: int) -> str:
        return os.pread(self._dump, end - begin, begin).decode(errors="replace").strip()

    def kill(self) -> None:
        """Kills the process and its group, stopped or not; it stays to be reaped."""
        if self._process.returncode is None:  # else the number may be another's by now
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    def end(self) -> None:
        """Kills the process and all that it has started, and waits until that is gone."""
        self._offspring.end()

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        if self._ended is None:
            self.end()
            self.reap()

    def reap(self) -> Ended:
        """Waits for its end, ends what it left running, and frees everything."""
        if self._ended is None:
            self._ended = self._reaped()
        return self._ended

    def _reaped(self) -> Ended:
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        self._offspring.end()
        code = self._process.wait()
        dump = self._dumped(self._shown, os.fstat(self._dump).st_size) if code else ""
        os.close(self._dump)
        os.close(self.pidfd)
        return Ended(code, _ending(code), dump)


class Presence:
    """Notices that this process itself was stopped: then other processes were not silent."""

    def __init__(self, most_seconds: float = _ABSENT_SECONDS) -> None:
        """Takes the longest time that this process lets pass between two looks, and begins."""
        self._most, self._last = most_seconds, time.monotonic()

    def was_stopped(self) -> bool:
        """Looks; tells if more time has passed since the last look."""
        now, last = time.monotonic(), self._last
        self._last = now
        return now - last > self._most


def process_state(pid: int) -> str:
    """Describes whether a process runs, sleeps or is stopped."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            letter = file.read().rpartition(")")[2].split()[0]
    except OSError:
        return "gone"
    return _STATES.get(letter, letter)


def _ending(code: int) -> str:
    if code >= 0:
        return f"exited with code {code}"
    names = {each.value: each.name for each in signal.Signals}
    return f"was killed by {names.get(-code, f'signal {-code}')}"
