"""The sample stream: unrolls on their way from `collect` to `learn`, each with a ticket.

A group connects and sends OPEN; HANDSHAKE gives it the layout of an unroll. From then on it asks
for a ticket (TAKE), gets it when an unroll may begin (TICKET), writes the unroll, sends DELIVER.
Within a host the ticket's columns are shared memory and messages are short; between hosts DELIVER
carries the unroll. A group that disconnects loses its ticket. This is a group's end; the learner's
is `srl.streams.sample_sink`.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from srl.core.types import Tree
from srl.pools.timestep_arrays import aligned_zeros
from srl.streams.batch import Batch, batches_of, widened
from srl.streams.group_state import START, pack, receive_start
from srl.streams.layout import Layout
from srl.streams.tickets import Ticket
from srl.streams.transport.interface import Connection
from srl.streams.transport.message import Message, Refused, demand, text_of
from srl.streams.transport.schema import COUNT, NUMBER, VERSION, Fields, check
from srl.system.shared_memory import SharedMemory

UNROLL_BYTES = 1 << 30
"""The most bytes that a group's unroll may have."""


class SampleMessage(IntEnum):
    """The kinds of messages on a sample stream."""

    OPEN = 10
    HANDSHAKE = 11
    """Counts: batches, positions, and those of START. Body: the layout of a group's
    unrolls of a pass. Descriptors: the memory of the batches, within a host."""
    RESTORE = 12
    """Body: a saved state to continue from."""
    TAKE = 13
    TICKET = 14
    """Counts: batch, position, lesson. Version: the oldest that may act."""
    DELIVER = 15
    """Counts: batch, position. Body: the unroll, between hosts."""
    WANT_STATE = 16
    STATE = 17
    """Body: the group's state between two unrolls."""


_TICKET = {"batch": COUNT, "position": NUMBER}
FIELDS = {
    SampleMessage.OPEN: Fields(),
    SampleMessage.HANDSHAKE: Fields(
        {"batches": NUMBER[1:], "positions": NUMBER[1:], **START}, body=True, fds=(0, 1)
    ),
    SampleMessage.RESTORE: Fields(body=True),
    SampleMessage.TAKE: Fields(),
    SampleMessage.TICKET: Fields({**_TICKET, "lesson": COUNT}, version=VERSION),
    SampleMessage.DELIVER: Fields(_TICKET, body=True),
    SampleMessage.WANT_STATE: Fields(),
    SampleMessage.STATE: Fields(body=True),
}


class Grant(NamedTuple):
    """A ticket, and what its holder may do."""

    ticket: Ticket
    unroll: int
    """The number of the unroll in its pass."""
    columns: Batch
    """The place for the unroll; the same object for the same memory."""
    oldest_version: tuple[int, int]
    lesson: int = 0
    """The curriculum's lesson that the unroll is of."""


class SampleSource:
    """A group's end."""

    def __init__(
        self,
        connection: Connection,
        alive: Callable[[], None] = lambda: None,
        *,
        lessons: int = 1,
    ) -> None:
        """Opens the stream, which takes as long as the learner needs to begin.

        Args:
            connection: To the learner, as the group.
            alive: Called about twice a second meanwhile; may raise.
            lessons: Their number in the group's curriculum.

        Raises:
            Disconnected: If the learner has gone.
        """
        self._connection, self._lessons = connection, lessons
        self.sequence = 0
        """The number of delivered unrolls."""
        connection.send(Message(SampleMessage.OPEN))
        handshake = check(connection.expect(SampleMessage.HANDSHAKE, alive), FIELDS)
        batches, self._positions = handshake.counts[:2]
        layout = Layout.from_json(text_of(handshake), UNROLL_BYTES)
        self.remote = not handshake.fds
        """True if unrolls cross as messages."""
        unrolls = batches_of(layout.views(layout.empty()))
        self._unrolls = len(unrolls)
        if self.remote:
            layouts = [Layout.of(unroll) for unroll in unrolls]
            # Zeros, as pools leave alone what their environments do not have.
            self._bodies = [aligned_zeros((layout.size,), "uint8") for layout in layouts]
            self._own = [
                Batch.from_tree(layout.views(body))
                for layout, body in zip(layouts, self._bodies, strict=True)
            ]
        else:
            wide = Layout.of(widened(unrolls, self._positions))
            memory = SharedMemory.attach(handshake.fds[0], batches // self._unrolls * wide.size)
            memory.close()  # it stays mapped
            self._batches = batches_in(memory, wide)
        self._columns: dict[tuple[int, int], Batch] = {}
        self.start = receive_start(connection, handshake, SampleMessage.RESTORE, alive)
        """The start of the group."""
        self.wants_state = False
        """True while the learner waits for the group's state, which `give_state` sends."""
        self.asked = False
        """True while a ticket that was asked for has not come."""

    def take(self, timeout: float | None = None) -> Grant | None:
        """Waits until an unroll may begin.

        Args:
            timeout: Seconds, after which, or earlier, the result may be None; the ticket is still
                asked for then. Earlier where the learner wants the group's state first.

        Raises:
            Disconnected: If the learner has gone.
            Refused: If the ticket is for a position or a lesson that there is not.
        """
        if not self.asked:
            # The answer shows that an unroll before it was received: its memory is free by then.
            self._connection.send(Message(SampleMessage.TAKE))
            self.asked = True
        message = self._connection.receive(timeout)
        if message is None:
            return None
        check(message, FIELDS)
        if message.kind == SampleMessage.WANT_STATE:
            self.wants_state = True
            return None
        self.asked = False
        *ticket, lesson = demand(message, SampleMessage.TICKET).counts
        self._ticket = Ticket(*ticket)
        if self._ticket.position >= self._positions:
            raise Refused(f"a ticket {self._ticket} of a batch of {self._positions} positions")
        if lesson >= self._lessons:
            raise Refused(f"a ticket of lesson {lesson + 1} of {self._lessons}")
        unroll = self._ticket.batch % self._unrolls
        columns = self._columns_of(self._ticket)
        return Grant(self._ticket, unroll, columns, message.version, lesson)

    def give_state(self, state: Tree) -> None:
        """Sends the group's state, as it is before its next unroll."""
        self.wants_state = False
        self._connection.send(Message(SampleMessage.STATE, body=pack(state)))

    def fileno(self) -> int:
        """A descriptor that is readable when a ticket may have come."""
        return self._connection.fileno()

    def deliver(self) -> None:
        """Sends the unroll of the last ticket."""
        body = self._bodies[self._ticket.batch % self._unrolls] if self.remote else None
        self._connection.send(
            Message(SampleMessage.DELIVER, self.sequence, counts=self._ticket, body=body)
        )
        self.sequence += 1

    def _columns_of(self, ticket: Ticket) -> Batch:
        if self.remote:
            return self._own[ticket.batch % self._unrolls]
        index = ticket.batch % len(self._batches), ticket.position
        if index not in self._columns:
            self._columns[index] = self._batches[index[0]].columns(index[1], self._positions)
        return self._columns[index]

    def close(self) -> None:
        """Ends the stream; a ticket that the group holds is lost."""
        self._connection.close()


def batches_in(memory: SharedMemory, layout: Layout) -> list[Batch]:
    """The batches that lie in a memory, one pass of the loop behind the other."""
    starts = range(0, memory.size, layout.size)
    bodies: list[np.ndarray] = [memory.array[start : start + layout.size] for start in starts]
    return [batch for body in bodies for batch in batches_of(layout.views(body))]
