"""Connections between hosts: ZeroMQ over TCP, a header and a body as two frames.

A large body is sent from where it lies and read where it arrived, unless it is sealed. The kernel
notices a peer that is cut off or dead (`tcp_watch`); its connection is then closed, as it is
unknown what had arrived.
"""

from __future__ import annotations

import math
import os
import select
import threading
import time
from collections import deque
from typing import Any, NamedTuple, NoReturn, cast

import zmq
from zmq.utils.monitor import recv_monitor_message

from srl.streams.transport.interface import (
    Connection,
    Disconnected,
    Peer,
    PolledListener,
)
from srl.streams.transport.keys import Keys
from srl.streams.transport.message import (
    JOINED,
    LEFT,
    Identity,
    Message,
    Refused,
    encode,
)
from srl.streams.transport.sealing import Invitation, Unsealed
from srl.streams.transport.tcp import (
    COPIED_BYTES,
    MOST_UNREAD,
    STRANGE,
    Security,
    accepted_from,
    bind,
    frames_of,
    monitor,
    most_unidentified,
    most_unread_bytes,
    open_socket,
    part_bytes,
    read_bodies,
)
from srl.streams.transport.tcp_watch import TcpConnection, unwatch, watch

_AT_ONCE = 16  # messages read before the LEFT of peers is delivered
_NEVER_MS = 2**31 - 1
"""The time before a connection is begun again. With ZeroMQ's own "never" (-1), or with its option
IMMEDIATE, a socket drops unread messages when the connection ends, also the rest of one that is
being read, and then aborts the process (fq.cpp: !_more)."""
_RETRY_MS = 50
# A plain number, whose operators are faster than those of enums.
_READABLE = int(zmq.POLLIN)


class Route(NamedTuple):
    """The way to a peer."""

    address: bytes
    """The peer's name on the ROUTER."""
    codec: Unsealed


def _fd(frame: zmq.Frame) -> int:
    """The TCP socket that a frame came over; -1 if there was no frame."""
    try:
        return cast(int, frame.get(zmq.SRCFD))
    except zmq.ZMQError:
        return -1


def _has_events(monitor: zmq.Socket) -> bool:
    return bool(cast(int, monitor.get(zmq.EVENTS)) & _READABLE)


def _milliseconds(timeout: float | None) -> int | None:
    return None if timeout is None else math.ceil(1000 * max(timeout, 0))


def _epoll(*sockets: zmq.Socket) -> select.epoll:
    epoll = select.epoll()
    for socket in sockets:
        epoll.register(cast(int, socket.get(zmq.FD)), select.EPOLLIN)
    return epoll


