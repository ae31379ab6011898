"""Processes that environments start, such as simulators: none outlives those that step them.

A process that is to step environments is started as the leader of a group and with a mark in its
environment variables. All that it starts inherits the mark, also through shells and new sessions,
and by it the starter finds and ends what is left, however the marked process has ended. The
outermost process has nobody above it: a guard, a small process, waits for its end and does the
same. Environments that are stepped in the outermost process itself cannot be marked; what these
start is noted, and the guard has the list.
"""

from __future__ import annotations

import os
import secrets
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Literal, NamedTuple

from srl.system.child_process import child_command

VARIABLE = "SRL_STARTED_BY"
"""The environment variable with the mark: names of the starters, outermost first, each before /."""
_END_SECONDS = 2.0  # that ending processes may take, some of which may be starting others
_ROUND_SECONDS = 0.01
_STARTS = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "os.spawn"}
"""Audit events of Python, each before a process is started."""


Kind = Literal["leader", "gone", "known"]
"""Messages to a guard: a marked process by which a group is known, its end, another process."""


class Known(NamedTuple):
    """A process, distinguished from later ones of the same number."""

    pid: int
    began: int
    """Clock ticks from the machine's start to the process'."""


class Offspring:
    """All that one process or several will start for environments."""

    def __init__(self, within: Offspring | None = None) -> None:
        """Makes a new mark, by default within that of this process, whose guard is started."""
        above = _own_mark() if within is None else within._mark
        self._mark, self._within = f"{above}{secrets.token_hex(8)}/", within
        self._leaders: set[int] = set()

    def start(
        self, command: Sequence[str], environment: Mapping[str, str] | None = None, **options: Any
    ) -> subprocess.Popen[bytes]:
        """Starts a process that is to step environments; `end` follows before it is waited for."""
        variables = {**os.environ, **(environment or {}), VARIABLE: self._mark}
        own = _own()
        # What is started without these variables is known by its session, which is the outermost
        # process' that has a mark, or by its group.
        options |= {"process_group": 0} if own is None else {"start_new_session": True}
        process: subprocess.Popen[Any] = subprocess.Popen(command, env=variables, **options)
        _own_leaders.add(process.pid)
        for each in self._and_around():
            each._leaders.add(process.pid)
        if own is not None:
            own.note("leader", process.pid)
        return process

    def end(self) -> None:
        """Kills the processes and all that they have left, and waits until that is gone.

        Processes that those around it have ended cost no look, which reads all of /proc.
        """
        leaders = set.intersection(*(each._leaders for each in self._and_around()))
        if not leaders:
            return
        _end_all(self._mark, leaders, ())
        _own_leaders.difference_update(leaders)
        for each in self._and_around():
            each._leaders -= leaders
        if (own := _own()) is not None:
            for leader in leaders:
                own.note("gone", leader)

    def _and_around(self) -> Iterator[Offspring]:
        yield self
        if self._within is not None:
            yield from self._within._and_around()


def _end_all(mark: str, leaders: Collection[int], known: Collection[Known]) -> None:
    deadline = time.monotonic() + _END_SECONDS
    while found := _found(mark, leaders, known):  # which may take long among many processes
        for pid in found:
            with suppress(OSError):  # it has just ended, or is another user's
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() >= deadline:
            break
        time.sleep(_ROUND_SECONDS)


class _Row(NamedTuple):
    parent: int
    group: int
    session: int
    began: int


def _processes() -> dict[int, _Row]:
    """All processes that have not ended."""
    rows: dict[int, _Row] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (row := _row(int(name))):
            rows[int(name)] = row
    return rows


def _row(pid: int) -> _Row | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    if fields[0] in b"ZX":
        return None
    return _Row(*(int(fields[k]) for k in (1, 2, 3, 19)))


def _found(mark: str, leaders: Collection[int], known: Collection[Known]) -> set[int]:
    """Running processes, but for this one, with a mark, of groups and those known.

    Args:
        mark: The beginning of their marks; may be empty.
        leaders: Of sessions and groups; not waited for yet, so that these have no other meaning.
        known: Further ones.
    """
    wanted = f"\0{VARIABLE}={mark}".encode()
    rows = _processes()
    rows.pop(os.getpid(), None)
    running = {pid for pid, began in known if pid in rows and rows[pid].began == began}
    leaders = running.union(leaders)
    found = {pid for pid, row in rows.items() if not leaders.isdisjoint((row.group, row.session))}
    found |= running
    if mark:
        found |= {pid for pid in rows.keys() - found if wanted in b"\0" + _environment(pid)}
    more = found
    while more:
        more = {pid for pid, row in rows.items() if row.parent in more} - found
        found |= more
    return found


def _environment(pid: int) -> bytes:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read()
    except OSError:  # of another user, or it has just ended
        return b""


