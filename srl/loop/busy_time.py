"""Seconds of workers' threads by activity."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Mapping

ACTIVITIES: tuple[str, ...] = (
    "step",
    "skew",
    "act",
    "teach",
    "unroll",
    "inference wait",
    "send wait",
)
"""The activities of actors; "unroll" is all of a compiled one, "skew" the part of a step in which
the pool's processes wait for the slowest of them."""
SecondsByKind = Mapping[str, Mapping[str, float]]
"""Seconds by kind of worker and activity."""

_MOST = 1e9  # seconds that one report may hold of an activity


class BusyTime:
    """Seconds by activity of threads that do the same work; any thread may add to them.

    What the activities leave of the threads' time is "idle". Threads of other processes report
    their idle time with the rest.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seconds: dict[str, float] = defaultdict(float)
        self._threads = 0
        self._since = 0.0

    def begin(self, threads: int) -> None:
        """Counts the time of so many more threads of this process, from now on."""
        with self._lock:
            now = time.perf_counter()
            self._seconds["idle"] += self._threads * (now - self._since)
            self._threads, self._since = self._threads + threads, now

    def add(self, seconds: Mapping[str, float]) -> None:
        """Adds seconds by activity."""
        with self._lock:
            for activity, spent in seconds.items():
                self._seconds[activity] += spent

    def add_reported(self, seconds: Mapping[str, float]) -> None:
        """Adds what another process has reported, where it may be true: known activities alone.

        Idle time may be negative, see `take`.
        """
        true = {name: s for name, s in seconds.items() if name in ACTIVITIES and 0 <= s < _MOST}
        idle = seconds.get("idle", 0.0)
        self.add({**true, "idle": idle} if abs(idle) < _MOST else true)

    def take(self) -> dict[str, float]:
        """Gives the seconds by activity since the last call; empty if no thread has reported.

        A thread adds the seconds of an activity when that has ended, so that they may be more than
        has passed since the last call: then idle time is negative.
        """
        with self._lock:
            seconds, now = self._seconds, time.perf_counter()
            if self._threads:
                passed = self._threads * (now - self._since)
                idle = seconds.pop("idle", 0.0)
                seconds["idle"] = idle + passed - sum(seconds.values())
            if "idle" not in seconds:
                return {}
            self._seconds, self._since = defaultdict(float), now
            return dict(seconds)
