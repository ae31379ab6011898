"""Connections between hosts: ZeroMQ over TCP, a header and a body as two frames.

A large body is sent from where it lies and read where it arrived. ZeroMQ's heartbeats notice a peer
that is cut off or dead; its connection is then over, as nobody knows what of it had arrived.
"""

from __future__ import annotations

import ipaddress
import math
import os
import select
import time
from collections import deque
from typing import Any, NoReturn, cast

import zmq
from zmq.utils.monitor import recv_monitor_message

from srl.errors import RunError, UserError
from srl.streams.channel import Connection, Disconnected, Listener, Peer, check_size, farewell
from srl.streams.message import (
    HEADER_BYTES,
    JOINED,
    LEFT,
    Identity,
    Message,
    Refused,
    as_bytes,
    decode,
    encode,
)

COPIED_BYTES = 1 << 16
"""A smaller body is copied, which is faster than to share it with ZeroMQ's thread."""
_QUEUED_BYTES = 1 << 24  # of large messages on each side of a connection, before its sender waits
_LEAST_QUEUED = 16
_MOST_UNREAD = 1024
_AT_ONCE = 16  # messages read before peers that left are told of
_LINGER_MS = 2000
_RETRY_MS = 50


def _socket(kind: int, limit_bytes: int) -> zmq.Socket:
    socket = zmq.Context.instance().socket(kind)
    socket.maxmsgsize = max(limit_bytes, HEADER_BYTES)
    socket.linger = _LINGER_MS
    socket.heartbeat_ivl = 1000
    socket.heartbeat_timeout = 3000
    socket.handshake_ivl = 5000
    queued = _QUEUED_BYTES // max(limit_bytes, 1)
    socket.rcvhwm = socket.sndhwm = min(max(queued, _LEAST_QUEUED), _MOST_UNREAD)
    socket.copy_threshold = COPIED_BYTES
    return socket


def _expect_loopback(interface: str) -> None:
    try:
        alone = ipaddress.ip_address(interface).is_loopback
    except ValueError:
        alone = False
    if not alone:
        raise UserError(
            f"cannot listen at {interface}: connections between machines are not encrypted yet; "
            "expected an address of this machine alone, such as 127.0.0.1"
        )


def _frames(identity: Identity, message: Message, limit_bytes: int) -> list[Any]:
    check_size(message, limit_bytes)
    if message.fds:
        raise RunError("descriptors cannot be sent to another host")
    body = as_bytes(message.body)
    header = encode(identity, message, len(body) if body else 0)
    return [header, body] if body else [header]


def _read_frames(socket: zmq.Socket) -> list[memoryview]:
    """The frames that follow the one just read; of what is too much, nothing is kept."""
    frames: list[memoryview] = []
    while socket.rcvmore:
        frame = socket.recv(copy=False)
        if len(frames) < 3:
            frames.append(frame.buffer)
    return frames


def join_frames(
    header: bytes | memoryview, bodies: list[memoryview], limit_bytes: int
) -> tuple[Identity, Message]:
    """The message of these frames.

    Raises:
        Refused: If they are none.
    """
    identity, message, size = decode(header, limit_bytes)
    lengths = [len(body) for body in bodies]
    if lengths != ([size] if size else []) or len(header) != HEADER_BYTES:
        raise Refused(f"bodies of {lengths} bytes after a header of {len(header)} for {size:,}")
    return identity, message._replace(body=bodies[0]) if size else message


def _has_events(monitor: zmq.Socket) -> bool:
    return bool(cast(int, monitor.get(zmq.EVENTS)) & zmq.POLLIN)


def _milliseconds(timeout: float | None) -> int | None:
    return None if timeout is None else math.ceil(1000 * max(timeout, 0))


def _epoll(sockets: tuple[zmq.Socket, ...], *fds: int) -> select.epoll:
    epoll = select.epoll()
    for fd in (*(cast(int, socket.get(zmq.FD)) for socket in sockets), *fds):
        epoll.register(fd, select.EPOLLIN)
    return epoll


