"""A limit on the CPU time of a process that works beside others."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from srl.control_group import OWN, ROOT, control_groups

_SAVED_SECONDS = 1.0  # of CPU time that may be made up for after a pause


def cores_granted(root: Path = ROOT, own: Path = OWN) -> float:
    """How many cores this process may use: those it is bound to, or fewer by a quota.

    Args:
        root: Where control groups are mounted (version 2).
        own: Where the kernel lists those of this process.
    """
    granted = float(len(os.sched_getaffinity(0)))
    for group in control_groups(root=root, own=own):
        with suppress(OSError, ValueError):
            quota, period = (group / "cpu.max").read_text().split()
            granted = min(granted, float(quota) / float(period))
    return granted


class CPULimit:
    """Makes a process rest, so it takes no more than a share of the cores.

    What counts is the time of all its threads, from its start on, against the time that has passed
    on all cores.
    """

    def __init__(
        self,
        share: float,
        cores: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        busy: Callable[[], float] = time.process_time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Takes the share, and where time comes from.

        Args:
            share: Of the time of all cores; above 0.
            cores: How many.
            clock: Seconds that have passed.
            busy: Seconds of CPU time that this process has taken.
            sleep: Waits so many seconds.
        """
        self._rate = share * cores
        self._clock, self._busy_seconds, self._sleep = clock, busy, sleep
        self._now, self._busy, self._debt = clock(), 0.0, 0.0

    def rest(self) -> None:
        """Waits until what was taken is paid for; to be called every few milliseconds of work."""
        now, busy = self._clock(), self._busy_seconds()
        earned = self._rate * (now - self._now)
        self._debt = max(self._debt + busy - self._busy - earned, -_SAVED_SECONDS)
        self._now, self._busy = now, busy
        if self._debt > 0:
            self._sleep(self._debt / self._rate)
