"""A limit on the processor time of a process that works beside others."""

from __future__ import annotations

import os
import time
from contextlib import suppress

from srl.system.control_group import control_groups

_MOST_SAVED_SECONDS = 1.0  # of processor time that an idle process may save for later


def cores_granted() -> float:
    """Gives how many cores this process may use: those it is bound to, or fewer by a quota."""
    granted = float(len(os.sched_getaffinity(0)))
    for group in control_groups():
        with suppress(OSError, ValueError):
            quota, period = (group / "cpu.max").read_text().split()
            granted = min(granted, float(quota) / float(period))
    return granted


def whole_cores_granted() -> int:
    """Gives for how many busy threads there are cores; at least 1."""
    return max(1, int(cores_granted()))


class CpuLimit:
    """Makes a process rest, so that it takes no more than a share of the processors.

    The time of all its threads, from its start on, and of programs that it has started since it has
    the limit and that have ended, counts against the time that has passed on all cores.
    """

    def __init__(self, share: float, cores: float) -> None:
        self._rate = share * cores
        self._now, self._busy, self._debt = time.monotonic(), 0.0, 0.0
        self._programs = _program_seconds()  # until now

    def rest(self) -> None:
        """Waits until the share is kept again; to be called every few milliseconds of work."""
        now = time.monotonic()
        busy = time.process_time() + _program_seconds() - self._programs
        earned = self._rate * (now - self._now)
        self._debt = max(self._debt + busy - self._busy - earned, -_MOST_SAVED_SECONDS)
        self._now, self._busy = now, busy
        if self._debt > 0:
            time.sleep(self._debt / self._rate)


def _program_seconds() -> float:
    """The processor time of the programs that this process has started, and that have ended."""
    times = os.times()
    return times.children_user + times.children_system
