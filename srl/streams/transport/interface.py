"""Connections that carry messages: the interface that every transport implements.

A listener receives of each peer first JOINED, then its messages in order, and last LEFT, however
the connection ended. A peer is identified by its sender; a new connection of a sender replaces the
one before, unless its incarnation is older, or is fenced off. Each end belongs to one thread, but
for `wake` and `fence`.
"""

from __future__ import annotations

import logging
import os
import select
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from enum import IntEnum
from typing import Any, NoReturn, Self, TypeVar

from srl.core.errors import RunError
from srl.streams.transport.message import JOINED, LEFT, Identity, Message, Refused, as_bytes, demand

log = logging.getLogger(__name__)

Begun = TypeVar("Begun")
_LOGGED_REFUSALS = 20
"""The number of refusals after which they are logged rarely, or a faulty peer would fill the disk
with log."""
_LOGS_AGAIN_SECONDS = 60.0
_LONGEST_PAUSE = 0.5  # between two attempts to begin


class Disconnected(RunError):
    """The other end has gone."""


class Peer:
    """One connection, as its listener sees it."""

    def __init__(self, identity: Identity, route: Any, *, shares_memory: bool) -> None:
        """A peer that is reached by `route`, whose type is the transport's."""
        self.identity = identity
        self.route = route
        self.shares_memory = shares_memory
        """True if descriptors can be sent to it, and so memory shared with it."""

    def __repr__(self) -> str:
        return f"sender {self.identity.sender} (incarnation {self.identity.incarnation})"


