"""Workers that are to be started: only their arrivals, starts and turns touch them."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator

from srl.launch.gang import Member

_REPORT_SECONDS = 60.0  # of a wait for a host, before that is reported


class WaitingWorkers:
    """A queue for each fragment, in the order of replicas, and workers with a later turn."""

    def __init__(self) -> None:
        self._later: list[tuple[float, int, Member]] = []  # a heap by time
        self._ready: dict[str, list[tuple[int, Member]]] = {}  # heaps by number
        self._numbers: set[int] = set()  # of all these
        self._next_report = 0.0

    def put(self, member: Member) -> None:
        """Adds a worker without a process, with its turn at `member.gang.start_at`."""
        if member.number not in self._numbers:
            self._numbers.add(member.number)
            heapq.heappush(self._later, (member.gang.start_at, member.number, member))

    def take(self, now: float, most: int, has_room: Callable[[str], bool]) -> Iterator[Member]:
        """Gives workers to start, while a fragment has room for another.

        Args:
            now: Of the monotonic clock.
            most: Of them at a time.
            has_room: Tells by a fragment whether one more can be started.
        """
        while self._later and self._later[0][0] <= now:
            _, number, member = heapq.heappop(self._later)
            member.waits_since, member.reported_waiting = now, False
            heapq.heappush(self._ready.setdefault(member.fragment, []), (number, member))
        for fragment, ready in self._ready.items():
            while ready and most and has_room(fragment):
                number, member = heapq.heappop(ready)
                self._numbers.remove(number)
                member.waits_since = 0.0
                if member.process is not None or member.done or member.gang.found:
                    continue  # it was found, or its gang was: what that lacks is known later
                if member.gang.start_at > now:  # its gang has died once more
                    self.put(member)
                    continue
                most -= 1
                yield member

    def unreported(self, now: float) -> list[str]:
        """Gives a line for each fragment with workers that have waited long, once for each."""
        if now < self._next_report:
            return []
        self._next_report = now + _REPORT_SECONDS / 12
        lines = []
        for fragment, ready in self._ready.items():
            # One that was found meanwhile waits no more, though it is here until its turn.
            late = [m for _, m in ready if 0 < m.waits_since < now - _REPORT_SECONDS]
            late = sorted((m for m in late if not m.reported_waiting), key=lambda m: m.number)
            for member in late:
                member.reported_waiting = True
            if late:
                more = f" and {len(late) - 1:,} more wait" if late[1:] else " waits"
                lines.append(f"{late[0].name}{more} for a host that has room for {fragment}")
        return lines
