"""The inference stream: calls of `act` and `teach`, from a group's worker to another worker.

Both ends share two buffers for each group: the group writes its `request`, the other worker its
`reply`, and messages only pass the turn. Between hosts they carry the buffers as bodies. Which
arrays these hold follows from the edges that the plan cuts. Where `collect` is with the group, the
observation goes to `act` with the memory, which comes back, and to `teach` alone; where it is with
the policy worker, the whole timestep goes and the action alone comes back.

Nothing is lost when the other worker dies: a request stays as it is until it is answered, and may
be sent again to another worker. Recurrent memory goes with each request and comes back with its
reply, so that a group has it when it moves to another worker, which it does at the beginning of an
unroll.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum

import numpy as np

from srl.core.tree import Leaves, leaves_of, map_tree, names_of
from srl.core.types import Decision, Timestep, Tree
from srl.dataflow.nodes import read_by
from srl.streams.group_state import (
    CLOCK,
    START,
    STATE_BYTES,
    Start,
    pack,
    receive_start,
    send_start,
)
from srl.streams.layout import Layout
from srl.streams.shared_buffers import SharedBuffers
from srl.streams.transport.interface import Connection, Disconnected, Listener, Peer, opened
from srl.streams.transport.message import Message, Refused, demand, text_of
from srl.streams.transport.schema import COUNT, VERSION, Fields, check

_PARTS = ("request", "reply")
"""The buffers that both ends share."""


class InferenceMessage(IntEnum):
    """The kinds of messages on an inference stream."""

    OPEN = 30
    """Counts: the group's requests so far; after the first it continues as it is."""
    HANDSHAKE = 31
    """Counts: those of START. Body: the buffers' layout. Descriptors: theirs, within a host."""
    RESTORE = 32
    """Body: a saved state to continue from."""
    REQUEST = 33
    """Counts: the group's clock. Version: the oldest to act. Body: the request, between hosts."""
    REPLY = 34
    """Version: the one that acted. Sequence: of the request. Body: the reply, between hosts."""
    WANT_STATE = 35
    STATE = 36
    """Body: the group's state, as it is before it acts on what it has sent."""


FIELDS = {
    InferenceMessage.OPEN: Fields({"requests": COUNT}),
    InferenceMessage.HANDSHAKE: Fields(START, body=True, fds=(0, len(_PARTS))),
    InferenceMessage.RESTORE: Fields(body=True),
    InferenceMessage.REQUEST: Fields({"clock": CLOCK}, version=VERSION, body=True),
    InferenceMessage.REPLY: Fields(version=VERSION, body=True),
    InferenceMessage.WANT_STATE: Fields(),
    InferenceMessage.STATE: Fields(body=True),
}


def _parts(layout: Layout, gives: str = "") -> dict[str, Layout]:
    """The layout of each buffer: `request` and `reply`.

    Args:
        layout: Of both.
        gives: A field that a reply must have.

    Raises:
        Refused: If there are others, or they hold something else.
    """
    example = layout.views(layout.empty())
    parts = example if isinstance(example, dict) else {}
    request, reply = (parts.get(name) for name in _PARTS)
    if (
        not (isinstance(request, dict) and isinstance(reply, dict))
        or not request.keys() <= {*Timestep._fields, "memory", "advice"}
        or not reply.keys() <= set(Decision._fields)
        or (gives and gives not in reply)
    ):
        raise Refused(f"{layout.to_json()[:200].decode()} is no layout of requests and replies")
    return {name: Layout.of(parts[name]) for name in _PARTS}


