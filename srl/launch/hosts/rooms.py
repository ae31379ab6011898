"""The free slots of a run's hosts, by fragment: found without a look at all hosts."""

from __future__ import annotations

import heapq
import itertools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from srl.launch.hosts.remote_hosts import Host


class Room:
    """The hosts of one fragment, the emptiest first; of equals the one that changed first."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Host]] = []  # with entries that are out of date
        self._count = itertools.count()

    def note(self, host: Host) -> None:
        """Takes a host, or a change of its slots; to be called at each."""
        if host.free > 0:
            heapq.heappush(self._heap, (host.load, next(self._count), host))

    def emptiest(self) -> Host | None:
        """The host with the smallest load among those with a free slot; None without one."""
        while self._heap:
            load, _, host = self._heap[0]
            if host.free > 0 and host.load == load:
                return host
            heapq.heappop(self._heap)
        return None
