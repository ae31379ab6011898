"""Progress of what cannot report any, such as a compiler: by CPU time."""

from __future__ import annotations

import time
from collections.abc import Callable

_LEAST_SHARE = 0.02  # of a core: more than threads that only look, less than a busy machine gives


class CpuProgress:
    """Notices whether this process computes."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        cpu: Callable[[], float] = time.process_time,
    ) -> None:
        """Begins to measure.

        Args:
            clock: Seconds that have passed.
            cpu: Seconds that all threads have computed.
        """
        self._clock, self._cpu = clock, cpu
        self._seen = clock(), cpu()

    def computes(self) -> bool:
        """Tells if the process has computed since the last call."""
        (since, before), self._seen = self._seen, (self._clock(), self._cpu())
        now, used = self._seen
        return used - before > _LEAST_SHARE * (now - since)