class RemoteActing:
    """The node `act`, `teach`, or both at the other end of an inference stream."""

    def __init__(
        self,
        connect: Callable[[], Connection],
        state: Callable[[], Tree],
        alive: Callable[[], None] = lambda: None,
        moved: Callable[[str], Connection | None] = lambda address: None,
        gives: str = "action",
    ) -> None:
        """Opens the stream.

        Args:
            connect: Gives a connection to the worker that answers this group now; called again
                when that one has gone.
            state: Gives the group's state, for which the other end may ask.
            alive: Called about twice a second during a wait; may raise Stopped.
            moved: Given the address of the present worker, gives a connection to the one that is
                to answer now, if that is another.
            gives: The field of a decision that is called for: action, or a teacher's advice.
        """
        self._gives = gives
        self._connect, self._state, self._alive, self._moved = connect, state, alive, moved
        self._next: Connection | None = None  # to the next worker, which has not answered
        self._oldest = (0, 0)
        self._sequence = 0
        self._asked: tuple[tuple[Timestep, Tree, Tree], int]  # what the request holds, and clock
        self._gone = False  # whether the other end went before it replied
        self._open()
        self._initial = map_tree(np.array, self._decision.memory)

    def _open(self) -> None:
        self._connection, _ = opened(self._connect, self._begin)

    def _begin(self, connection: Connection) -> None:
        connection.send(Message(InferenceMessage.OPEN, counts=(self._sequence,)))
        self._begin_anew(connection, connection.wait(self._alive))

    def _begin_anew(self, connection: Connection, handshake: Message) -> None:
        check(demand(handshake, InferenceMessage.HANDSHAKE), FIELDS)
        self._remote = not handshake.fds
        parts = _parts(Layout.from_json(text_of(handshake), STATE_BYTES), self._gives)
        self._buffers = SharedBuffers(parts, handshake.fds)
        self._buffers.close()  # descriptors of own memory, too: nobody takes them between hosts
        self.start = receive_start(connection, handshake, InferenceMessage.RESTORE, self._alive)
        """The start of the group."""
        self._checked = False  # whether the buffers were compared with a timestep
        request, reply = self._buffers["request"], self._buffers["reply"]
        # Of the timestep, the memory and the advice that a request is made of.
        timestep = Timestep(*(request.get(n, ()) for n in Timestep._fields))
        form = timestep, request.get("memory", ()), request.get("advice", ())
        self._request, self._read = leaves_of(form), Leaves(form)
        action, log_prob = reply.get("action"), reply.get("log_prob")
        self._decision = Decision(
            action, log_prob, reply.get("memory", ()), reply.get("advice", ())
        )

    def spent(self, seconds: float) -> dict[str, float]:
        """Divides the seconds of the last decision among activities; see `Acting`."""
        return {"inference wait": seconds}

    def begin(self, oldest_version: tuple[int, int]) -> None:
        """Begins an unroll, in which no older version may act."""
        self._oldest = oldest_version
        try:
            self._move()
        except Disconnected:  # it died again
            self._forget_next()

    def _move(self) -> None:
        """Switches to the worker that is to act, if it is another, as soon as it answers."""
        if self._next is None:
            self._next = self._moved(self._connection.address)
            if self._next is None:
                return
            self._next.send(Message(InferenceMessage.OPEN, counts=(self._sequence,)))
        handshake = self._next.receive(0)
        if handshake is not None:
            self._connection.close()
            self._connection, self._next = self._next, None
            self._begin_anew(self._connection, handshake)

    def _forget_next(self) -> None:
        if self._next is not None:
            self._next.close()
            self._next = None

    def initial_memory(self) -> Tree:
        """The memory of all slots at the start of an episode; () where the other end collects."""
        return self._initial

    def decide(
        self, timestep: Timestep, memory: Tree, clock: int, advice: Tree = ()
    ) -> tuple[Decision, np.ndarray]:
        """Sends a request and waits for the reply; see `Acting`.

        Raises:
            Refused: If the buffers have other shapes than the timestep.
        """
        self.ask(timestep, memory, clock, advice)
        return self.answer()

    def ask(self, timestep: Timestep, memory: Tree, clock: int, advice: Tree = ()) -> None:
        """Sends a request; the arguments stay as they are until it is answered.

        Args:
            timestep: Of the group.
            memory: Before it; () for a teacher alone.
            clock: Steps of the group before this one.
            advice: A teacher's, where the other end collects and does not teach.

        Raises:
            Refused: If the buffers have other shapes than the timestep.
        """
        self._sequence += 1
        self._asked = (timestep, memory, advice), clock
        try:
            self._send()
        except Disconnected:
            self._gone = True

    def answer(self) -> tuple[Decision, np.ndarray]:
        """Waits for the reply to a request, which is sent anew to another worker if one has gone.

        Raises:
            Refused: If the buffers have other shapes than the timestep.
        """
        asked: list[np.ndarray] = []
        while True:
            try:
                if self._gone:
                    # The worker may have written its reply, which has the memory that was asked of.
                    asked = asked or [leaf.copy() for leaf in self._request]
                    self._connection.close()
                    self._open()
                    self._gone = False
                    self._send(asked)
                return self._receive()
            except Disconnected:
                self._gone = True

    def _check_shapes(self, timestep: Timestep, memory: Tree, advice: Tree) -> None:
        """Raises Refused if the buffers are for other environments than these."""
        values = {**timestep._asdict(), "memory": memory, "advice": advice}
        for name, part in self._buffers["request"].items():
            own = values[name]
            held, expected = ([leaf.shape for leaf in leaves_of(tree)] for tree in (own, part))
            if held != expected or leaves_of(names_of(own)) != leaves_of(names_of(part)):
                raise Refused(f"a request with {name} of shapes {expected}; it has {held} here")
        self._checked = True

    def _send(self, asked: Sequence[np.ndarray] = ()) -> None:
        values, clock = self._asked
        if not self._checked:
            self._check_shapes(*values)
        for target, source in zip(self._request, asked or self._read(values), strict=True):
            target[...] = source
        body = self._buffers.body("request") if self._remote else None
        self._connection.send(
            Message(
                InferenceMessage.REQUEST, self._sequence, self._oldest, counts=(clock,), body=body
            )
        )

    def _receive(self) -> tuple[Decision, np.ndarray]:
        while True:
            message = check(self._connection.wait(self._alive), FIELDS)
            if message.kind == InferenceMessage.WANT_STATE:
                self._connection.send(Message(InferenceMessage.STATE, body=pack(self._state())))
            elif demand(message, InferenceMessage.REPLY).sequence == self._sequence:
                break
        if self._remote:
            self._buffers.take_in("reply", message.body)
        return self._decision, np.array(message.version, np.int32)

    def close(self) -> None:
        """Ends the stream."""
        self._forget_next()
        self._connection.close()


