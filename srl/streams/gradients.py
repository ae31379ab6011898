"""The gradients stream: workers send partial sums over their slots, the server sends the state.

A worker sends OPEN, and HANDSHAKE gives how it begins. From then on the server leads. STATE carries
the state that learning has reached, and each worker answers with PARTIAL_SUMS: in phase 0, which
begins an update, of what it measures in the unroll that it makes with this state; in phase k + 1 of
the k-th gradient step. When all have answered, the server changes the state and sends it again.
Within a host state and sums lie in shared memory, and a phase costs each worker two short messages;
between hosts the messages carry them.

When a worker has died, the update begins again for all as soon as its next process is connected. A
worker that still has an unroll of this update measures that again. An answer has the number of the
STATE that it belongs to, by which late ones are recognized.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

from srl.errors import RunError
from srl.streams.group_state import (
    START,
    STATE_BYTES,
    Start,
    Stopped,
    check_state,
    pack,
    receive_start,
    send_start,
    unpack,
)
from srl.streams.layout import Layout
from srl.streams.shared_buffers import SharedBuffers
from srl.streams.transport.interface import Connection, Disconnected, Listener, Peer, opened
from srl.streams.transport.message import Body, Message, Refused, demand, text_of
from srl.streams.transport.schema import NUMBER, VERSION, Fields, check, dispatch, unexpected
from srl.tree import copy_tree
from srl.types import Tree


class GradientMessage(IntEnum):
    """The kinds of messages on a gradients stream."""

    OPEN = 60
    """Counts: the worker's number among its replicas."""
    HANDSHAKE = 61
    """Counts: those of START. Body: the layouts, as text. Descriptors: of the state and of the
    sums, within a host."""
    RESTORE = 62
    """Body: saved states from which the worker's groups continue."""
    STATE = 63
    """Counts: phase. Version: of the update. Body: the state, between hosts."""
    PARTIAL_SUMS = 64
    """Sequence: of the STATE. Body: the sums, between hosts."""
    WANT_STATES = 65
    STATES = 66
    """Body: the states of the worker's groups between two unrolls."""
    WANT_REPLAY = 68
    """Counts: the updates done, after which the worker is to write what it remembers into files."""
    REPLAY = 69
    """Body: which files these are, as text."""
    STOP = 67
    """No further update is wanted."""


FIELDS = {
    GradientMessage.OPEN: Fields({"worker": NUMBER}),
    GradientMessage.HANDSHAKE: Fields(START, body=True, fds=(0, 3)),
    GradientMessage.RESTORE: Fields(body=True),
    GradientMessage.STATE: Fields({"phase": NUMBER}, version=VERSION, body=True),
    GradientMessage.PARTIAL_SUMS: Fields(body=True),
    GradientMessage.WANT_STATES: Fields(),
    GradientMessage.STATES: Fields(body=True),
    GradientMessage.WANT_REPLAY: Fields({"updates": NUMBER}),
    GradientMessage.REPLAY: Fields(body=True),
    GradientMessage.STOP: Fields(),
}


class GradientLayouts(NamedTuple):
    """The layouts of what crosses; both ends derive them from the experiment."""

    state: Layout
    measured: Layout
    """The answer in phase 0."""
    gradient: Layout
    """The answer in all other phases."""

    @property
    def text(self) -> bytes:
        """The layouts as JSON, to be compared with the other end's."""
        return b"\n".join(layout.to_json() for layout in self)

    @property
    def partial_sums(self) -> dict[str, Layout]:
        """The buffers of each worker."""
        return {"measured": self.measured, "gradient": self.gradient}


def _answer(phase: int) -> str:
    """The name of the buffer that holds a worker's answer."""
    return "gradient" if phase else "measured"


class StateRequest(NamedTuple):
    """A state, which the worker answers with partial sums."""

    update: tuple[int, int, int]
    """The update it belongs to: (opening of the stream, epoch, n)."""
    phase: int
    state: Tree
    """Valid until the answer."""


