"""The sample stream: unrolls on their way from `collect` to `learn`, each with a ticket.

A group connects and says OPEN; it learns what an unroll is made of (FORM). From then on it asks
for a ticket (TAKE), gets one when its unroll may begin (TICKET), writes the unroll, and says
DELIVER. Within a host the ticket's columns are shared memory, and nothing but these few words
crosses; between hosts DELIVER carries the unroll. A group that disconnects loses its ticket.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from srl.pools.memory import aligned_zeros
from srl.shared_memory import SharedMemory
from srl.streams.batch import Batch, check_state, state_layout, widened
from srl.streams.channel import Connection, Listener, Peer
from srl.streams.fields import check, turn_away
from srl.streams.layout import Layout
from srl.streams.message import (
    JOINED,
    LEFT,
    Message,
    Refused,
    as_microseconds,
    as_seconds,
    demand,
    text_of,
)
from srl.streams.parcel import pack, unpack
from srl.streams.sample_messages import FIELDS, Kind
from srl.streams.tickets import Ticket, TicketOffice
from srl.tree import copy_tree
from srl.types import Timestep, Tree

STATE_BYTES = UNROLL_BYTES = 1 << 30
"""The most that a group's state, or its unroll, may have."""
_OWN_UNROLLS = 2  # of a group that sends them: one is written while the other is on its way


class Stopped(Exception):
    """The run ends: no further unroll is wanted."""


class Start(NamedTuple):
    """How a group begins."""

    epoch: int
    lives: int
    """Times that it has begun before."""
    saved: Tree
    """The state to go on from, if there is one."""

    @property
    def purpose(self) -> str:
        """What its environments' seed is for, if they begin anew."""
        again = f".{self.lives}" if self.lives else ""
        return f"environments {self.epoch}{again}" if self.epoch or again else "environments"


class Grant(NamedTuple):
    """A ticket, and what its holder may do."""

    ticket: Ticket
    columns: Batch
    """Where the unroll is to be written; the same object where it is the same memory."""
    oldest_version: tuple[int, int]


def unpacked_state(message: Message) -> dict[str, Tree]:
    """What a STATE brings, by name; `SampleSink.give_state` checks the rest.

    Raises:
        Refused: If it has no names.
    """
    state = unpack(message.body, STATE_BYTES)
    if not isinstance(state, dict):
        raise Refused("a group's state without names")
    return state


