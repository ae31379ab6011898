"""What an actor does with its unrolls, by where they are collected and learned from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from srl.pools import Pool, Rows
from srl.streams.batch import Batch
from srl.streams.group_state import Start
from srl.streams.sample import SampleSource
from srl.streams.transport import Connection, Disconnected, opened
from srl.workers.actor import Actor, Place


class OwnUnrolls:
    """Unrolls that are learned from where they are made."""

    def __init__(self, pool: Pool, batch: Batch, position: int, positions: int) -> None:
        """Takes the memory of all groups' batch, and which part of it is this group's."""
        columns = batch.columns(position, positions)
        self._place = Place(pool.rows_over(columns.timesteps), columns, (0, 0))
        self._batch = batch if position == positions - 1 else None

    def next(self, actor: Actor) -> Place:
        """The same memory each time: nobody reads it any more."""
        return self._place

    def deliver(self, actor: Actor) -> Batch | None:
        """Gives the batch once every group has written its part."""
        return self._batch


class SentUnrolls:
    """Unrolls that go to a learner elsewhere, through a sample stream."""

    def __init__(self, connect: Callable[[], Connection], alive: Callable[[], None]) -> None:
        """Opens the stream.

        Args:
            connect: Gives a connection to the group's learner; called again when that has gone.
            alive: Called now and then while there is nothing to do but wait; may raise Stopped.
        """
        self._connect, self._alive = connect, alive
        self._open()

    def _open(self) -> None:
        self._rows: dict[int, Rows] = {}  # over each columns that the source gives
        begin = partial(SampleSource, alive=self._alive)
        _, self.source = opened(self._connect, begin)

    @property
    def start(self) -> Start:
        """How the group begins."""
        return self.source.start

    def next(self, actor: Actor) -> Place:
        """Waits for a ticket."""
        while True:
            self._alive()
            try:
                grant = self.source.take(actor.state, 1.0)
            except Disconnected:
                self.source.close()
                self._open()
                continue
            if grant is not None:
                break
        columns = grant.columns
        if id(columns) not in self._rows:
            self._rows[id(columns)] = actor.pool.rows_over(columns.timesteps)
        return Place(self._rows[id(columns)], columns, grant.oldest_version)

    def deliver(self, actor: Actor) -> None:
        """Hands the unroll over; if the learner has gone meanwhile, it is lost."""
        try:
            self.source.deliver(list(actor.spent().values()))
        except Disconnected:
            return


class NoUnrolls:
    """For a group whose steps are collected by who acts for it."""

    def __init__(self, tell_spent: Callable[[Sequence[float]], None]) -> None:
        """Takes where to tell what the group's time went to."""
        self._tell_spent = tell_spent

    def next(self, actor: Actor) -> Place:
        """Two rows in turn."""
        if not hasattr(self, "_place"):
            self._place = Place(actor.pool.rows(2), None, (0, 0))
        return self._place

    def deliver(self, actor: Actor) -> None:
        """Nothing is to be delivered but what the time went to."""
        self._tell_spent(list(actor.spent().values()))
