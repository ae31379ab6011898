"""A bound on the processor time of a process that does its work beside others'."""

from __future__ import annotations

import os
import time
from contextlib import suppress

from srl.control_group import control_groups

_SAVED_SECONDS = 1.0  # of processor time that may be made up for after a pause


def cores_granted() -> float:
    """How many cores this process may use: those it is bound to, or fewer by a quota."""
    granted = float(len(os.sched_getaffinity(0)))
    for group in control_groups():
        with suppress(OSError, ValueError):
            quota, period = (group / "cpu.max").read_text().split()
            granted = min(granted, float(quota) / float(period))
    return granted


class DutyCycle:
    """Makes a process rest, so that it takes no more than a share of the processors.

    What counts is the time of all its threads, from its start on, against the time that has passed
    on all cores.
    """

    def __init__(
        self,
        share: float,
        cores: float,
    ) -> None:
        """Sets the share.

        Args:
            share: Of the time of all cores; above 0.
            cores: How many.
        """
        self._rate = share * cores
        self._now, self._spent, self._debt = time.monotonic(), 0.0, 0.0

    def rest(self) -> None:
        """Waits until what was taken is paid for; to be called every few milliseconds of work."""
        now, spent = time.monotonic(), time.process_time()
        earned = self._rate * (now - self._now)
        self._debt = max(self._debt + spent - self._spent - earned, -_SAVED_SECONDS)
        self._now, self._spent = now, spent
        if self._debt > 0:
            time.sleep(self._debt / self._rate)
