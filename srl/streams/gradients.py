"""The gradients stream: workers give sums over their slots, and the state comes back to them.

A worker says OPEN and learns how it begins (FORM). From then on the server leads. STATE gives the
state that learning has reached, and each worker answers with SUMS: in phase 0, with which an update
begins, of what it measures in the unroll that it makes with this state; in phase k + 1 of the
gradient's round k. When all have answered, the server changes the state and gives it anew. Within a
host state and sums lie in shared memory, and a phase costs each worker two short messages; between
hosts the messages carry them.

When a worker has died, the update begins again for all as soon as its next process is there. Who
still has an unroll of this update measures that again. An answer has the number of the STATE that
it is to, so late ones are known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from srl.errors import RunError
from srl.streams.batch import check_state
from srl.streams.fields import COUNT, FLAG, NUMBER, VERSION, Fields, check, turn_away
from srl.streams.layout import Layout
from srl.streams.packed_tree import pack, unpack
from srl.streams.sample import STATE_BYTES, Start, Stopped
from srl.streams.shared_buffers import Area
from srl.streams.transport import Connection, Disconnected, Listener, Peer, opened
from srl.streams.transport.message import (
    JOINED,
    LEFT,
    Message,
    Refused,
    as_microseconds,
    as_seconds,
    demand,
    text_of,
)
from srl.tree import copy_tree
from srl.types import Tree


class Kind(IntEnum):
    """What is said on a gradients stream."""

    OPEN = 60
    """Counts: the worker's number among its replicas."""
    FORM = 61
    """Counts: epoch, lives of the worker, whether RESTORE follows. Body: the layouts, as text.
    Descriptors: of the state and of the sums, within a host."""
    RESTORE = 62
    """Body: saved states of the worker's groups to go on from."""
    STATE = 63
    """Counts: phase. Version: of the update. Body: the state, between hosts."""
    SUMS = 64
    """Sequence: of the STATE. Counts: microseconds of each activity. Body: the sums, between
    hosts."""
    WANT_GROUPS = 65
    GROUPS = 66
    """Body: the states of the worker's groups between two unrolls."""
    STOP = 67
    """No further update is wanted."""


FIELDS = {
    Kind.OPEN: Fields({"worker": NUMBER}),
    Kind.FORM: Fields({"epoch": NUMBER, "lives": COUNT, "restored": FLAG}, body=True, fds=(0, 3)),
    Kind.RESTORE: Fields(body=True),
    Kind.STATE: Fields({"phase": NUMBER}, version=VERSION, body=True),
    Kind.SUMS: Fields(activities=8, body=True),
    Kind.WANT_GROUPS: Fields(),
    Kind.GROUPS: Fields(body=True),
    Kind.STOP: Fields(),
}


class Forms(NamedTuple):
    """What crosses; both ends find it from the experiment."""

    state: Layout
    measured: Layout
    """The answer in phase 0."""
    gradient: Layout
    """The answer in all other phases."""

    @property
    def text(self) -> bytes:
        """For comparison with the other end's."""
        return b"\n".join(layout.to_json() for layout in self)

    @property
    def sums(self) -> dict[str, Layout]:
        """The parts of a worker's own memory."""
        return {"measured": self.measured, "gradient": self.gradient}


def _answer(phase: int) -> str:
    """The part of a worker's memory that holds its answer."""
    return "gradient" if phase else "measured"


class Turn(NamedTuple):
    """A state, which is to be answered."""

    update: tuple[int, int, int]
    """Which update it belongs to: (opening of the stream, epoch, n)."""
    phase: int
    state: Tree
    """Valid until the answer."""