class Session:
    """A group, as the worker that answers it sees it."""

    def __init__(
        self,
        listener: Listener,
        peer: Peer,
        layout: Layout,
        reads: Sequence[str] = read_by("act"),
    ) -> None:
        self.peer, self.group = peer, peer.identity.sender
        self.buffers = SharedBuffers(_parts(layout))
        self.clock = 0
        self.oldest_version = (0, 0)
        self.arrived = 0.0
        """When the last request came."""
        self._listener, self._layout = listener, layout
        self._sequence = 0
        parts = {"memory": (), **self.buffers["request"]}  # else memory is kept where `collect` is
        self.timestep = Timestep(*(parts.get(name, ()) for name in Timestep._fields))
        """The timestep of the request, as far as it has one."""
        self.asked = leaves_of(tuple(parts[name] for name in reads))
        """The parts of the request that are computed with, leaf by leaf."""
        self.advice = leaves_of(parts.get("advice", ()))
        """A teacher's advice from the group's worker, leaf by leaf, where that teaches."""
        reply = self.buffers["reply"]
        self.replied = {name: leaves_of(reply[name]) for name in reply}
        """The arrays of the reply, by the name of the decision's field."""

    def open(self, start: Start) -> None:
        """Sends the group its buffers, and how it begins."""
        fds = self.buffers.fds if self.peer.shares_memory else ()
        handshake = Message(InferenceMessage.HANDSHAKE, body=self._layout.to_json(), fds=fds)
        send_start(self._listener, self.peer, handshake, InferenceMessage.RESTORE, start)
        self.buffers.close()

    def take_in(self, message: Message, now: float) -> None:
        """Takes a request, whose fields were checked.

        Raises:
            Refused: If its body has another size than the buffer.
        """
        if not self.peer.shares_memory:
            self.buffers.take_in("request", message.body)
        self.clock, self.oldest_version = message.counts[0], message.version
        self._sequence, self.arrived = message.sequence, now

    def reply(self, version: np.ndarray) -> None:
        """Answers the request with the contents of the buffer `reply`."""
        epoch, n = version.tolist()
        body = None if self.peer.shares_memory else bytes(self.buffers.body("reply"))
        self.send(Message(InferenceMessage.REPLY, self._sequence, (epoch, n), body=body))

    def send(self, message: Message) -> None:
        """Sends the group a message."""
        self._listener.send(self.peer, message)