class NetworkListener(Listener):
    """A ROUTER; its monitor tells which TCP connections have ended."""

    def __init__(self, identity: Identity, limit_bytes: int, interface: str = "127.0.0.1") -> None:
        """Takes a free port of the interface.

        Raises:
            UserError: If other machines could connect.
        """
        super().__init__(identity, limit_bytes)
        _expect_loopback(interface)
        self._socket = _socket(zmq.ROUTER, limit_bytes)
        self._socket.router_mandatory = True
        self._socket.sndhwm = _MOST_UNREAD
        self._monitor = self._socket.get_monitor_socket(zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED)
        self._wakeup = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._poller = zmq.Poller()
        for readable in (self._socket, self._monitor, self._wakeup):
            self._poller.register(readable, zmq.POLLIN)
        self._epoll = _epoll((self._socket, self._monitor), self._wakeup)
        self._routes: dict[bytes, Peer] = {}
        self._connected: set[int] = set()  # the TCP sockets, and below who speaks over them
        self._speakers: dict[int, Peer] = {}
        self._leaving: list[Peer] = []
        self._farewells: list[list[Any]] = []  # to peers that have no room for them yet
        self._socket.bind(f"tcp://{interface}:*")
        self.address = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)

    def fileno(self) -> int:
        """Readable when something may have come: then `receive(0)` until it gives None."""
        return self._epoll.fileno()

    def wake(self) -> None:
        """Makes `receive` give None, now or when next called; from any thread."""
        os.eventfd_write(self._wakeup, 1)

    def close(self) -> None:
        """Ends all connections."""
        if self._socket.closed:
            return
        for peer in tuple(self._routes.values()):
            self._hang_up(peer.route, "it has closed")
        self._epoll.close()
        self._socket.disable_monitor()
        self._monitor.close(0)
        self._socket.close()
        os.close(self._wakeup)

    def _collect(self, timeout: float | None) -> bool:
        wait = _milliseconds(0 if self._leaving else timeout)
        self._farewells = [frames for frames in self._farewells if not self._sent(frames)]
        shorter = bool(self._farewells) and (wait is None or wait > _RETRY_MS)
        ready = dict(self._poller.poll(_RETRY_MS if shorter else wait))
        if self._monitor in ready:
            self._watch()
        if self._wakeup in ready:
            os.eventfd_read(self._wakeup)
            self._ready.append(None)
        more = self._read()
        for _ in range(1, _AT_ONCE):
            if not more or self._large_waits():
                break
            more = self._read()
        if self._leaving and not more:  # all that they said has been read
            for peer in self._leaving:
                self._forget(peer)
            self._leaving = []
            return True
        return bool(ready) or shorter

    def _large_waits(self) -> bool:
        """Whether a large body was read: the next better comes when that one's memory is free."""
        last = self._ready[-1] if self._ready else None
        return last is not None and len(last[1].body or b"") >= COPIED_BYTES

    def _watch(self) -> None:
        """Reads which TCP connections have begun and ended."""
        while _has_events(self._monitor):
            event = recv_monitor_message(self._monitor)
            fd = int(event["value"])
            if event["event"] == zmq.EVENT_ACCEPTED:
                self._connected.add(fd)
            else:
                self._connected.discard(fd)
                if peer := self._speakers.pop(fd, None):
                    self._leaving.append(peer)

    def _read(self) -> bool:
        """Takes one message; False if there is none."""
        try:
            route = self._socket.recv(zmq.NOBLOCK)
        except zmq.Again:
            return False
        peer = self._routes.get(route)
        # As a frame it can tell over which TCP connection it came; ROUTER itself does not.
        header = self._socket.recv(copy=False) if self._socket.rcvmore else zmq.Frame()
        bodies = _read_frames(self._socket)
        try:
            identity, message = join_frames(header.buffer, bodies, self.limit_bytes)
        except Refused as reason:
            self.refuse(peer or "a process that said nothing yet", reason)
            return True
        if peer:
            self._deliver(peer, identity, message)
            if message.kind == LEFT:
                self._forget(peer)
        elif message.kind != LEFT and (peer := self._admit(identity, message, route)):
            self._routes[route] = peer
            self._speaks(peer, header.get(zmq.SRCFD))
        return True

    def _speaks(self, peer: Peer, fd: int) -> None:
        """Notes whose TCP connection it is, which may have ended already."""
        self._watch()
        if before := self._speakers.pop(fd, None):
            self._leaving.append(before)
        if fd in self._connected:
            self._speakers[fd] = peer
        else:
            self._leaving.append(peer)

    def _transmit(self, peer: Peer, message: Message) -> None:
        frames = [peer.route, *_frames(self.identity, message, self.limit_bytes)]
        if not self._sent(frames):
            self.dropped += 1
            self.cut_off(peer, "it does not read what it is sent")

    def _hang_up(self, route: bytes, reason: str) -> None:
        body = reason.encode()
        frames = [route, encode(self.identity, Message(LEFT), len(body)), body]
        if not self._sent(frames):
            self._farewells.append(frames)
        self._routes.pop(route, None)

    def _sent(self, frames: list[Any]) -> bool:
        """Sends unless there is no room; what is for a peer that has gone is dropped."""
        try:
            self._socket.send_multipart(frames, zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return False
        except zmq.ZMQError:  # unreachable: its LEFT comes when all that it said was read
            self.dropped += 1
        return True

    def _forget(self, peer: Peer) -> None:
        if self._routes.get(peer.route) is peer:
            del self._routes[peer.route]
        self._lose(peer)


class NetworkConnection(Connection):
    """A DEALER that does not connect again."""

    def __init__(
        self, address: str, identity: Identity, limit_bytes: int, timeout: float = 30.0
    ) -> None:
        """Waits for the connection, at most `timeout` seconds."""
        super().__init__(address, identity, limit_bytes)
        self._socket = _socket(zmq.DEALER, limit_bytes)
        self._socket.immediate = True
        self._socket.reconnect_ivl = -1
        self._monitor = self._socket.get_monitor_socket(
            zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED | zmq.EVENT_CLOSED
        )
        self._poller = zmq.Poller()
        self._poller.register(self._monitor, zmq.POLLIN)
        self._poller.register(self._socket, zmq.POLLIN)
        self._epoll = _epoll((self._socket, self._monitor))
        self._trackers: deque[zmq.MessageTracker] = deque()
        self._gone = False
        self._reason = "this end has closed"
        self._socket.connect(address)
        if not self._monitor.poll(_milliseconds(timeout)) or not self._alive():
            self._end(f"nobody answers within {timeout:g} s")
        self.send(Message(JOINED))

    def send(self, message: Message) -> None:
        """Sends; waits while the other end is too busy to take it."""
        frames = _frames(self.identity, message, self.limit_bytes)
        while not self._socket.closed and self._alive():
            try:
                tracker = self._socket.send_multipart(
                    frames, zmq.NOBLOCK, copy=False, track=len(frames[-1]) >= COPIED_BYTES
                )
            except zmq.Again:
                self._poller.modify(self._socket, zmq.POLLOUT)
                self._poller.poll()
                self._poller.modify(self._socket, zmq.POLLIN)
                continue
            if isinstance(tracker, zmq.MessageTracker):
                self._trackers.append(tracker)
            return
        while self.receive(0):  # raises, with the other end's last words if it had any
            pass

    def receive(self, timeout: float | None) -> Message | None:
        """The next message; None after `timeout` seconds without one (None: waits for ever)."""
        deadline = None if timeout is None else time.monotonic() + timeout
        if self._socket.closed:
            raise Disconnected(f"{self.address}: {self._reason}")
        while True:
            alive = self._alive()  # before the last look, or what came between would be lost
            try:
                header = self._socket.recv(zmq.NOBLOCK)
                break
            except zmq.Again:
                if not alive:
                    self._end("it has closed")
            left = None if deadline is None else deadline - time.monotonic()
            if not self._poller.poll(_milliseconds(left)):
                return None
        bodies = _read_frames(self._socket)
        identity, message = join_frames(header, bodies, self.limit_bytes)
        if message.kind == LEFT:
            self._end(farewell(message))
        if identity.run != self.identity.run:
            raise Refused(f"{self.address} answers for run {identity.run:016x}")
        return message

    @property
    def held(self) -> int:
        """How many of the bodies sent last are still to be read where they lie."""
        while self._trackers and self._trackers[0].done:
            self._trackers.popleft()
        return len(self._trackers)

    def wait_held(self, most: int, timeout: float) -> bool:
        """Waits until `held` is at most so many; False if it is more after `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while self.held > most:
            try:
                self._trackers[0].wait(max(0.0, deadline - time.monotonic()))
            except zmq.NotDone:
                return False
        return True

    def fileno(self) -> int:
        """Readable when something may have come: then `receive(0)` until it gives None."""
        return self._epoll.fileno()

    def close(self) -> None:
        """Ends the connection; what was sent before arrives if it can within two seconds."""
        if self._socket.closed:
            return
        if not self._gone:
            try:
                self._socket.send(encode(self.identity, Message(LEFT), 0), zmq.NOBLOCK)
            except zmq.Again:
                pass  # it does not read; the end of the TCP connection tells it
        self._epoll.close()
        self._socket.disable_monitor()
        self._monitor.close(0)
        self._socket.close()

    def _end(self, reason: str) -> NoReturn:
        """Closes, as the other end has; tells why now and at each later call."""
        self._gone = True
        self._reason = reason
        self.close()
        raise Disconnected(f"{self.address}: {reason}")

    def _alive(self) -> bool:
        """Whether the TCP connection still stands."""
        while not self._gone and _has_events(self._monitor):
            event = recv_monitor_message(self._monitor)["event"]
            self._gone = event != zmq.EVENT_HANDSHAKE_SUCCEEDED
        return not self._gone