class NetworkListener(PolledListener):
    """A ROUTER; its monitor reports which TCP connections have ended."""

    shares_memory = False

    def __init__(
        self,
        identity: Identity,
        limit_bytes: int,
        interface: str = "127.0.0.1",
        security: Security = None,
    ) -> None:
        """Takes a free port of the interface.

        Args:
            identity: Of this end.
            limit_bytes: Of one body.
            interface: An address of this host, or the name of one of its network interfaces.
            security: The peers that are admitted.

        Raises:
            UserError: If there is no such interface.
        """
        super().__init__(identity, limit_bytes)
        self._part, self._curve = part_bytes(limit_bytes, security), isinstance(security, Keys)
        self._most_unread = most_unread_bytes(limit_bytes, security)
        self._socket = open_socket(zmq.ROUTER, limit_bytes, security)
        self._socket.router_mandatory = True
        self._socket.sndhwm = MOST_UNREAD
        self.address = bind(self._socket, interface)
        self._monitor = monitor(
            self._socket, zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED | sum(STRANGE)
        )
        self._noticed = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._wait_for(cast(int, self._socket.get(zmq.FD)), self._noticed)
        self._poller = zmq.Poller()
        for readable in (self._socket, self._wakeup, self._noticed):
            self._poller.register(readable, zmq.POLLIN)
        self._unsealed = Unsealed(limit_bytes)
        self._routes: dict[bytes, Peer] = {}
        self._leaving: list[Peer] = []
        self._unsent_closes: list[list[Any]] = []  # to peers that have no room for them yet
        self._watching = threading.Lock()  # guards the monitor and these:
        self._connected: dict[int, TcpConnection | None] = {}
        self._identified: dict[int, Peer] = {}
        self._unidentified: dict[int, str] = {}  # peers' addresses
        self._fault = ""  # ZeroMQ's last report of one of them
        self._most_unidentified = most_unidentified()
        self._watcher = threading.Thread(
            target=self._keep_watch,
            args=(_epoll(self._monitor),),
            name="connections",
            daemon=True,
        )
        self._watcher.start()

    def close(self) -> None:
        """Ends all connections."""
        if self._socket.closed:
            return
        for peer in tuple(self._peers.values()):
            self._hang_up(peer, "it has closed")
        self._wait_no_more()
        self._socket.disable_monitor()  # its last event ends the watcher
        self._watcher.join()
        for connection in self._connected.values():
            unwatch(connection)
        self._monitor.close(0)
        self._socket.close()
        os.close(self._noticed)

    def _collect(self, timeout: float | None) -> bool:
        wait = _milliseconds(0 if self._leaving else timeout)
        self._unsent_closes = [frames for frames in self._unsent_closes if not self._sent(frames)]
        shorter = bool(self._unsent_closes) and (wait is None or wait > _RETRY_MS)
        ready = dict(self._poller.poll(_RETRY_MS if shorter else wait))
        if self._noticed in ready:
            os.eventfd_read(self._noticed)
        if self._wakeup in ready:
            self._woken()
        more = self._read()
        for _ in range(1, _AT_ONCE):
            if not more or self._large_waits():
                break
            more = self._read()
        if self._leaving and not more:  # all that they sent has been read
            with self._watching:
                left, self._leaving = self._leaving, []
            for peer in left:
                self._forget(peer)
            return True
        return bool(ready) or shorter

    def _large_waits(self) -> bool:
        """True if a large body was read: the next one should come when its memory is free."""
        last = self._ready[-1] if self._ready else None
        return last is not None and len(last[1].body or b"") >= COPIED_BYTES

    def _keep_watch(self, epoll: select.epoll) -> None:
        """Reads the monitor in a thread: ZeroMQ itself blocks while that is full."""
        with epoll:
            while self._watch():
                epoll.poll()

    def _watch(self) -> bool:
        """Reads which TCP connections have begun and ended; False when the monitor has."""
        with self._watching:
            while _has_events(self._monitor):
                event = recv_monitor_message(self._monitor)
                kind, fd = event["event"], int(event["value"])
                if kind == zmq.EVENT_MONITOR_STOPPED:
                    return False
                if kind == zmq.EVENT_ACCEPTED:
                    self._connected[fd] = watch(fd, self._most_unread)
                    self._unidentified[fd] = accepted_from(
                        fd, len(self._unidentified) >= self._most_unidentified
                    )
                elif kind == zmq.EVENT_DISCONNECTED:
                    self._disconnected(fd)
                else:
                    self._fault = STRANGE[kind]
        return True

    def _disconnected(self, fd: int) -> None:
        connection = self._connected.pop(fd, None)
        unwatch(connection)
        exceeded = connection.exceeded if connection else ""
        if peer := self._identified.pop(fd, None):
            self._leaving.append(peer)
            os.eventfd_write(self._noticed, 1)
            if exceeded:
                self.refuse(peer, exceeded)
        if address := self._unidentified.pop(fd, ""):
            self.refuse(address, exceeded or self._fault or "it left without a message")
            self._fault = ""

    def _read(self) -> bool:
        """Takes one message; False if there is none."""
        try:
            route = self._socket.recv(zmq.NOBLOCK)
        except zmq.Again:
            return False
        peer = self._routes.get(route)
        # As a frame it has the TCP connection over which it came; ROUTER itself has not.
        header = self._socket.recv(copy=False)
        parts, wire = read_bodies(self._socket, header, self.limit_bytes, self._part, self._curve)
        fd = _fd(header)
        if peer is None:
            self._watch()  # for the present TCP connections
            with self._watching:
                self._unidentified.pop(fd, None)
        if connection := self._connected.get(fd):
            connection.read_bytes += wire
        hung_up = peer is not None and self._peers.get(peer.identity.sender) is not peer
        self._dropped += hung_up
        codec = None
        try:
            codec = peer.route.codec if peer else self._codec(header)
            identity, message = codec.open(header.buffer, parts)
        except Refused as reason:
            if not hung_up:
                self.refuse(peer or "a process that has sent nothing yet", reason)
                if codec is None or codec.broken:
                    self._break_off(peer, fd)
            return True
        if peer:
            if not hung_up:
                self._deliver(peer, identity, message)
            if message.kind == LEFT:
                self._forget(peer)
        elif message.kind != LEFT and (peer := self._admit(identity, message, Route(route, codec))):
            self._routes[route] = peer
            self._identify(peer, fd)
        return True

    def _codec(self, header: zmq.Frame) -> Unsealed:
        """Opens and closes the frames of a peer that has sent nothing before."""
        return self._unsealed

    def _break_off(self, peer: Peer | None, fd: int) -> None:
        """Ends a connection over which no further message can be read."""
        if peer:
            self._lose(peer)
        with self._watching:
            if connection := self._connected.get(fd):
                connection.end()

    def _identify(self, peer: Peer, fd: int) -> None:
        """Assigns a TCP connection, which may have ended already, to its peer."""
        with self._watching:
            if before := self._identified.pop(fd, None):
                self._leaving.append(before)
            if fd in self._connected:
                self._identified[fd] = peer
            else:
                self._leaving.append(peer)

    def _transmit(self, peer: Peer, message: Message) -> None:
        frames = frames_of(self.identity, message, self.limit_bytes, self._part)
        if not self._sent([peer.route.address, *peer.route.codec.close(frames)]):
            self._dropped += 1
            self.cut_off(peer, "it does not read what it is sent")

    def _hang_up(self, peer: Peer, reason: str) -> None:
        body = reason.encode()
        frames = [encode(self.identity, Message(LEFT), len(body)), body]
        frames = [peer.route.address, *peer.route.codec.close(frames)]
        if not self._sent(frames):
            self._unsent_closes.append(frames)

    def _sent(self, frames: list[Any]) -> bool:
        """Sends unless there is no room; what is for a peer that has gone is dropped."""
        try:
            self._socket.send_multipart(frames, zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return False
        except zmq.ZMQError:  # unreachable: its LEFT comes when all that it sent was read
            self._dropped += 1
        return True

    def _forget(self, peer: Peer) -> None:
        if self._routes.get(peer.route.address) is peer:
            del self._routes[peer.route.address]
        self._lose(peer)


class NetworkConnection(Connection):
    """A DEALER that does not connect again."""

    def __init__(
        self,
        address: str,
        identity: Identity,
        limit_bytes: int,
        timeout: float = 30.0,
        security: Security = None,
    ) -> None:
        """Waits for the connection, at most `timeout` seconds; see `connect`."""
        super().__init__(address, identity, limit_bytes)
        self._part, self._curve = part_bytes(limit_bytes, security), isinstance(security, Keys)
        sealed = isinstance(security, Invitation)
        self._codec = security.codec(limit_bytes) if sealed else Unsealed(limit_bytes)
        self._most_unread = most_unread_bytes(limit_bytes, security)
        self._socket = open_socket(zmq.DEALER, limit_bytes, security)
        self._socket.ipv6 = address.startswith("tcp://[")
        self._socket.reconnect_ivl = _NEVER_MS
        self._monitor = monitor(
            self._socket,
            zmq.EVENT_CONNECTED
            | zmq.EVENT_HANDSHAKE_SUCCEEDED
            | zmq.EVENT_DISCONNECTED
            | zmq.EVENT_CLOSED
            | sum(STRANGE),
        )
        self._poller = zmq.Poller()
        self._poller.register(self._monitor, zmq.POLLIN)
        self._poller.register(self._socket, zmq.POLLIN)
        self._epoll = _epoll(self._socket, self._monitor)
        self._trackers: deque[zmq.MessageTracker] = deque()
        self._tcp: TcpConnection | None = None
        self._known = self._gone = False
        self._reason = "this end has closed"
        try:
            self._socket.connect(address)
        except zmq.ZMQError as error:
            self._end(f"no address of a host: {error.strerror}")
        if not self._handshaken(timeout):
            failure = "it has closed; only processes with the keys of its run can connect"
            self._end(failure if self._gone else f"nothing answers within {timeout:g} s")
        self.send(Message(JOINED))

    def send(self, message: Message) -> None:
        """Sends; waits while the other end is too busy to take it."""
        frames = frames_of(self.identity, message, self.limit_bytes, self._part)
        shared = len(frames[-1]) >= COPIED_BYTES and not self._codec.copies
        frames = self._codec.close(frames)
        while not self._socket.closed and self._alive():
            try:
                tracker = self._socket.send_multipart(frames, zmq.NOBLOCK, copy=False, track=shared)
            except zmq.Again:
                self._poller.modify(self._socket, zmq.POLLOUT)
                self._poller.poll()
                self._poller.modify(self._socket, zmq.POLLIN)
                continue
            if shared:
                self._drop_trackers()
                self._trackers.append(cast(zmq.MessageTracker, tracker))
            return
        while self.receive(0):  # raises, with the other end's close reason if there is one
            pass

    def _receive(self, timeout: float | None) -> tuple[Identity, Message] | None:
        deadline = None if timeout is None else time.monotonic() + timeout
        if self._socket.closed:
            raise Disconnected(f"{self.address}: {self._reason}")
        while True:
            alive = self._alive()  # before the last look, or what came between would be lost
            try:
                header = self._socket.recv(zmq.NOBLOCK, copy=False)
                break
            except zmq.Again:
                if not alive:
                    exceeded = self._tcp.exceeded if self._tcp else ""
                    self._end(f"it sent {exceeded}" if exceeded else "it has closed")
            left = None if deadline is None else deadline - time.monotonic()
            if not self._poller.poll(_milliseconds(left)):
                return None
        parts, wire = read_bodies(self._socket, header, self.limit_bytes, self._part, self._curve)
        if self._tcp:
            self._tcp.read_bytes += wire
        try:
            return self._codec.open(header.buffer, parts)
        except Refused as reason:
            if self._codec.broken:
                self._end(f"it sent {reason}")
            raise

    @property
    def held(self) -> int:
        """The number of the last bodies that are still to be read from their own memory."""
        self._drop_trackers()
        return len(self._trackers)

    def _drop_trackers(self) -> None:
        """Drops those of bodies that have been read."""
        while self._trackers and self._trackers[0].done:
            self._trackers.popleft()

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
                frames = self._codec.close([encode(self.identity, Message(LEFT), 0)])
                self._socket.send_multipart(frames, zmq.NOBLOCK)
            except zmq.Again:
                pass  # it does not read; the end of the TCP connection shows it
        unwatch(self._tcp)
        self._epoll.close()
        self._socket.disable_monitor()
        self._monitor.close(0)
        self._socket.close()

    def _handshaken(self, timeout: float) -> bool:
        """Waits for the handshake; False if it failed."""
        deadline = time.monotonic() + timeout
        while self._alive() and not self._known:
            if not self._monitor.poll(_milliseconds(deadline - time.monotonic())):
                return False
        return self._known

    def _end(self, reason: str = "it has closed") -> NoReturn:
        """Closes, as the other end has; raises the reason now and at each later call."""
        self._gone = True
        self._reason = reason
        self.close()
        raise Disconnected(f"{self.address}: {reason}")

    def _alive(self) -> bool:
        """True while the TCP connection stands."""
        while not self._gone and _has_events(self._monitor):
            event = recv_monitor_message(self._monitor)
            if event["event"] == zmq.EVENT_CONNECTED:
                self._tcp = watch(int(event["value"]), self._most_unread)
            elif event["event"] == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._known = True
            else:
                self._gone = True
        return not self._gone