class SampleSource:
    """A group's end."""

    def __init__(self, connection: Connection, alive: Callable[[], None] = lambda: None) -> None:
        """Opens the stream, which takes as long as the learner needs to begin.

        Args:
            connection: To the learner, as the group.
            alive: Called now and then meanwhile; may raise.

        Raises:
            Disconnected: If the learner is not there.
        """
        self._connection = connection
        self.sequence = 0
        """Unrolls delivered."""
        connection.send(Message(Kind.OPEN))
        form = check(connection.expect(Kind.FORM, alive), FIELDS)
        batches, self._positions, epoch, lives, restored = form.counts
        layout = Layout.from_json(text_of(form), UNROLL_BYTES)
        self.remote = not form.fds
        """Whether unrolls cross as messages."""
        one = _batch(layout.views(layout.empty()))
        wide = layout if self.remote else Layout.of(widened(one, self._positions))
        if self.remote:
            # Zeros, as pools leave alone what their environments do not have.
            self._bodies = [aligned_zeros((layout.size,), "uint8") for _ in range(_OWN_UNROLLS)]
        else:
            memory = SharedMemory.attach(form.fds[0], batches * wide.size)
            memory.close()  # stays mapped
            self._bodies = _bodies(wide, memory)
        self._batches = [_batch(wide.views(body)) for body in self._bodies]
        self._columns: dict[tuple[int, int], Batch] = {}
        saved = None
        if restored:
            saved = unpack(connection.expect(Kind.RESTORE, alive).body, STATE_BYTES)
        self.start = Start(epoch, lives, saved)
        self._asked = False

    def take(self, state: Callable[[], Tree], timeout: float | None = None) -> Grant | None:
        """Waits until an unroll may begin.

        Args:
            state: Gives the group's state, which may be asked for.
            timeout: Seconds, after which, or earlier, the result may be None; the ticket is still
                asked for then.

        Raises:
            Stopped: If no unroll is wanted any more.
            Disconnected: If the learner has gone.
        """
        if not self._asked:
            # Memory that is still being sent is not to be written.
            if self.remote and not self._connection.wait_held(_OWN_UNROLLS - 1, timeout or 60.0):
                return None
            self._connection.send(Message(Kind.TAKE))
            self._asked = True
        message = self._connection.receive(timeout)
        if message is None:
            return None
        check(message, FIELDS)
        if message.kind == Kind.WANT_STATE:
            self._connection.send(Message(Kind.STATE, body=pack(state())))
            return None
        self._asked = False
        if message.kind == Kind.STOP:
            raise Stopped
        self._ticket = Ticket(*demand(message, Kind.TICKET).counts)
        if self._ticket.position >= self._positions:
            raise Refused(f"a ticket {self._ticket} of a batch of {self._positions} positions")
        return Grant(self._ticket, self._columns_of(self._ticket), message.version)

    def deliver(self, seconds: Sequence[float]) -> None:
        """Hands the unroll of the last ticket over.

        Args:
            seconds: Up to six, spent on each activity since the last delivery.
        """
        body = self._bodies[self.sequence % _OWN_UNROLLS] if self.remote else None
        counts = (*self._ticket, *as_microseconds(seconds))
        self._connection.send(Message(Kind.DELIVER, self.sequence, counts=counts, body=body))
        self.sequence += 1

    def _columns_of(self, ticket: Ticket) -> Batch:
        if self.remote:
            return self._batches[self.sequence % _OWN_UNROLLS]
        place = ticket.update % len(self._batches), ticket.position
        if place not in self._columns:
            self._columns[place] = self._batches[place[0]].columns(place[1], self._positions)
        return self._columns[place]

    def close(self) -> None:
        """Ends the stream; a ticket that is held is lost."""
        self._connection.close()


