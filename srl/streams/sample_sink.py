"""The learner's end of the sample stream: it grants tickets and puts unrolls into batches."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import numpy as np

from srl.core.tree import copy_tree
from srl.core.types import Tree
from srl.streams.batch import Batch, widened
from srl.streams.group_state import (
    Start,
    check_state,
    send_start,
    state_layout,
    unpacked_state,
)
from srl.streams.layout import Layout
from srl.streams.sample import FIELDS, Grant, SampleMessage, batches_in
from srl.streams.tickets import Counts, StalenessLimiter, Ticket
from srl.streams.transport.interface import Listener, Peer
from srl.streams.transport.message import Message, Refused
from srl.streams.transport.schema import dispatch, unexpected
from srl.system.shared_memory import SharedMemory


class SampleSink:
    """The learner's end, served by a thread of its own between `start` and `close`.

    Groups deliver over the listener, or in this process by `join`, `take` and `deliver`.
    """

    def __init__(
        self,
        listener: Listener,
        limiter: StalenessLimiter,
        specs: Sequence[Batch],
        *,
        first_group: int = 0,
        on_counts: Callable[[Counts], None] = lambda counts: None,
    ) -> None:
        """Reserves the memory of all batches.

        Args:
            listener: Where groups connect.
            limiter: Grants their tickets.
            specs: Array specs of one group's unrolls of a pass.
            first_group: The first of the groups that deliver here.
            on_counts: Called with the limiter's counts after each change, by one thread at a time.
        """
        self.listener, self.limiter, self.epoch = listener, limiter, 0
        self.saved: dict[int, Tree] = {}
        """States from which groups continue, by group; each is given once."""
        self.lesson = 0
        """The curriculum's lesson of the tickets that are granted from now on."""
        self.groups = range(first_group, first_group + limiter.positions)
        """The groups that deliver here."""
        self.on_room: Callable[[], None] = lambda: None
        """Called when tickets may have become free, or states are wanted."""
        self._layout, self._state_layout = Layout.of(tuple(specs)), state_layout(specs[0])
        self._layouts = [Layout.of(spec) for spec in specs]
        wide = Layout.of(widened(tuple(specs), limiter.positions))
        self._memory = SharedMemory.create(limiter.batches // len(specs) * wide.size)
        self.batches = batches_in(self._memory, wide)
        """The batches of the passes that there can be at a time, one behind the other."""
        self._lessons = np.zeros((len(self.batches), limiter.positions), np.int64)
        self._on_counts = on_counts
        self._restarts: dict[int, int] = {}
        self._peers: dict[int, Peer] = {}
        self._asking: dict[int, None] = {}  # groups that wait for a ticket, first come first
        self._joined: set[int] = set()
        self._want_state: set[int] = set()  # groups that are still to be asked
        self._awaited: set[int] = set()  # groups whose state is still to come
        self._states: dict[int, Tree] = {}
        self._changed = threading.Condition()  # its lock may be taken again by its holder
        self._closed = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._serve, name="sample stream", daemon=True)

    def start(self) -> None:
        """Begins to answer."""
        self._thread.start()

    # ---- the learner's calls ----

    def gather(self, batch: int, timeout: float | None) -> Batch | None:
        """Waits for a batch; None after `timeout` seconds without it."""
        with self._changed:
            self._changed.wait_for(lambda: self.limiter.complete(batch) or self._error, timeout)
            self._check()
            if not self.limiter.complete(batch):
                return None
            return self.batches[batch % len(self.batches)]

    def lessons(self, batch: int) -> np.ndarray:
        """The lesson of each unroll of a batch that `gather` gave, int64 [positions]."""
        return self._lessons[batch % len(self.batches)]

    def learn_from(self, batch: int) -> None:
        """Counts the unrolls of a batch as learned from, if they were not yet."""
        with self._changed:
            self.limiter.learn_from(batch)
            self._count()

    def learned(self) -> None:
        """Frees the batch that was learned from; its version can be had from now on."""
        with self._changed:
            self.limiter.learned()
            self._count()
        self._wake()

    def ask_states(self) -> None:
        """Asks every group for its state, as it is before its next unroll."""
        with self._changed:
            self._states.clear()
            self._want_state, self._awaited = set(self._joined), set(self._joined)
        self._wake()

    def states(self, alive: Callable[[], None]) -> dict[int, Tree]:
        """Waits for the states that were asked for.

        A group that dies meanwhile is left out. One that has not joined yet is still in the state
        from which it will continue.

        Args:
            alive: Called about twice a second meanwhile; may raise.
        """
        with self._changed:
            while self._awaited:
                self._changed.wait(0.5)
                self._check()
                alive()
            return dict(sorted({**self.saved, **self._states}.items()))

    @property
    def whole(self) -> bool:
        """True once every group has joined."""
        return len(self._joined) == self.limiter.positions

    def fail(self, error: BaseException) -> None:
        """Raises an error of another thread in the learner's calls."""
        with self._changed:
            self._error = error
            self._changed.notify_all()

    def _check(self) -> None:
        if self._error:
            raise self._error

    def _count(self) -> None:
        self._on_counts(self.limiter.counts)

    def _wake(self) -> None:
        self.listener.wake()
        self.on_room()

    def close(self) -> None:
        """Stops answering, and disconnects the groups."""
        self._closed = True
        self.listener.wake()
        if self._thread.is_alive():
            self._thread.join()
        self.listener.close()
        self._memory.close()

    # ---- for groups whose unrolls are written in this process ----

    def join(self, group: int) -> Start:
        """Adds a group, and gives how it begins."""
        with self._changed:
            self._leave(group)
            self._joined.add(group)
            restarts = self._restarts[group] = self._restarts.get(group, -1) + 1
            return Start(self.epoch, restarts, self.saved.pop(group, None))

    def leave(self, group: int) -> None:
        """Removes a group; a ticket that it holds is lost."""
        with self._changed:
            self._leave(group)

    def take(self, group: int) -> Grant | None:
        """A ticket, if there is one; `on_room` is called when it is worth asking again."""
        with self._changed:
            ticket = self.limiter.take(group)
            if ticket is None:
                return None
            self._count()
            self.lessons(ticket.batch)[ticket.position] = self.lesson
            version = self.epoch, self.limiter.oldest_version(ticket)
            unroll = self.limiter.unroll_of(ticket.batch)
            return Grant(ticket, unroll, self._columns(ticket), version, self.lesson)

    def _columns(self, ticket: Ticket) -> Batch:
        batch = self.batches[ticket.batch % len(self.batches)]
        return batch.columns(ticket.position, self.limiter.positions)

    def deliver(self, group: int, ticket: Ticket) -> None:
        """Counts an unroll that was written into its columns."""
        with self._changed:
            self.limiter.deliver(group, ticket)
            self._count()
            if self.limiter.complete(ticket.batch):
                self._changed.notify_all()

    def awaited(self) -> tuple[int, ...]:
        """Descriptors that are readable when tickets may have come: none, see `on_room`."""
        return ()

    def wants_state(self, group: int) -> bool:
        """Tells if the group's state is wanted before its next unroll."""
        return group in self._want_state

    def give_state(self, group: int, state: Tree) -> None:
        """Accepts the group's state.

        Raises:
            Refused: If it was not asked for, or a group could not continue from it.
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
        left, handle = self._disconnected, self._handle
        dispatch(self.listener, FIELDS, peer, message, handle=handle, left=left)

    def _handle(self, peer: Peer, message: Message) -> None:
        group = peer.identity.sender
        if message.kind == SampleMessage.OPEN:
            self._open(peer, group)
        elif self._peers.get(group) is not peer:
            raise unexpected(message, "before OPEN")
        elif message.kind == SampleMessage.TAKE:
            if self.limiter.held(group) is not None:
                raise Refused("TAKE by a group that holds a ticket")
            self._asking[group] = None
        elif message.kind == SampleMessage.DELIVER:
            self._receive_unroll(peer, group, message)
        elif message.kind == SampleMessage.STATE:
            self.give_state(group, unpacked_state(message))
        else:
            raise unexpected(message)

    def _disconnected(self, peer: Peer) -> None:
        if self._peers.get(peer.identity.sender) is peer:
            self._leave(peer.identity.sender)

    def _leave(self, group: int) -> None:
        self._peers.pop(group, None)
        self._asking.pop(group, None)
        for groups in (self._joined, self._want_state, self._awaited):
            groups.discard(group)
        self._changed.notify_all()
        self.limiter.expire(group)
        self._count()

    def _open(self, peer: Peer, group: int) -> None:
        if group not in self.groups:
            raise Refused(f"group {group} does not belong to this learner")
        start = self.join(group)
        self._peers[group] = peer
        handshake = Message(
            SampleMessage.HANDSHAKE,
            counts=(len(self.batches), self.limiter.positions),
            body=self._layout.to_json(),
            fds=(self._memory.fd,) if peer.shares_memory else (),
        )
        send_start(self.listener, peer, handshake, SampleMessage.RESTORE, start)

    def _receive_unroll(self, peer: Peer, group: int, message: Message) -> None:
        ticket = Ticket(*message.counts)
        if self.limiter.held(group) != ticket:
            raise Refused(f"an unroll whose ticket {ticket} is not its own")
        if not peer.shares_memory:
            layout = self._layouts[self.limiter.unroll_of(ticket.batch)]
            unroll = Batch.from_tree(layout.views(message.body))
            copy_tree(unroll, self._columns(ticket))
        self.deliver(group, ticket)

    def _grant(self) -> None:
        """Grants tickets to the groups that wait, as far as there are any."""
        for group in list(self._asking):
            peer = self._peers[group]
            if group in self._want_state:
                self._want_state.discard(group)
                self.listener.send(peer, Message(SampleMessage.WANT_STATE))
            grant = self.take(group)
            if grant is None:
                continue
            del self._asking[group]
            version, ticket = grant.oldest_version, grant.ticket
            counts = (*ticket, grant.lesson)
            message = Message(SampleMessage.TICKET, version=version, counts=counts)
            self.listener.send(peer, message)