class Connection(ABC):
    """The end that has connected."""

    def __init__(self, address: str, identity: Identity, limit_bytes: int) -> None:
        """Sends as `identity` to `address`, bodies of up to `limit_bytes`."""
        self.address = address
        self.identity = identity
        self.limit_bytes = limit_bytes
        self._close_reason = "it has closed"  # or the one that the other end has given

    @abstractmethod
    def send(self, message: Message) -> None:
        """Sends a message; waits while the other end is too busy to take it.

        Within a process the body is passed by reference. To another host it is sent from where it
        lies, so it must not be written until the other end has answered it, or a later message.
        Otherwise it is copied.

        Raises:
            Disconnected: If the other end has gone, or refused this one.
            RunError: If the message is too large.
        """

    def receive(self, timeout: float | None) -> Message | None:
        """The next message; None after `timeout` seconds without one (None: waits for ever).

        Raises:
            Disconnected: If the other end has gone, or refused this one.
            Refused: If what came is not a message of this run.
        """
        received = self._receive(timeout)
        if received is None:
            return None
        identity, message = received
        if message.kind == LEFT:
            self._end(close_reason(message))
        if identity.run != self.identity.run:
            message.close_fds()
            raise Refused(f"{self.address} answers for run {identity.run:016x}")
        return message

    @abstractmethod
    def _receive(self, timeout: float | None) -> tuple[Identity, Message] | None:
        """The next message and its sender, whatever it is; see `receive`."""

    def _end(self, reason: str = "") -> NoReturn:
        """Notes that the other end has closed the connection, and its reason if it has sent one."""
        self._close_reason = reason or self._close_reason
        raise Disconnected(f"{self.address}: {self._close_reason}")

    def wait(self, alive: Callable[[], None]) -> Message:
        """The next message, however long it takes.

        Args:
            alive: Called about twice a second meanwhile; what it raises ends the wait.

        Raises:
            Disconnected: If the other end has gone, or refused this one.
        """
        while (message := self.receive(0.5)) is None:
            alive()
        return message

    def expect(self, kind: IntEnum, alive: Callable[[], None]) -> Message:
        """The next message, which is to be of this kind; see `wait`.

        Raises:
            Disconnected: If the other end has gone, or refused this one.
            RunError: If it is of another kind.
        """
        return demand(self.wait(alive), kind)

    @abstractmethod
    def fileno(self) -> int:
        """Readable when something may have come: then `receive(0)` until it gives None."""

    @abstractmethod
    def close(self) -> None:
        """Ends the connection; what was sent before still arrives within a host."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Listener(ABC):
    """The end to which many connect."""

    address: str
    """The address for `connect`."""
    shares_memory: bool
    """True if it has peers that memory can be shared with."""

    def __init__(self, identity: Identity, limit_bytes: int) -> None:
        """Answers as `identity`; takes bodies of up to `limit_bytes`."""
        self.identity = identity
        self.limit_bytes = limit_bytes
        self._refused = 0
        self._refusing = threading.Lock()
        self._logged = 0.0  # when a refusal was last logged
        self._peers: dict[int, Peer] = {}
        self._ready: deque[tuple[Peer, Message] | None] = deque()
        self._fences: dict[int, int] = {}  # the least incarnation, by sender
        self._fencing: deque[tuple[int, int]] = deque()  # fences that `receive` is to set

    @property
    def refused(self) -> int:
        """The number of refused messages and connections."""
        return self._refused

    def receive(self, timeout: float | None) -> tuple[Peer, Message] | None:
        """The next message and its peer; None after `timeout` seconds, or when woken."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            while self._fencing:
                self._fence_off(*self._fencing.popleft())
            if self._ready:
                return self._ready.popleft()
            left = None if deadline is None else deadline - time.monotonic()
            if not self._collect(left):
                return None

    def send(self, peer: Peer, message: Message) -> None:
        """Sends without ever waiting; what is for a peer that has gone is dropped.

        A peer that has far too much unread is cut off. The body must not be written afterwards.

        Raises:
            RunError: If the message is too large.
        """
        check_size(message, self.limit_bytes)
        if self._peers.get(peer.identity.sender) is peer:
            self._transmit(peer, message)

    def refuse(self, peer: Peer | str, reason: object) -> None:
        """Counts and logs something of `peer` that is dropped; from any thread."""
        with self._refusing:
            self._refused += 1
            number, now = self._refused, time.monotonic()
            if number > _LOGGED_REFUSALS and now < self._logged + _LOGS_AGAIN_SECONDS:
                return
            self._logged = now
        log.warning("%s: refused from %s: %s (%d so far)", self.address, peer, reason, number)

    def cut_off(self, peer: Peer, reason: str, *, drop_unread: bool = False) -> None:
        """Closes the connection of `peer` with a reason that it receives; a LEFT of it follows.

        Args:
            peer: Nothing happens if it has gone.
            reason: For the peer.
            drop_unread: Whether what has come from it and was not received yet is dropped.
        """
        if self._peers.get(peer.identity.sender) is peer:
            if drop_unread:
                self._drop_unread(peer)
            self._hang_up(peer, reason)
            self._lose(peer)

    def _drop_unread(self, peer: Peer) -> None:
        unread, self._ready = self._ready, deque()
        for got in unread:
            if got and got[0] is peer and got[1].kind != JOINED:
                got[1].close_fds()
            else:
                self._ready.append(got)

    def fence(self, sender: int, least_incarnation: int) -> None:
        """Refuses all earlier incarnations of a sender, even if no later one has connected yet.

        Of their messages only LEFT is received from then on. Wakes `receive`; from any thread.
        """
        self._fencing.append((sender, least_incarnation))
        self.wake()

    def fileno(self) -> int:
        """Readable when something may have come: then `receive(0)` until it gives None."""
        raise NotImplementedError

    @abstractmethod
    def wake(self) -> None:
        """Makes `receive` give None, now or when next called; from any thread."""

    @abstractmethod
    def close(self) -> None:
        """Ends all connections."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def _collect(self, timeout: float | None) -> bool:
        """Waits and puts what came into `_ready`, None for `wake`; False after the timeout."""

    @abstractmethod
    def _transmit(self, peer: Peer, message: Message) -> None: ...

    @abstractmethod
    def _hang_up(self, peer: Peer, reason: str) -> None:
        """Sends the reason to the far end and closes its connection."""

    def _admit(self, identity: Identity, message: Message, route: Any) -> Peer | None:
        """A new peer, if its first message is valid; else it is refused."""
        peer = Peer(identity, route, shares_memory=self.shares_memory)
        reason = ""
        if message.kind != JOINED:
            reason = f"it began with a message of kind {message.kind}"
        elif identity.run != self.identity.run:
            reason = f"it belongs to run {identity.run:016x}, this is {self.identity.run:016x}"
        if not self._register(peer, message, reason or self._superseded(identity)):
            message.close_fds()
            return None
        return peer

    def _superseded(self, identity: Identity) -> str:
        """Why this incarnation of a sender is not admitted; empty if it is."""
        known = self._peers.get(identity.sender)
        if known and identity.incarnation < known.identity.incarnation:
            return f"a later incarnation of it, {known.identity.incarnation}, is connected"
        return self._behind_fence(identity)

    def _behind_fence(self, identity: Identity) -> str:
        """Names the fence that excludes this incarnation of a sender; empty if none does."""
        least = self._fences.get(identity.sender, 0)
        if identity.incarnation < least:
            return f"it is fenced off: only start {least} or a later one may come"
        return ""

    def _fence_off(self, sender: int, least: int) -> None:
        """Sets a fence; refuses the unread messages of those behind it."""
        self._fences[sender] = max(least, self._fences.get(sender, 0))
        unread, self._ready = self._ready, deque()
        for got in unread:
            if got and got[1].kind > LEFT and (reason := self._behind_fence(got[0].identity)):
                got[1].close_fds()
                self.refuse(got[0], reason)
            else:
                self._ready.append(got)
        known = self._peers.get(sender)
        if known and (reason := self._behind_fence(known.identity)):
            self.cut_off(known, reason)

    def _register(self, peer: Peer, message: Message, reason: str) -> bool:
        """Registers a new peer in place of its predecessor; rejects it if there is a reason."""
        if reason:
            self.refuse(repr(peer), reason)
            self._hang_up(peer, reason)
            return False
        if known := self._peers.get(peer.identity.sender):
            self.cut_off(known, "another connection took its place")
        self._peers[peer.identity.sender] = peer
        self._ready.append((peer, message))
        return True

    def _deliver(self, peer: Peer, identity: Identity, message: Message) -> None:
        """Adds a message of a registered peer to `_ready`."""
        if identity != peer.identity or message.kind == JOINED:
            message.close_fds()
            self.refuse(peer, f"a message of kind {message.kind} from {identity}")
        elif message.kind == LEFT:
            self._lose(peer)
        else:
            self._ready.append((peer, message))

    def _lose(self, peer: Peer) -> None:
        """Adds a peer's LEFT to `_ready`, once."""
        if self._peers.get(peer.identity.sender) is peer:
            del self._peers[peer.identity.sender]
            self._ready.append((peer, Message(LEFT)))