# ---- the outermost process and its guard ----


class _Outermost:
    """The mark and the guard of a process that no other process of srl's has started."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.mark = f"{secrets.token_hex(8)}/"
        read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._guard = subprocess.Popen(
            child_command(
                __name__,
                str(self.pid),
                self.mark,
                ignores_signals=True,
            ),
            stdin=read,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,  # who reads that of this process waits for its end
            start_new_session=True,
        )
        self._guard.returncode = 0  # it outlives this process, which need not wait for it
        os.close(read)

    def note(self, kind: Kind, *numbers: int) -> None:
        with suppress(OSError):
            os.write(self._write, f"{kind} {' '.join(map(str, numbers))}\n".encode())


_outermost: _Outermost | None = None
_making = threading.Lock()


def _own() -> _Outermost | None:
    """Gives this process' own mark and guard; None for a process that was started with a mark."""
    global _outermost
    if VARIABLE in os.environ:
        return None
    with _making:
        if _outermost is None or _outermost.pid != os.getpid():  # in a fork it is the parent's
            _outermost = _Outermost()
        return _outermost


def _own_mark() -> str:
    own = _own()
    return os.environ[VARIABLE] if own is None else own.mark


def main(arguments: Sequence[str]) -> int:
    """Waits for the end of a process and ends all that it has started for environments.

    Args:
        arguments: Its process id, which is this one's parent, and the mark. The standard input has
            its notes.

    Returns:
        The exit code.
    """
    watched, mark = int(arguments[0]), arguments[1]
    text = b""
    with suppress(ProcessLookupError):
        ended, poll = os.pidfd_open(watched), select.poll()
        poll.register(ended, select.POLLIN)
        poll.register(0, select.POLLIN)
        while os.getppid() == watched and not any(fd == ended for fd, _ in poll.poll()):
            part = os.read(0, 1 << 16)
            text += part
            if not part:
                poll.unregister(0)
    os.set_blocking(0, False)
    with suppress(BlockingIOError):
        while part := os.read(0, 1 << 16):
            text += part
    _end_all(mark, *_noted(text.decode()))
    return 0


def _noted(text: str) -> tuple[set[int], set[Known]]:
    """The leaders and the known processes of a guard's notes."""
    leaders: set[int] = set()
    known: set[Known] = set()
    for line in text.splitlines():
        kind, *numbers = line.split()
        if kind == "known":
            known.add(Known(*map(int, numbers)))
        else:
            (leaders.add if kind == "leader" else leaders.discard)(int(numbers[0]))
    return leaders, known


# ---- environments that are stepped in this process ----

_own_leaders: set[int] = set()
"""Processes that srl itself has started: no environment has."""
_stepping: dict[int, StartedHere] = {}
"""The objects that an environment's call is within, by thread."""
_hooks: list[bool] = []


class StartedHere:
    """Processes that environments start in this process: entered around all their calls.

    It takes part in nothing but starts of processes, which Python reports.
    """

    def __init__(self) -> None:
        self._known: set[Known] = set()
        self._before: set[Known] | None = None
        self._outer: StartedHere | None = None
        if not _hooks:
            _hooks.append(True)
            sys.addaudithook(_on_event)  # which cannot be removed again

    def __enter__(self) -> StartedHere:
        thread = threading.get_ident()
        self._outer = _stepping.get(thread)  # of an environment that itself steps others
        _stepping[thread] = self
        return self

    def __exit__(self, *_: object) -> None:
        thread = threading.get_ident()
        if self._outer is None:
            del _stepping[thread]
        else:
            _stepping[thread] = self._outer
        if self._before is not None:
            self._note()

    def _note(self) -> None:
        before, self._before = self._before or set(), None
        new = {known for known in _children() - before if known.pid not in _own_leaders}
        self._known |= new
        own = _own()
        if own is not None:
            for known in new:
                own.note("known", *known)

    @contextmanager
    def making(self) -> Iterator[None]:
        """Enters this while environments are made, and ends what they started if that fails."""
        try:
            with self:
                self.on_start()
                yield
        except BaseException:
            self.end()
            raise

    def on_start(self) -> None:
        """Notes that an environment is about to start a process, or might without a report of it.

        Python reports no start by multiprocessing's `spawn` and `forkserver`, nor one by C code.
        """
        if self._before is None:
            self._before = _children()

    def end(self) -> None:
        """Kills what is left of all that was started, and waits until it is gone."""
        if self._before is not None:
            self._note()
        if self._known:
            _end_all("", (), self._known)


def _children() -> set[Known]:
    own = os.getpid()
    return {Known(pid, row.began) for pid, row in _processes().items() if row.parent == own}


def _on_event(event: str, _: object) -> None:
    if _stepping and event in _STARTS and (here := _stepping.get(threading.get_ident())):
        here.on_start()
