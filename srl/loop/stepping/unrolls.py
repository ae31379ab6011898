"""Destinations of an actor's unrolls, by the workers that collect them and learn from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import cycle

from srl.core.types import Tree
from srl.loop.stepping.group import Destination, Group
from srl.pools import Pool, Rows
from srl.streams.batch import Batch
from srl.streams.group_state import Start
from srl.streams.sample import Grant, SampleSource
from srl.streams.transport import Connection, Disconnected, opened


class OwnUnrolls:
    """Unrolls that are learned from where they are made."""

    def __init__(
        self,
        pool: Pool,
        batches: Sequence[Batch],
        position: int,
        positions: int,
        lesson: Callable[[], int] = lambda: 0,
    ) -> None:
        """Takes the batches of a pass, and this group's position among all that write into them."""
        self._lesson = lesson
        parts = [batch.columns(position, positions) for batch in batches]
        self._places = cycle(
            [
                Destination(k, pool.rows_over(part.timesteps), part, (0, 0))
                for k, part in enumerate(parts)
            ]
        )

    def next(self, group: Group) -> Destination:
        """The same memory in each pass, as the last pass' batches have been learned from."""
        return next(self._places)._replace(lesson=self._lesson())

    def deliver(self) -> None:
        """Does nothing: the unroll lies in its batch."""


class SentUnrolls:
    """Unrolls that go to a learner elsewhere, through a sample stream."""

    def __init__(
        self, connect: Callable[[], Connection], alive: Callable[[], None], *, lessons: int = 1
    ) -> None:
        """Opens the stream, and again when the learner has gone.

        `alive` is called now and then while there is nothing to do but wait; it may raise Stopped.
        """
        self._connect, self._alive, self._lessons = connect, alive, lessons
        self._open()

    def _open(self) -> None:
        self._rows: dict[int, Rows] = {}  # over the columns that the source gives, by their id
        begin = partial(SampleSource, alive=self._alive, lessons=self._lessons)
        _, self.source = opened(self._connect, begin)

    @property
    def start(self) -> Start:
        """The state with which the group begins."""
        return self.source.start

    def poll(self, state: Callable[[], Tree], seconds: float) -> Grant | None:
        """A ticket; None after so many seconds without one, or earlier.

        Args:
            state: Gives the group's state, if the learner wants it.
            seconds: The longest wait.

        Raises:
            Stopped: If the worker is to end.
        """
        self._alive()
        try:
            grant = self.source.take(seconds)
            if self.source.wants_state:
                self.source.give_state(state())
        except Disconnected:
            self.source.close()
            self._open()
            return None
        return grant

    def next(self, group: Group) -> Destination:
        """Waits for a ticket."""
        while (grant := self.poll(group.state, 1.0)) is None:
            pass
        columns = grant.columns
        if id(columns) not in self._rows:
            self._rows[id(columns)] = group.pool.rows_over(columns.timesteps)
        rows = self._rows[id(columns)]
        return Destination(grant.unroll, rows, columns, grant.oldest_version, grant.lesson)

    def deliver(self) -> None:
        """Hands the unroll over; if the learner has gone meanwhile, it is lost."""
        try:
            self.source.deliver()
        except Disconnected:
            return


class NoUnrolls:
    """Unrolls of a group for which another worker collects: nothing is delivered here."""

    def next(self, group: Group) -> Destination:
        """Two rows in turn."""
        if not hasattr(self, "_destination"):
            self._destination = Destination(None, group.pool.rows(2), None, (0, 0))
        return self._destination

    def deliver(self) -> None:
        """Does nothing: the other end has collected the unroll."""
