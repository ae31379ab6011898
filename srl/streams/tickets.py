"""Tickets: which unroll may begin, for which update, and what becomes of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

UNBOUNDED_AHEAD = 8
"""Updates ahead of the learner that unrolls are begun for where staleness is unbounded, as batches
take memory. Staleness then is about as much, and more only if parameters reach an actor late."""


class Ticket(NamedTuple):
    """The right to make one unroll of a batch."""

    update: int
    """The update that will learn from it."""
    position: int
    """The columns of the batch that it fills: [position * b, (position + 1) * b)."""


@dataclass
class Counts:
    """Counts what has become of the unrolls; each granted ticket is one."""

    granted: int = 0
    learned: int = 0
    lost: int = 0

    @property
    def in_flight(self) -> int:
        """Unrolls being made, or waiting to be learned from."""
        return self.granted - self.learned - self.lost


class StalenessLimiter:
    """Grants tickets so that staleness stays within its bound.

    Update n learns from `positions` unrolls. A ticket for it is granted once version
    n - `max_staleness` exists, and its holder acts with no older one: so update n, which trains
    version n, never sees actions older than `max_staleness` versions. At 0 group g always fills
    position g, whatever order groups come in; else a free position of the earliest update is as
    good as another. Nothing here waits: `take` returns None and may be called again.
    """

    def __init__(self, positions: int, max_staleness: int | None = 0, version: int = 0) -> None:
        """Begins with nothing granted.

        Args:
            positions: Unrolls in a batch.
            max_staleness: In versions; None for no bound.
            version: Updates done.
        """
        self.positions, self.max_staleness, self.version = positions, max_staleness, version
        self.counts = Counts()
        self._holders: dict[int, Ticket] = {}
        self._free: dict[int, set[int]] = {}  # by update
        self._missing: dict[int, int] = {}  # unrolls not delivered, by update

    @property
    def ahead(self) -> int:
        """How many updates beyond the next one may have tickets out."""
        return UNBOUNDED_AHEAD if self.max_staleness is None else self.max_staleness

    @property
    def batches(self) -> int:
        """How many batches there can be at a time; update n uses the memory of n modulo this."""
        return self.ahead + 1

    def oldest_version(self, ticket: Ticket) -> int:
        """The oldest version that may act in the ticket's unroll."""
        return 0 if self.max_staleness is None else max(0, ticket.update - self.max_staleness)

    def take(self, group: int) -> Ticket | None:
        """Grants a ticket to a group that holds none; None where it has to wait."""
        assert group not in self._holders, f"group {group} holds {self._holders[group]}"
        for update in range(self.version, self.version + self.ahead + 1):
            free = self._free.setdefault(update, set(range(self.positions)))
            self._missing.setdefault(update, self.positions)
            own = group % self.positions
            if own not in free and (self.max_staleness == 0 or not free):
                continue
            ticket = Ticket(update, own if own in free else min(free))
            free.remove(ticket.position)
            self._holders[group] = ticket
            self.counts.granted += 1
            return ticket
        return None

    def held(self, group: int) -> Ticket | None:
        """The group's ticket, if it has one."""
        return self._holders.get(group)

    def holds(self, group: int, ticket: Ticket) -> bool:
        """Whether the ticket is the group's."""
        return self._holders.get(group) == ticket

    def deliver(self, group: int, ticket: Ticket) -> bool:
        """Counts a finished unroll; False where its ticket is no longer the group's."""
        if not self.holds(group, ticket):
            return False
        del self._holders[group]
        self._missing[ticket.update] -= 1
        return True

    def expire(self, group: int) -> Ticket | None:
        """Revokes the group's ticket, to be granted anew; its unroll is lost."""
        ticket = self._holders.pop(group, None)
        if ticket is not None:
            self._free[ticket.update].add(ticket.position)
            self.counts.lost += 1
        return ticket

    @property
    def complete(self) -> bool:
        """Whether every unroll of the next update was delivered."""
        return self.completes(self.version)

    def completes(self, update: int) -> bool:
        """Whether every unroll of an update was delivered."""
        return self._missing.get(update) == 0

    def learned(self) -> None:
        """Counts the next update as done: its version exists from now on."""
        assert self.complete, f"update {self.version} still lacks unrolls"
        del self._free[self.version], self._missing[self.version]
        self.counts.learned += self.positions
        self.version += 1