class GradientSource:
    """A worker's end."""

    def __init__(
        self,
        connect: Callable[[], Connection],
        replica: int,
        layouts: GradientLayouts,
        alive: Callable[[], None],
    ) -> None:
        """Opens the stream.

        Args:
            connect: Gives a connection to the server; called again when that has gone.
            replica: The worker's number among its replicas.
            layouts: Of what crosses.
            alive: Called about twice a second during a wait; may raise Stopped.
        """
        self._connect, self._replica, self._layouts, self._alive = connect, replica, layouts, alive
        self._openings = 0
        self._open()

    def _open(self) -> None:
        self._connection, self.start = opened(self._connect, self._begin_anew)
        """How the worker's groups begin, if they have not begun yet."""

    def _begin_anew(self, connection: Connection) -> Start:
        self._openings += 1
        connection.send(Message(GradientMessage.OPEN, counts=(self._replica,)))
        handshake = check(connection.expect(GradientMessage.HANDSHAKE, self._alive), FIELDS)
        if text_of(handshake) != self._layouts.text:
            handshake.close_fds()
            raise RunError("the server's parameters are not those of this experiment")
        self._remote = not handshake.fds
        parts = {"state": self._layouts.state, **self._layouts.partial_sums}
        self._buffers = SharedBuffers(parts, handshake.fds)
        return receive_start(connection, handshake, GradientMessage.RESTORE, self._alive)

    def wait(self, groups: Callable[[], Tree], save: Callable[[int], Body]) -> StateRequest:
        """Waits for the next state.

        Args:
            groups: Gives the states of the worker's groups, for which the server may ask.
            save: Writes what is remembered after so many updates, and gives the files.

        Raises:
            Stopped: If no further update is wanted.
        """
        while True:
            try:
                message = check(self._connection.wait(self._alive), FIELDS)
                if message.kind == GradientMessage.WANT_STATES:
                    self._connection.send(Message(GradientMessage.STATES, body=pack(groups())))
                    continue
                if message.kind == GradientMessage.WANT_REPLAY:
                    self._connection.send(
                        Message(GradientMessage.REPLAY, body=save(*message.counts))
                    )
                    continue
            except Disconnected:
                self._connection.close()
                self._open()
                continue
            if message.kind == GradientMessage.STOP:
                raise Stopped
            demand(message, GradientMessage.STATE)
            self._sequence, self._phase = message.sequence, message.counts[0]
            if self._remote:
                self._buffers.take_in("state", message.body)
            update = (self._openings, *message.version)
            return StateRequest(update, self._phase, self._buffers["state"])

    def answer(self, partial_sums: Tree) -> None:
        """Sends the partial sums that answer the last state.

        If the server has gone meanwhile they are lost; then `wait` gives another update.

        Args:
            partial_sums: Of the layout for the state's phase.
        """
        part = _answer(self._phase)
        copy_tree(partial_sums, self._buffers[part])
        body = self._buffers.body(part) if self._remote else None
        with suppress(Disconnected):
            self._connection.send(Message(GradientMessage.PARTIAL_SUMS, self._sequence, body=body))

    def close(self) -> None:
        """Ends the stream."""
        self._connection.close()


class WorkerLeft(RunError):
    """A worker has gone, so the update begins again."""


@dataclass
class _Session:
    """A worker, as the server sees it."""

    peer: Peer
    buffers: SharedBuffers
    missing: bool = False
    """Whether its answer is still to come."""
    asked: GradientMessage | None = None
    """What it was asked for between two updates, if that is still to come."""
    reply: Any = None
    """What it was asked for, once it has come: the states of its groups, or a text."""