class GradientSource:
    """A worker's end."""

    def __init__(
        self,
        connect: Callable[[], Connection],
        replica: int,
        forms: Forms,
        alive: Callable[[], None],
    ) -> None:
        """Opens the stream.

        Args:
            connect: Gives a connection to the server; called again when that has gone.
            replica: The worker's number among its replicas.
            forms: What crosses.
            alive: Called now and then while there is nothing to do but wait; may raise Stopped.
        """
        self._connect, self._replica, self._forms, self._alive = connect, replica, forms, alive
        self._openings = 0
        self._open()

    def _open(self) -> None:
        self._connection, self.start = opened(self._connect, self._begin_anew)
        """How the worker's groups begin, if they have not begun yet."""

    def _begin_anew(self, connection: Connection) -> Start:
        self._openings += 1
        connection.send(Message(Kind.OPEN, counts=(self._replica,)))
        form = check(connection.expect(Kind.FORM, self._alive), FIELDS)
        if text_of(form) != self._forms.text:
            form.close_fds()
            raise RunError("the server's parameters are not those of this experiment")
        self._remote = not form.fds
        self._area = Area({"state": self._forms.state, **self._forms.sums}, form.fds)
        epoch, lives, restored = form.counts
        saved = None
        if restored:
            saved = unpack(connection.expect(Kind.RESTORE, self._alive).body, STATE_BYTES)
        return Start(epoch, lives, saved)

    def wait(self, groups: Callable[[], Tree]) -> Turn:
        """Waits for the next state.

        Args:
            groups: Gives the states of the worker's groups, which may be asked for.

        Raises:
            Stopped: If no further update is wanted.
        """
        while True:
            try:
                message = check(self._connection.wait(self._alive), FIELDS)
                if message.kind == Kind.WANT_GROUPS:
                    self._connection.send(Message(Kind.GROUPS, body=pack(groups())))
                    continue
            except Disconnected:
                self._connection.close()
                self._open()
                continue
            if message.kind == Kind.STOP:
                raise Stopped
            demand(message, Kind.STATE)
            self._sequence, self._phase = message.sequence, message.counts[0]
            if self._remote:
                self._area.take_in("state", message.body)
            update = (self._openings, *message.version)
            return Turn(update, self._phase, self._area["state"])

    def answer(self, sums: Tree, seconds: Sequence[float] = ()) -> None:
        """Gives the sums that the last state was to be answered with.

        If the server has gone meanwhile they are lost; `wait` will tell, by another update.

        Args:
            sums: Of the form for the state's phase.
            seconds: Up to eight, spent on each activity since this was last told.
        """
        part = _answer(self._phase)
        copy_tree(sums, self._area[part])
        spent = as_microseconds(seconds)
        body = self._area.body(part) if self._remote else None
        try:
            self._connection.send(Message(Kind.SUMS, self._sequence, counts=spent, body=body))
        except Disconnected:
            return

    def close(self) -> None:
        """Ends the stream."""
        self._connection.close()


class WorkerLeft(RunError):
    """A worker has gone, so the update has to begin again."""


@dataclass
class _Desk:
    """A worker as the server sees it."""

    peer: Peer
    area: Area
    missing: bool = False
    """Whether an answer is to come."""
    asked_groups: bool = False
    groups: Tree = None
    """States that were asked for."""


