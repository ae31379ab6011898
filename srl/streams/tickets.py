"""Tickets: which unroll may begin, for which update, and what becomes of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

UNBOUNDED_AHEAD = 8
"""Versions ahead of the learner's that unrolls are begun for where staleness is unbounded: batches
take memory. Staleness then is about as much, and more only if parameters reach an actor late."""


class Ticket(NamedTuple):
    """The right to make one unroll of a batch."""

    batch: int
    """The number of the batch that it belongs to."""
    position: int
    """The columns of the batch that it fills: [position * b, (position + 1) * b)."""


class Counts(NamedTuple):
    """Counts of unrolls, each by itself: an error shows where the first is not the others' sum."""

    granted: int
    """Tickets given out, each for one unroll."""
    learned: int
    """Unrolls of batches that were learned from."""
    in_flight: int
    """Tickets that are held, and unrolls that were delivered and wait to be learned from."""
    lost: int
    """Tickets that were revoked."""


@dataclass
class _Batch:
    """A batch of which unrolls are made."""

    free: set[int]
    """Positions without a ticket."""
    missing: int
    """Unrolls that are not delivered."""
    learned: bool = False


class StalenessLimiter:
    """Grants tickets so that staleness stays within its bound.

    A pass of the loop has some batches, of `positions` unrolls each, and some calls of `learn`,
    each of which makes a version. The loop as it is written acts in each unroll with a certain
    version. A ticket is granted once a version is there that is at most `max_staleness` older, and
    its holder acts with no older one. At 0, or where positions are fixed, group g always fills
    position g, whatever order groups come in. Else a free position of the earliest batch is as good
    as another: an unroll holds all that it takes to learn from it, the memory before its first row
    and the row to bootstrap from. A group takes the unrolls of a pass in turn, also if it dies in
    between. Nothing here waits: `take` gives None and may be called again.
    """

    def __init__(
        self,
        positions: int,
        max_staleness: int | None = 0,
        *,
        unrolls: Sequence[int] = (0,),
        learns: int = 1,
        fixed: bool = False,
    ) -> None:
        """Begins with nothing granted.

        Args:
            positions: Unrolls in a batch.
            max_staleness: In versions; None for no bound.
            unrolls: For each batch of a pass, the calls of `learn` in it before its unrolls begin.
            learns: Calls of `learn` in a pass.
            fixed: Whether group g always fills position g: then no group is overtaken by more
                versions in an episode than in one unroll.
        """
        self._fixed = fixed or max_staleness == 0
        self.positions, self.max_staleness = positions, max_staleness
        self._unrolls, self._learns = tuple(unrolls), learns
        self._granted = self._learned = self._lost = 0
        self.begin(0)

    def begin(self, version: int) -> None:
        """Begins the first pass with a version other than 0; only before any ticket is granted."""
        self.version = self._first_version = version
        self._next = version * len(self._unrolls)
        self._holders: dict[int, Ticket] = {}
        self._turns: dict[int, int] = {}  # which of a pass' unrolls each group is at
        self._batches: dict[int, _Batch] = {}

    @property
    def counts(self) -> Counts:
        """Counts of unrolls, as they are now."""
        waiting = (self.positions - b.missing for b in self._batches.values() if not b.learned)
        in_flight = len(self._holders) + sum(waiting)
        return Counts(self._granted, self._learned, in_flight, self._lost)

    @property
    def ahead(self) -> int:
        """The most versions beyond the newest one that unrolls may be for."""
        return UNBOUNDED_AHEAD if self.max_staleness is None else self.max_staleness

    @property
    def batches(self) -> int:
        """The most batches at a time; batch n uses the memory of n modulo this."""
        passes = -(-self.ahead // self._learns) + 1
        return passes * len(self._unrolls)

    def unroll_of(self, batch: int) -> int:
        """Gives the number of the batch's unrolls in their pass."""
        return batch % len(self._unrolls)

    def batch_of(self, unroll: int) -> int:
        """The batch of an unroll of the present pass."""
        done = (self.version - self._first_version) // self._learns
        return (self._first_version + done) * len(self._unrolls) + unroll

    def _due(self, batch: int) -> int:
        """The version that acts in a batch where the loop runs as it is written."""
        passes, unroll = divmod(batch, len(self._unrolls))
        since = passes - self._first_version
        return self._first_version + since * self._learns + self._unrolls[unroll]

    def oldest_version(self, ticket: Ticket) -> int:
        """The oldest version that may act in the ticket's unroll."""
        return 0 if self.max_staleness is None else max(0, self._due(ticket.batch) - self.ahead)

    def take(self, group: int) -> Ticket | None:
        """Grants a ticket to a group that holds none; None where it has to wait."""
        assert group not in self._holders, f"group {group} holds {self._holders[group]}"
        batch = self._next + self._turns.setdefault(group, 0)
        while self._due(batch) <= self.version + self.ahead:
            begun = _Batch(set(range(self.positions)), self.positions)
            free = self._batches.setdefault(batch, begun).free
            own = group % self.positions
            if own in free or (free and not self._fixed):
                ticket = Ticket(batch, own if own in free else min(free))
                free.remove(ticket.position)
                self._holders[group] = ticket
                self._granted += 1
                return ticket
            batch += len(self._unrolls)
        return None

    def held(self, group: int) -> Ticket | None:
        """The group's ticket, if it has one."""
        return self._holders.get(group)

    def deliver(self, group: int, ticket: Ticket) -> bool:
        """Counts a finished unroll; False where its ticket is no longer the group's."""
        if self.held(group) != ticket:
            return False
        del self._holders[group]
        self._batches[ticket.batch].missing -= 1
        self._turns[group] = (self._turns[group] + 1) % len(self._unrolls)
        return True

    def expire(self, group: int) -> Ticket | None:
        """Revokes the group's ticket, to be granted anew; its unroll is lost."""
        ticket = self._holders.pop(group, None)
        if ticket is not None:
            self._batches[ticket.batch].free.add(ticket.position)
            self._lost += 1
        return ticket

    def complete(self, batch: int) -> bool:
        """Tells if every unroll of a batch is there."""
        return batch in self._batches and not self._batches[batch].missing

    def learn_from(self, batch: int) -> None:
        """Counts the unrolls of a batch as learned from, if they were not yet."""
        found = self._batches.get(batch)
        if found and not found.learned:
            found.learned = True
            self._learned += self.positions

    def learned(self) -> None:
        """The next version is there to act with; with the last of a pass its batches are over."""
        self.version += 1
        if (self.version - self._first_version) % self._learns:
            return
        for batch in range(self._next, self._next + len(self._unrolls)):
            assert self.complete(batch), f"batch {batch} still lacks unrolls"
            self.learn_from(batch)
            del self._batches[batch]
        self._next += len(self._unrolls)