class GradientSink:
    """The server's end. It receives only in `hear`, `exchange` and `groups`."""

    def __init__(
        self,
        listener: Listener,
        layouts: GradientLayouts,
        workers: int,
        *,
        groups_each: int = 1,
        state_layout: Layout,
        on_left: Callable[[int], None] = lambda worker: None,
    ) -> None:
        """Begins without workers.

        Args:
            listener: Where workers connect.
            layouts: Of what crosses.
            workers: How many there are, numbered from 0.
            groups_each: Groups of environments that each worker has.
            state_layout: Of the state of a group; see `group_state.state_layout`.
            on_left: Called with the number of a worker that has gone.
        """
        self.epoch = 0
        self.saved: dict[int, Tree] = {}
        """States from which groups continue, by worker; each is given once."""
        self._listener, self._layouts, self._workers = listener, layouts, workers
        self._groups_each, self._state_layout = groups_each, state_layout
        self._on_left = on_left
        self._state = SharedBuffers({"state": layouts.state})
        self._sessions: dict[int, _Session] = {}
        self._restarts: dict[int, int] = {}
        self._sequence = self._phase = 0

    @property
    def complete(self) -> bool:
        """Whether all workers are connected."""
        return len(self._sessions) == self._workers

    def hear(self) -> None:
        """Takes the next message, if one comes within half a second."""
        received = self._listener.receive(0.5)
        if received is not None:
            self._hear(*received)

    def exchange(
        self, version: tuple[int, int], phase: int, state: Tree, alive: Callable[[], None]
    ) -> list[Tree]:
        """Sends all workers a state and waits for their answers.

        Args:
            version: (epoch, n) of the update.
            phase: 0, or the number of the gradient step + 1.
            state: Of the agreed layout.
            alive: Called about twice a second.

        Returns:
            The partial sums of each worker, in order, in memory that the next exchange writes.

        Raises:
            WorkerLeft: If a worker goes before it has answered.
        """
        self._sequence, self._phase = self._sequence + 1, phase
        copy_tree(state, self._state["state"])
        message = Message(GradientMessage.STATE, self._sequence, version, counts=(phase,))
        whole = message
        if not all(session.peer.shares_memory for session in self._sessions.values()):
            whole = message._replace(body=bytes(self._state.body("state")))
        for session in self._sessions.values():
            session.missing = True
            self._listener.send(session.peer, message if session.peer.shares_memory else whole)
        while any(session.missing for session in self._sessions.values()):
            self.hear()
            if not self.complete:
                raise WorkerLeft("a worker has gone in the middle of an update")
            alive()
        return [self._sessions[worker].buffers[_answer(phase)] for worker in range(self._workers)]

    def groups(self, alive: Callable[[], None]) -> list[Tree]:
        """Asks all workers for the states of their groups, between two updates.

        Returns:
            The states of each worker that is connected, as it sent them.
        """
        return self._replies(Message(GradientMessage.WANT_STATES), GradientMessage.STATES, alive)

    def replays(self, updates: int, alive: Callable[[], None]) -> list[bytes]:
        """Lets all workers write what they remember, between two updates.

        Args:
            updates: Those done.
            alive: Called about twice a second.

        Returns:
            What each worker that is connected reports of its files.
        """
        return self._replies(
            Message(GradientMessage.WANT_REPLAY, counts=(updates,)), GradientMessage.REPLAY, alive
        )

    def _replies(
        self, question: Message, answer: GradientMessage, alive: Callable[[], None]
    ) -> list[Any]:
        asked = dict(self._sessions)
        for session in asked.values():
            session.asked, session.reply = answer, None
            self._listener.send(session.peer, question)
        while any(d.asked and self._sessions.get(w) is d for w, d in asked.items()):
            self.hear()
            alive()
        return [session.reply for session in asked.values() if session.reply is not None]

    def stop(self) -> None:
        """Announces to all workers that no further update is wanted."""
        for session in self._sessions.values():
            self._listener.send(session.peer, Message(GradientMessage.STOP))

    def close(self) -> None:
        """Closes the memory; the owner of the listener closes that."""
        self._state.close()
        for session in self._sessions.values():
            session.buffers.close()

    def _hear(self, peer: Peer, message: Message) -> None:
        handle, left = self._handle, self._disconnected
        dispatch(self._listener, FIELDS, peer, message, handle=handle, left=left)

    def _worker_of(self, peer: Peer) -> int | None:
        return next((w for w, session in self._sessions.items() if session.peer is peer), None)

    def _disconnected(self, peer: Peer) -> None:
        worker = self._worker_of(peer)
        if worker is not None:
            self._sessions.pop(worker).buffers.close()
            self._on_left(worker)

    def _handle(self, peer: Peer, message: Message) -> None:
        kind, worker = message.kind, self._worker_of(peer)
        if kind == GradientMessage.OPEN and worker is None:
            self._open(peer, message)
        elif worker is not None and kind == GradientMessage.PARTIAL_SUMS:
            self._take_sums(self._sessions[worker], message)
        elif worker is not None and kind == self._sessions[worker].asked:
            session = self._sessions[worker]
            states = kind == GradientMessage.STATES
            session.reply = self._groups(worker, message) if states else text_of(message)
            session.asked = None
        else:
            raise unexpected(message)

    def _open(self, peer: Peer, message: Message) -> None:
        (worker,) = message.counts
        if worker >= self._workers or worker in self._sessions:
            raise Refused(f"worker {worker} is not expected")
        buffers = SharedBuffers(self._layouts.partial_sums)
        self._sessions[worker] = _Session(peer, buffers)
        restarts = self._restarts[worker] = self._restarts.get(worker, -1) + 1
        fds = (*self._state.fds, *buffers.fds) if peer.shares_memory else ()
        handshake = Message(GradientMessage.HANDSHAKE, body=self._layouts.text, fds=fds)
        start = Start(self.epoch, restarts, self.saved.pop(worker, None))
        send_start(self._listener, peer, handshake, GradientMessage.RESTORE, start)

    def _groups(self, worker: int, message: Message) -> Tree:
        groups = unpack(message.body, STATE_BYTES)
        own = range(worker * self._groups_each, (worker + 1) * self._groups_each)
        if not isinstance(groups, dict) or groups.keys() != set(map(str, own)):
            raise Refused(f"states of other groups than {own.start} to {own.stop - 1}")
        for state in groups.values():
            check_state(state, self._state_layout)
        return groups

    def _take_sums(self, session: _Session, message: Message) -> None:
        if message.sequence != self._sequence or not session.missing:
            return
        if not session.peer.shares_memory:
            session.buffers.take_in(_answer(self._phase), message.body)
        session.missing = False