class SampleSink:
    """The learner's end, served by a thread of its own between `start` and `close`."""

    def __init__(
        self,
        listener: Listener,
        office: TicketOffice,
        form: Batch,
        *,
        first_group: int = 0,
        on_seconds: Callable[[Sequence[float]], None] = lambda seconds: None,
        on_counts: Callable[[TicketOffice], None] = lambda office: None,
    ) -> None:
        """Reserves the memory of all batches.

        Args:
            listener: Where groups connect.
            office: Grants their tickets.
            form: Of one group's unroll.
            first_group: The first of the groups that deliver here.
            on_seconds: Told the seconds that a group spent on each activity.
            on_counts: Told after each change of the office's counts.
        """
        self.listener, self.office, self.epoch = listener, office, 0
        self.saved: dict[int, Tree] = {}
        """States that groups go on from, by group; each is given once."""
        self._first = first_group
        self._layout, self._state_layout = Layout.of(form), state_layout(form)
        self._wide = Layout.of(widened(form, office.positions))
        self._memory = SharedMemory.create(office.batches * self._wide.size)
        bodies = _bodies(self._wide, self._memory)
        self.batches = [_batch(self._wide.views(body)) for body in bodies]
        self._on_seconds, self._on_counts = on_seconds, on_counts
        self._lives: dict[int, int] = {}
        self._peers: dict[int, Peer] = {}
        self._asking: dict[int, None] = {}  # groups that wait for a ticket, first come first
        self._there: set[int] = set()
        self._want_state: set[int] = set()  # groups that are still to be asked
        self._awaited: set[int] = set()  # groups whose state is still to come
        self._states: dict[int, Tree] = {}
        self._changed = threading.Condition()  # its lock may be taken again by its holder
        self._draining = self._closed = False
        self.on_room: Callable[[], None] = lambda: None
        """Called when tickets may have become free, or states are wanted."""
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._serve, name="sample stream", daemon=True)

    def start(self) -> None:
        """Begins to answer."""
        self._thread.start()

    # ---- the learner's calls ----

    def gather(self, timeout: float | None) -> Batch | None:
        """Waits for the next update's batch; None after `timeout` seconds without it."""
        with self._changed:
            self._changed.wait_for(lambda: self.office.complete or self._error, timeout)
            self._check()
            if not self.office.complete:
                return None
            return self.batches[self.office.version % len(self.batches)]

    def following(self, timeout: float) -> Batch | None:
        """The batch after the one being learned from, if it is there within `timeout` seconds."""
        with self._changed:
            following = self.office.version + 1
            if not self._changed.wait_for(lambda: self.office.completes(following), timeout):
                return None
            return self.batches[following % len(self.batches)]

    def learned(self) -> None:
        """The batch has been learned from, and the new version can be had."""
        with self._changed:
            self.office.learned()
            self._on_counts(self.office)
        self._look()

    def ask_states(self) -> None:
        """Asks every group for its state, as it is before its next unroll."""
        with self._changed:
            self._states.clear()
            self._want_state, self._awaited = set(self._there), set(self._there)
        self._look()

    def states(self, alive: Callable[[], None]) -> dict[int, Tree]:
        """Waits for the states that were asked for.

        A group that dies meanwhile is left out. One that has not come yet is still in the state
        that it is to go on from.

        Args:
            alive: Called now and then meanwhile; may raise.
        """
        with self._changed:
            while self._awaited:
                self._changed.wait(0.5)
                self._check()
                alive()
            return dict(sorted({**self.saved, **self._states}.items()))

    @property
    def groups(self) -> range:
        """Those that deliver here."""
        return range(self._first, self._first + self.office.positions)

    @property
    def whole(self) -> bool:
        """Whether every group is there."""
        return len(self._there) == self.office.positions

    def fail(self, error: BaseException) -> None:
        """Raises an error of another thread in the learner's calls."""
        with self._changed:
            self._error = error
            self._changed.notify_all()

    def _check(self) -> None:
        if self._error:
            raise self._error

    def drain(self) -> None:
        """From now on nobody gets a ticket."""
        with self._changed:
            self._draining = True
        self._look()

    def _look(self) -> None:
        self.listener.wake()
        self.on_room()

    def close(self) -> None:
        """Stops answering; groups see the stream end."""
        self._closed = True
        self.listener.wake()
        if self._thread.is_alive():
            self._thread.join()
        self.listener.close()
        self._memory.close()

    # ---- for groups whose unrolls are written in this process ----

    def join(self, group: int) -> Start:
        """Begins with a group."""
        with self._changed:
            self._leave(group)
            self._there.add(group)
            lives = self._lives[group] = self._lives.get(group, -1) + 1
            return Start(self.epoch, lives, self.saved.pop(group, None))

    def leave(self, group: int) -> None:
        """The group has gone; a ticket that it holds is lost."""
        with self._changed:
            self._leave(group)

    def take(self, group: int) -> Grant | None:
        """A ticket, if there is one; `on_room` is called when it is worth asking again.

        Raises:
            Stopped: If no unroll is wanted any more.
        """
        with self._changed:
            if self._draining:
                raise Stopped
            ticket = self.office.take(group)
            if ticket is None:
                return None
            self._on_counts(self.office)
            version = self.epoch, self.office.oldest_version(ticket)
            return Grant(ticket, self._columns(ticket), version)

    def _columns(self, ticket: Ticket) -> Batch:
        batch = self.batches[ticket.update % len(self.batches)]
        return batch.columns(ticket.position, self.office.positions)

    def deliver(self, group: int, ticket: Ticket) -> None:
        """Takes in an unroll that was written into its columns."""
        with self._changed:
            self.office.deliver(group, ticket)
            self._on_counts(self.office)
            if self.office.completes(ticket.update):
                self._changed.notify_all()

    def spent(self, seconds: Sequence[float]) -> None:
        """Takes in the seconds that a group has spent on each activity."""
        self._on_seconds(seconds)

    def wants_state(self, group: int) -> bool:
        """Whether the group's state is wanted before its next unroll."""
        return group in self._want_state

    def give_state(self, group: int, state: Tree) -> None:
        """Takes the group's state in.

        Raises:
            Refused: If it was not asked for, or a group could not go on from it.
        """
        with self._changed:
            if group not in self._awaited:
                raise Refused("a state that was not asked for")
            check_state(state, self._state_layout)
            self._want_state.discard(group)
            self._awaited.discard(group)
            self._states[group] = state
            self._changed.notify_all()

    # ---- the serving thread ----

    def _serve(self) -> None:
        try:
            while not self._closed:
                received = self.listener.receive(1.0)
                with self._changed:
                    if received is not None:
                        self._hear(*received)
                    self._grant()
        except BaseException as error:
            self.fail(error)

    def _hear(self, peer: Peer, message: Message) -> None:
        try:
            self._answer(peer, message)
        except Refused as reason:  # or it would keep what it holds, and nobody else could have it
            turn_away(self.listener, peer, reason)

    def _answer(self, peer: Peer, message: Message) -> None:
        group = peer.identity.sender
        kind = message.kind
        if kind == JOINED:
            return
        if kind == LEFT:
            if self._peers.get(group) is peer:
                self._leave(group)
            return
        check(message, FIELDS)
        if kind == Kind.OPEN:
            self._open(peer, group)
        elif self._peers.get(group) is not peer:
            raise Refused(f"a message of kind {message.kind} before OPEN")
        elif kind == Kind.TAKE:
            if self.office.held(group) is not None:
                raise Refused("TAKE by a group that holds a ticket")
            self._asking[group] = None
        elif kind == Kind.DELIVER:
            self._take_in(peer, group, message)
        elif kind == Kind.STATE:
            self.give_state(group, unpacked_state(message))
        else:
            raise Refused(f"a message of kind {kind}")

    def _leave(self, group: int) -> None:
        self._peers.pop(group, None)
        self._asking.pop(group, None)
        for groups in (self._there, self._want_state, self._awaited):
            groups.discard(group)
        self._changed.notify_all()
        self.office.expire(group)
        self._on_counts(self.office)

    def _open(self, peer: Peer, group: int) -> None:
        if group not in self.groups:
            raise Refused(f"group {group} does not belong to this learner")
        start = self.join(group)
        self._peers[group] = peer
        restored = start.saved is not None
        counts = (len(self.batches), self.office.positions, start.epoch, start.lives, restored)
        fds = (self._memory.fd,) if peer.shares_memory else ()
        body = self._layout.to_json()
        self.listener.send(peer, Message(Kind.FORM, counts=counts, body=body, fds=fds))
        if restored:
            self.listener.send(peer, Message(Kind.RESTORE, body=pack(start.saved)))

    def _take_in(self, peer: Peer, group: int, message: Message) -> None:
        ticket = Ticket(*message.counts[:2])
        if not self.office.holds(group, ticket):
            raise Refused(f"an unroll whose ticket {ticket} is not its own")
        if not peer.shares_memory:
            copy_tree(_batch(self._layout.views(message.body)), self._columns(ticket))
        self._on_seconds(as_seconds(message.counts[2:]))
        self.deliver(group, ticket)

    def _grant(self) -> None:
        """Gives tickets to those that wait, as far as there are any."""
        for group in list(self._asking):
            peer = self._peers[group]
            if group in self._want_state:
                self._want_state.discard(group)
                self.listener.send(peer, Message(Kind.WANT_STATE))
            try:
                grant = self.take(group)
            except Stopped:
                message = Message(Kind.STOP)
            else:
                if grant is None:
                    continue
                message = Message(Kind.TICKET, version=grant.oldest_version, counts=grant.ticket)
            del self._asking[group]
            self.listener.send(peer, message)


def _bodies(layout: Layout, memory: SharedMemory) -> list[np.ndarray]:
    """The batches' parts of their memory, one behind the other."""
    starts = range(0, memory.size, layout.size)
    return [memory.array[start : start + layout.size] for start in starts]


def _batch(tree: Tree) -> Batch:
    """A batch from the dicts and tuples that a layout knows.

    Raises:
        Refused: If it is that of something else.
    """
    try:
        batch = Batch(*tree)
        return batch._replace(timesteps=Timestep(*batch.timesteps))
    except TypeError as error:
        raise Refused(f"a layout of no unroll: {error}") from error