class PolledListener(Listener):
    """A listener that waits for file descriptors, one of which only `wake` writes."""

    def _wait_for(self, *fds: int) -> None:
        self._waking = threading.Lock()
        self._wakeup = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._epoll = select.epoll()
        for fd in (self._wakeup, *fds):
            self._epoll.register(fd, select.EPOLLIN)

    def _wait_no_more(self) -> None:
        with self._waking:  # or another thread would write into a descriptor that is no longer ours
            self._epoll.close()
            os.close(self._wakeup)

    def fileno(self) -> int:
        """Readable when something may have come: then `receive(0)` until it gives None."""
        return self._epoll.fileno()

    def _woken(self) -> None:
        """Answers `wake`."""
        with suppress(BlockingIOError):
            os.eventfd_read(self._wakeup)
        self._ready.append(None)

    def wake(self) -> None:
        """Makes `receive` give None, now or when next called; from any thread."""
        with self._waking:
            if not self._epoll.closed:
                os.eventfd_write(self._wakeup, 1)


def opened(
    connect: Callable[[], Connection], begin: Callable[[Connection], Begun]
) -> tuple[Connection, Begun]:
    """A connection, and the result of `begin`; tries anew if the other end dies meanwhile.

    Args:
        connect: Gives a connection to the present other end; may wait for it.
        begin: Exchanges the first messages.
    """
    pause = 0.0
    while True:
        connection = connect()
        try:
            return connection, begin(connection)
        except Disconnected:
            connection.close()
            time.sleep(pause)  # or one that is refused would keep both ends busy
            pause = min(2 * pause + 0.01, _LONGEST_PAUSE)
        except BaseException:
            connection.close()
            raise


def check_size(message: Message, limit_bytes: int) -> None:
    """Raises RunError if the body is more than the other end would take."""
    body = message.body
    size = 0 if body is None else len(body) if isinstance(body, bytes | bytearray) else body.nbytes
    if size > limit_bytes:
        raise RunError(
            f"a message of kind {message.kind} has {size:,} bytes, but the limit is {limit_bytes:,}"
        )


def close_reason(message: Message) -> str:
    """The reason in a listener's LEFT, as text."""
    view = as_bytes(message.body)
    return bytes(view[:500]).decode("utf-8", "replace") if view else "it has closed"
