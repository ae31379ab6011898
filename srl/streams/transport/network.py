"""Connections between hosts: ZeroMQ over TCP, a header and a body as two frames.

A large body is sent from where it lies and read where it arrived, unless it is sealed. The kernel
notices a peer that is cut off or dead (`tcp_watch`); its connection is then closed, as it is
unknown what had arrived.
"""

from __future__ import annotations

import os
import select
import threading
import time
from typing import Any, NamedTuple, cast

import zmq
from zmq.utils.monitor import recv_monitor_message

from srl.streams.transport.interface import Peer, PolledListener
from srl.streams.transport.keys import Keys
from srl.streams.transport.message import JOINED, LEFT, Identity, Message, Refused, encode
from srl.streams.transport.sealing import Sealed, Unsealed
from srl.streams.transport.tcp import (
    COPIED_BYTES,
    MOST_UNREAD,
    STRANGE,
    Security,
    accepted_from,
    bind,
    epoll_of,
    frames_of,
    has_events,
    milliseconds,
    monitor,
    most_early_bytes,
    most_unidentified,
    most_unread_bytes,
    open_socket,
    part_bytes,
    read_bodies,
)
from srl.streams.transport.tcp_watch import TcpConnection, unwatch, watch

_AT_ONCE = 16  # messages read before the LEFT of peers is delivered
_RETRY_MS = 50
_SILENT_SECONDS = 10.0  # that a connection may take to its first message
_NOBODY = Identity(0, 0, 0)


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
        self._most_early = most_early_bytes(limit_bytes, security)
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
            args=(epoll_of(self._monitor),),
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
        wait = milliseconds(0 if self._leaving else timeout)
        self._unsent_closes = [frames for frames in self._unsent_closes if not self._sent(frames)]
        shorter = bool(self._unsent_closes) and (wait is None or wait > _RETRY_MS)
        ready = dict(self._poller.poll(_RETRY_MS if shorter else wait))
        if noticed := self._noticed in ready:
            os.eventfd_read(self._noticed)
        if self._wakeup in ready:
            self._woken()
        more = self._read()
        for _ in range(1, _AT_ONCE):
            if not more or self._large_waits():
                break
            more = self._read()
        if noticed and not more:
            self._end_silent()
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
                epoll.poll(_SILENT_SECONDS / 2)
                if self._silent():
                    os.eventfd_write(self._noticed, 1)  # its message may wait to be read

    def _silent(self) -> list[TcpConnection]:
        """The connections that should have brought a message by now."""
        latest = time.monotonic() - _SILENT_SECONDS
        with self._watching:
            connections = [self._connected.get(fd) for fd in self._unidentified]
        return [each for each in connections if each and each.begun < latest]

    def _end_silent(self) -> None:
        """Ends silent connections; all that came must have been read."""
        for connection in self._silent():
            connection.end(f"no message within {_SILENT_SECONDS:g} s")

    def _watch(self) -> bool:
        """Reads which TCP connections have begun and ended; False when the monitor has."""
        with self._watching:
            while has_events(self._monitor):
                event = recv_monitor_message(self._monitor)
                kind, fd = event["event"], int(event["value"])
                if kind == zmq.EVENT_MONITOR_STOPPED:
                    return False
                if kind == zmq.EVENT_ACCEPTED:
                    self._connected[fd] = watch(fd, self._most_early)
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
        connection = self._connected.get(fd)
        if connection:
            connection.read_bytes += wire
        hung_up = peer is not None and self._peers.get(peer.identity.sender) is not peer
        codec = None
        try:
            codec = peer.route.codec if peer else self._codec(header)
            identity, message = codec.open(header.buffer, parts)
        except Refused as reason:
            if not hung_up:
                self.refuse(peer or "a process that has sent nothing yet", reason)
                if codec is None or codec.broken:
                    peer = peer or self._keep(_NOBODY, Route(route, codec or self._unsealed), fd)
                    self._break_off(peer, fd)
            return True
        if peer:
            if not hung_up:
                self._deliver(peer, identity, message)
            if message.kind == LEFT:
                self._forget(peer)
        elif message.kind != LEFT:
            if connection:
                connection.most_unread = self._most_unread
            self._begin(identity, message, Route(route, codec), fd)
        return True

    def _begin(self, identity: Identity, message: Message, route: Route, fd: int) -> None:
        """Admits or refuses the sender of a first message."""
        if not (peer := self._admit(identity, message, route)):
            self._keep(identity, route, fd)
            return
        self._routes[route.address] = peer
        self._identify(peer, fd)
        if isinstance(route.codec, Sealed):
            self._transmit(peer, Message(JOINED))

    def _keep(self, identity: Identity, route: Route, fd: int) -> Peer:
        """A peer that was never admitted: what comes from it is dropped until it ends."""
        peer = self._routes[route.address] = Peer(identity, route, shares_memory=False)
        with self._watching:
            if fd in self._connected and fd not in self._identified:
                self._identified[fd] = peer
            else:  # its connection has ended, and another may have the number
                self._leaving.append(peer)
        return peer

    def _codec(self, header: zmq.Frame) -> Unsealed:
        """Opens and closes the frames of a peer that has sent nothing before."""
        return self._unsealed

    def _break_off(self, peer: Peer, fd: int) -> None:
        """Ends a connection over which no further message can be read."""
        self._lose(peer)
        with self._watching:
            connection = self._connected.get(fd)
            if connection and self._identified.get(fd) is peer:  # not a later one of this number
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
            peer.route.codec.take_back()
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
            pass
        return True

    def _forget(self, peer: Peer) -> None:
        if self._routes.get(peer.route.address) is peer:
            del self._routes[peer.route.address]
        self._lose(peer)
