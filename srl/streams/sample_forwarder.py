"""A policy worker's ends of sample streams: it writes unrolls and sends them to the learners."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

from srl.core.types import Tree
from srl.streams.group_state import Start
from srl.streams.sample import Grant, SampleSource
from srl.streams.tickets import Ticket
from srl.streams.transport.interface import Connection, Disconnected, opened


class SampleForwarder:
    """A sample stream for each group that a policy worker collects for.

    It has the calls of `SampleSink` for groups in the learner's process. A learner that goes away
    is connected to again, and the unrolls that were being written are lost.
    """

    def __init__(
        self,
        groups: range,
        connect: Callable[[int], Connection],
        alive: Callable[[], None] = lambda: None,
    ) -> None:
        """Connects nothing yet.

        `connect` may wait for a group's learner; `alive` is called about twice a second during a
        wait, and may raise Stopped.
        """
        self.groups = groups
        self.on_room: Callable[[], None] = lambda: None
        """Never called: `awaited` gives what to wait for."""
        self._connect, self._alive = connect, alive
        self._sources: dict[int, SampleSource] = {}
        self._asking: set[int] = set()  # groups that wait for a ticket

    def join(self, group: int) -> Start:
        """Opens a group's stream, as soon as its learner is ready, and gives how it begins."""
        self.leave(group)
        begin = partial(SampleSource, alive=self._alive)
        _, source = opened(partial(self._connect, group), begin)
        self._sources[group] = source
        return source.start

    def leave(self, group: int) -> None:
        """Closes a group's stream; a ticket that it holds is lost."""
        self._asking.discard(group)
        if (source := self._sources.pop(group, None)) is not None:
            source.close()

    def take(self, group: int) -> Grant | None:
        """A ticket, if one has come; else it is asked for."""
        grant = None
        try:
            grant = self._sources[group].take(0.0)
        except Disconnected:
            self.join(group)  # the ticket is asked for in the next round
        (self._asking.add if grant is None else self._asking.discard)(group)
        return grant

    def deliver(self, group: int, ticket: Ticket) -> None:
        """Sends an unroll that was written into its columns; it is lost if the learner has gone."""
        with suppress(Disconnected):
            self._sources[group].deliver()

    def wants_state(self, group: int) -> bool:
        """Tells if the learner wants the group's state before its next unroll."""
        return self._sources[group].wants_state

    def give_state(self, group: int, state: Tree) -> None:
        """Sends the group's state, if its learner still wants it."""
        with suppress(Disconnected):
            self._sources[group].give_state(state)

    def awaited(self) -> Iterator[int]:
        """Descriptors that are readable when tickets may have come."""
        return (self._sources[group].fileno() for group in self._asking)

    def close(self) -> None:
        """Ends all streams."""
        for group in tuple(self._sources):
            self.leave(group)