class GradientSink:
    """The server's end. Nothing is heard but in `hear`, `exchange` and `groups`."""

    def __init__(
        self,
        listener: Listener,
        forms: Forms,
        workers: int,
        *,
        groups_each: int = 1,
        state_layout: Layout,
        on_left: Callable[[int], None] = lambda worker: None,
        on_seconds: Callable[[Sequence[float]], None] = lambda seconds: None,
    ) -> None:
        """Takes the listener.

        Args:
            listener: Where workers connect.
            forms: What crosses.
            workers: How many there are, numbered from 0.
            groups_each: Groups of environments that each worker has.
            state_layout: Of the state of a group; see `srl.streams.batch.state_layout`.
            on_left: Told of a worker that has gone.
            on_seconds: Told the seconds that a worker spent on each activity.
        """
        self.epoch = 0
        self.saved: dict[int, Tree] = {}
        """States of groups to go on from, by worker; each is given once."""
        self._listener, self._forms, self._workers = listener, forms, workers
        self._groups_each, self._state_layout = groups_each, state_layout
        self._on_left, self._on_seconds = on_left, on_seconds
        self._state = Area({"state": forms.state})
        self._desks: dict[int, _Desk] = {}
        self._lives: dict[int, int] = {}
        self._sequence = self._phase = 0

    @property
    def complete(self) -> bool:
        """Whether all workers are there."""
        return len(self._desks) == self._workers

    def hear(self) -> None:
        """Takes in what has come, waiting half a second for it."""
        received = self._listener.receive(0.5)
        if received is not None:
            self._hear(*received)

    def exchange(
        self, version: tuple[int, int], phase: int, state: Tree, alive: Callable[[], None]
    ) -> list[Tree]:
        """Gives all workers a state and waits for their answers.

        Args:
            version: (epoch, n) of the update.
            phase: 0, or the gradient's round + 1.
            state: Of the agreed form.
            alive: Called now and then.

        Returns:
            The sums of each worker, in order, in memory that the next exchange writes.

        Raises:
            WorkerLeft: If one goes before it has answered.
        """
        self._sequence, self._phase = self._sequence + 1, phase
        copy_tree(state, self._state["state"])
        message = Message(Kind.STATE, self._sequence, version, counts=(phase,))
        whole = message
        if not all(desk.peer.shares_memory for desk in self._desks.values()):
            whole = message._replace(body=bytes(self._state.body("state")))
        for desk in self._desks.values():
            desk.missing = True
            self._listener.send(desk.peer, message if desk.peer.shares_memory else whole)
        while any(desk.missing for desk in self._desks.values()):
            self.hear()
            if not self.complete:
                raise WorkerLeft("a worker has gone in the middle of an update")
            alive()
        return [self._desks[worker].area[_answer(phase)] for worker in range(self._workers)]

    def groups(self, alive: Callable[[], None]) -> list[Tree]:
        """Asks all workers for the states of their groups, between two updates.

        Returns:
            Those of each worker that is there, as it gave them.
        """
        asked = dict(self._desks)
        for desk in asked.values():
            desk.asked_groups, desk.groups = True, None
            self._listener.send(desk.peer, Message(Kind.WANT_GROUPS))
        while any(d.groups is None and self._desks.get(w) is d for w, d in asked.items()):
            self.hear()
            alive()
        return [desk.groups for desk in asked.values() if desk.groups is not None]

    def stop(self) -> None:
        """Tells all workers that no further update is wanted."""
        for desk in self._desks.values():
            self._listener.send(desk.peer, Message(Kind.STOP))

    def close(self) -> None:
        """Lets go of the memory; the listener is its owner's to close."""
        self._state.close()
        for desk in self._desks.values():
            desk.area.close()

    def _hear(self, peer: Peer, message: Message) -> None:
        try:
            self._take_in(peer, message)
        except Refused as reason:  # an answer that will not come would be waited for
            turn_away(self._listener, peer, reason)

    def _take_in(self, peer: Peer, message: Message) -> None:
        kind = message.kind
        worker = next((w for w, desk in self._desks.items() if desk.peer is peer), None)
        if kind == LEFT and worker is not None:
            self._desks.pop(worker).area.close()
            self._on_left(worker)
        if kind in (JOINED, LEFT):
            return
        check(message, FIELDS)
        if kind == Kind.OPEN and worker is None:
            self._open(peer, message)
        elif worker is not None and kind == Kind.SUMS:
            self._take_sums(self._desks[worker], message)
        elif worker is not None and kind == Kind.GROUPS:
            self._take_groups(worker, message)
        else:
            message.close_fds()
            raise Refused(f"a message of kind {kind} at this point")

    def _open(self, peer: Peer, message: Message) -> None:
        (worker,) = message.counts
        if worker >= self._workers or worker in self._desks:
            raise Refused(f"worker {worker} is not expected")
        desk = self._desks[worker] = _Desk(peer, Area(self._forms.sums))
        lives = self._lives[worker] = self._lives.get(worker, -1) + 1
        saved = self.saved.pop(worker, None)
        counts = (self.epoch, lives, saved is not None)
        fds = (*self._state.fds, *desk.area.fds) if peer.shares_memory else ()
        self._listener.send(peer, Message(Kind.FORM, counts=counts, body=self._forms.text, fds=fds))
        if saved is not None:
            self._listener.send(peer, Message(Kind.RESTORE, body=pack(saved)))

    def _take_groups(self, worker: int, message: Message) -> None:
        desk, groups = self._desks[worker], unpack(message.body, STATE_BYTES)
        own = range(worker * self._groups_each, (worker + 1) * self._groups_each)
        if not desk.asked_groups:
            raise Refused("states that were not asked for")
        if not isinstance(groups, dict) or groups.keys() != set(map(str, own)):
            raise Refused(f"states of other groups than {own.start} to {own.stop - 1}")
        for state in groups.values():
            check_state(state, self._state_layout)
        desk.asked_groups, desk.groups = False, groups

    def _take_sums(self, desk: _Desk, message: Message) -> None:
        if message.sequence != self._sequence or not desk.missing:
            return
        if not desk.peer.shares_memory:
            desk.area.take_in(_answer(self._phase), message.body)
        desk.missing = False
        self._on_seconds(as_seconds(message.counts))
