"""What a process can do about one that it started, and the other about its parent."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import re
import signal
import time
from contextlib import suppress

_DUMP_SIGNAL = signal.SIGRTMIN + 8  # unlikely to be used by a simulator
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG
_STATES = {
    "R": "running",
    "S": "sleeping",
    "D": "waiting for a device",
    "Z": "dead",
    "T": "stopped by a signal (SIGCONT makes it go on)",
    "t": "stopped by a debugger",
}


def die_with(parent: int) -> None:
    """Has the kernel kill this process, even a stopped one, when its parent ends.

    Args:
        parent: Process id, for the case that it has ended already.
    """
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent:
        raise SystemExit(f"process {parent}, which started this one, has ended")


def dump_stacks_into(fd: int) -> None:
    """Lets `python_stack` ask this process, and writes into `fd` what it may crash of."""
    faulthandler.enable(fd)
    faulthandler.register(_DUMP_SIGNAL, fd)


def python_stack(pid: int, dump: int, seconds: float = 1.0) -> str:
    """The Python stack of a process, if it can still tell; a stopped one cannot.

    Args:
        pid: Of a process that called `dump_stacks_into`.
        dump: A descriptor of the same file.
        seconds: To wait at most.
    """
    before = os.fstat(dump).st_size
    with suppress(ProcessLookupError):
        os.kill(pid, _DUMP_SIGNAL)
    deadline = time.monotonic() + seconds
    size = before
    while time.monotonic() < deadline:
        time.sleep(0.02)
        last, size = size, os.fstat(dump).st_size
        if size == last > before:
            break
    return os.pread(dump, size - before, before).decode(errors="replace").strip()


def crash_dump(dump: int) -> str:
    """All that was written; what a process that is dead now died of comes last."""
    return os.pread(dump, os.fstat(dump).st_size, 0).decode(errors="replace").strip()


_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep


def innermost_frames(dump: str) -> str:
    """The part of a faulthandler's dump that a simulator is to blame for, innermost frame first.

    These are the frames that srl called, of the thread that crashed, else of the main thread; where
    srl itself was innermost, the whole dump.
    """
    threads = re.findall(r"^(Current t|T)hread 0x.*\n((?:  .*\n?)*)", dump, re.MULTILINE)
    if not threads:
        return dump
    faulting = next((part for kind, part in threads if kind == "Current t"), threads[-1][1])
    frames: list[str] = []
    for line in faulting.splitlines():
        own = f'"{_PACKAGE}' in line and f'"{_PACKAGE}envs{os.sep}' not in line
        if own or not line.lstrip().startswith("File "):
            break
        frames.append(line)
    return "\n".join(frames) or dump


def process_state(pid: int) -> str:
    """Whether a process runs, sleeps or is stopped, in words."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            letter = file.read().rpartition(")")[2].split()[0]
    except OSError:
        return "gone"
    return _STATES.get(letter, letter)


def ending(code: int) -> str:
    """How a process ended, in words.

    Args:
        code: Its exit code; minus the signal's number where it was killed.
    """
    if code >= 0:
        return f"exited with code {code}"
    with suppress(ValueError):
        return f"was killed by {signal.Signals(-code).name}"
    return f"was killed by signal {-code}"
