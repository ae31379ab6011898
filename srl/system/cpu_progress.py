"""Progress of what cannot report any, such as a compiler: by CPU time."""

from __future__ import annotations

import time

_LEAST_SHARE = 0.02  # of a core: more than threads that only look, less than a busy machine gives


class CpuProgress:
    """Notices whether this process computes."""

    def __init__(self) -> None:
        self._seen = time.monotonic(), time.process_time()

    def computes(self) -> bool:
        """Tells if the process has computed since the last call."""
        (since, before), self._seen = self._seen, (time.monotonic(), time.process_time())
        now, used = self._seen
        return used - before > _LEAST_SHARE * (now - since)
