"""The parameter stream: the newest parameters, from where they are updated to all subscribers.

publisher = Publisher(listener, layout)
publisher.publish((0, 1), parameters)
subscriber = Subscriber(connect)  # in another process, on this host or another
version, parameters = subscriber.newest((0, 0), wait=1.0)

Within a host they lie in shared memory; to another host they are sent, once to each subscriber that
has asked for newer ones than it has. A subscriber that waits is notified in both cases.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np

from srl.core.errors import RunError
from srl.streams.layout import Layout
from srl.streams.parameter_memory import NONE_YET, ParameterReader, ParameterWriter, Version
from srl.streams.transport.interface import Connection, Disconnected, Listener, Peer, opened
from srl.streams.transport.message import Message, Refused, demand, text_of
from srl.streams.transport.schema import VERSION_OR_NONE, Fields, check, dispatch, unexpected

if TYPE_CHECKING:
    from srl.core.types import Tree

LIMIT_BYTES = 1 << 32
"""The most bytes that all parameters may have."""


class ParameterMessage(IntEnum):
    """The kinds of messages on a parameter stream."""

    OPEN = 50
    HANDSHAKE = 51
    """Body: the layout of the parameters. Descriptor: their memory, within a host."""
    NEWER = 53
    """A request for parameters newer than the message's version, and the answer. Its body: the
    parameters, to another host."""
    VERSION = 54
    """A question for the newest version that was published, and the answer; a relay asks the
    publisher first."""


FIELDS = {
    ParameterMessage.OPEN: Fields(),
    ParameterMessage.HANDSHAKE: Fields(body=True, fds=(0, 1)),
    ParameterMessage.NEWER: Fields(version=VERSION_OR_NONE, schema=True, body=True),
    ParameterMessage.VERSION: Fields(version=VERSION_OR_NONE),
}


@dataclass
class _Publication:
    version: Version
    tree: Tree
    body: np.ndarray | None = None
    """The tree as it is sent; None until a subscriber on another host asks."""


class Publisher:
    """Serves the newest parameters to all peers of a listener, in a thread of its own."""

    def __init__(self, listener: Listener, layout: Layout, *, answers_version: bool = True) -> None:
        """Has nothing to give until the first `publish`; owns the listener from now on.

        Args:
            listener: Where subscribers connect.
            layout: Of the parameters.
            answers_version: Whether it answers questions for the newest version itself; else the
                peers that asked are in `questions` until `answer_version`.

        Raises:
            RunError: If the parameters are more than the listener may send.
        """
        if layout.size > listener.limit_bytes:
            raise RunError(
                f"parameters of {layout.size:,} bytes; at most {listener.limit_bytes:,} can be sent"
            )
        self.bytes_sent = 0
        """Bytes of parameters sent to other hosts."""
        self.questions: deque[Peer] = deque()
        """The peers that asked for the newest version and have no answer yet."""
        self._answers_version = answers_version
        self._versions: deque[tuple[Peer, Version]] = deque()  # that its thread is to send
        self._listener, self._layout = listener, layout
        self._handshake = Message(ParameterMessage.HANDSHAKE, body=layout.to_json())
        self._writer = ParameterWriter(layout) if listener.shares_memory else None
        self._newest = _Publication(NONE_YET, None)
        self._waiting: dict[Peer, Version] = {}
        self._opened = self._closed = False
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._serve, name="parameters", daemon=True)
        self._thread.start()

    def publish(self, version: Version, tree: Tree) -> None:
        """Makes these the newest parameters; never waits for a subscriber.

        Args:
            version: Later than the one before.
            tree: Of arrays that are not written any more.

        Raises:
            RunError: If the tree is not of the layout; the newest stay as they were then. Also if
                subscribers cannot be served any more.
        """
        if self._failure is not None:
            raise RunError(f"parameters cannot be served: {self._failure}") from self._failure
        newest = _Publication(version, tree)
        if self._writer is not None:
            self._writer.publish(version, tree)
        else:
            newest.body = self._layout.pack(tree)
        self._newest = newest
        if self._opened:
            self._listener.wake()  # its thread answers

    def answer_version(self, version: Version, count: int) -> None:
        """Sends the newest version to the first `count` peers of `questions`."""
        self._versions.extend((self.questions.popleft(), version) for _ in range(count))
        self._listener.wake()

    def close(self) -> None:
        """Ends the stream and its listener."""
        self._closed = True
        self._listener.wake()
        self._thread.join()
        self._listener.close()
        if self._writer is not None:
            self._writer.close()

    def _serve(self) -> None:
        try:
            while not self._closed:
                received = self._listener.receive(0.5)
                if received is not None:
                    dispatch(
                        self._listener, FIELDS, *received, handle=self._handle, left=self._left
                    )
                while self._versions:
                    peer, version = self._versions.popleft()
                    self._listener.send(peer, Message(ParameterMessage.VERSION, 0, version))
                for peer, known in tuple(self._waiting.items()):
                    self._answer(peer, known)
        except Exception as failure:  # `publish` raises it
            self._failure = failure

    def _left(self, peer: Peer) -> None:
        self._waiting.pop(peer, None)

    def _handle(self, peer: Peer, message: Message) -> None:
        if message.kind == ParameterMessage.OPEN:
            self._opened = True
            fds = (self._writer.fd,) if peer.shares_memory and self._writer else ()
            self._listener.send(peer, self._handshake._replace(fds=fds))
        elif message.kind == ParameterMessage.NEWER:
            if message.schema != self._layout.hash:
                raise Refused(f"a request for parameters of layout {message.schema:016x}")
            self._waiting[peer] = message.version  # of one peer only the last request counts
        elif message.kind == ParameterMessage.VERSION:
            if peer not in self.questions:
                self.questions.append(peer)
            if self._answers_version:
                self.answer_version(self._newest.version, 1)
        else:
            raise unexpected(message)

    def _answer(self, peer: Peer, known: Version) -> None:
        """Sends a peer newer parameters than it knows, if there are any."""
        newest = self._newest
        if newest.version <= known:
            return
        del self._waiting[peer]
        answer = Message(ParameterMessage.NEWER, 0, newest.version, self._layout.hash)
        if not (peer.shares_memory and self._writer is not None):
            if newest.body is None:
                newest.body = self._layout.pack(newest.tree)
            answer = answer._replace(body=newest.body)
            self.bytes_sent += self._layout.size
        self._listener.send(peer, answer)


class Subscriber:
    """A worker's end of the stream, in one thread."""

    def __init__(
        self,
        connect: Callable[[], Connection],
        alive: Callable[[], None] = lambda: None,
        layout: Layout | None = None,
    ) -> None:
        """Connects.

        Args:
            connect: Gives a connection to the publisher; called again when that has gone.
            alive: Called about twice a second during a wait; may raise.
            layout: That the parameters must have; by default the one that they have at first.

        Raises:
            RunError: If they have another.
        """
        self._connect, self._alive, self._expected = connect, alive, layout
        self._open()

    def _open(self) -> None:
        self._connection, _ = opened(self._connect, self._begin)

    def _begin(self, connection: Connection) -> None:
        connection.send(Message(ParameterMessage.OPEN))
        handshake = check(connection.expect(ParameterMessage.HANDSHAKE, self._alive), FIELDS)
        self.layout = Layout.from_json(text_of(handshake), LIMIT_BYTES)
        self._expected = self._expected or self.layout
        if self.layout != self._expected:
            handshake.close_fds()
            raise RunError("the parameters that are published are not of the expected layout")
        fds = handshake.fds
        self._reader = ParameterReader(self.layout, fds[0]) if fds else None
        self._asked = False
        self._question: float | None = None
        self.published = (-math.inf, NONE_YET)
        """When the publisher was last asked for its newest version, and what it answered."""

    @property
    def address(self) -> str:
        """The publisher's address."""
        return self._connection.address

    def newest(self, known: Version, wait: float) -> tuple[Version, Tree] | None:
        """Newer parameters than those known, if there are any within so many seconds.

        Returns:
            Their version and tree, which is not written any more; None if there are none, and
            after the connection was opened anew.
        """
        try:
            if self._reader is None or (wait > 0 and self._reader.version <= known):
                self.ask(known)
            else:
                wait = 0.0  # only to raise if the publisher has gone
            received = self._receive(wait)
            if self._reader is None:
                return received
            return self._reader.read() if self._reader.version > known else None
        except Disconnected:
            self.reopen()
            return None

    def ask(self, known: Version) -> None:
        """Asks for newer parameters than those known: when they come `fileno` is readable."""
        with suppress(Disconnected):  # `newest` connects anew
            if not self._asked:
                self._connection.send(Message(ParameterMessage.NEWER, 0, known, self.layout.hash))
                self._asked = True

    def ask_published(self) -> None:
        """Asks which is the newest version; `newest` receives the answer, as `published`."""
        with suppress(Disconnected):
            if self._question is None:
                self._question = time.monotonic()
                self._connection.send(Message(ParameterMessage.VERSION))

    def fileno(self) -> int:
        """Readable when `newest` may have something; changes with the connection."""
        return self._connection.fileno()

    def reopen(self) -> None:
        """Connects anew, to the present publisher."""
        self._connection.close()
        self._open()

    def close(self) -> None:
        """Ends the stream."""
        self._connection.close()

    def _receive(self, wait: float) -> tuple[Version, Tree] | None:
        message = self._connection.receive(wait)
        if message is None:
            return None
        check(message, FIELDS)
        if message.kind == ParameterMessage.VERSION and self._question is not None:
            self.published, self._question = (self._question, message.version), None
            return None
        self._asked = False
        demand(message, ParameterMessage.NEWER)
        return (message.version, self.layout.open(message)) if self._reader is None else None


def published_version(connection: Connection, alive: Callable[[], None]) -> Version:
    """The version of the newest parameters that a publisher has; none are sent.

    Args:
        connection: To the publisher, and used for nothing else.
        alive: Called about twice a second until the answer comes; may raise.

    Raises:
        Disconnected: If the publisher has gone.
    """
    connection.send(Message(ParameterMessage.VERSION))
    return check(connection.expect(ParameterMessage.VERSION, alive), FIELDS).version
