"""The connecting end between hosts; see `network`."""

from __future__ import annotations

import time
from typing import Any, NoReturn

import zmq
from zmq.utils.monitor import recv_monitor_message

from srl.streams.transport.interface import Connection, Disconnected, close_reason
from srl.streams.transport.keys import Keys
from srl.streams.transport.message import JOINED, LEFT, Identity, Message, Refused, encode
from srl.streams.transport.sealing import TAG_BYTES, Invitation, Unsealed
from srl.streams.transport.tcp import (
    EARLY_BYTES,
    STRANGE,
    Security,
    epoll_of,
    frames_of,
    has_events,
    milliseconds,
    monitor,
    most_early_bytes,
    most_unread_bytes,
    open_socket,
    part_bytes,
    read_bodies,
    wire_bytes,
)
from srl.streams.transport.tcp_watch import TcpConnection, unwatch, watch

_NEVER_MS = 2**31 - 1
"""The time before a connection is begun again. With ZeroMQ's own "never" (-1), or with its option
IMMEDIATE, a socket drops unread messages when the connection ends, also the rest of one that is
being read, and then aborts the process (fq.cpp: !_more)."""
_LOOK_MS = 50


class NetworkConnection(Connection):
    """A DEALER that does not connect again."""

    def __init__(
        self,
        address: str,
        identity: Identity,
        limit_bytes: int,
        timeout: float = 30.0,
        security: Security = None,
        begun: float | None = None,
    ) -> None:
        """Waits for the connection, at most `timeout` seconds; see `connect`.

        They count from `begun` by `time.monotonic`, or else from now.
        """
        begun = time.monotonic() if begun is None else begun
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
        self._epoll = epoll_of(self._socket, self._monitor)
        self._tcp: TcpConnection | None = None
        self._known = self._gone = False
        self._answered = not sealed
        self._most_early = most_early_bytes(limit_bytes, security)
        self._early_bytes = 0  # sent before the answer
        self._reason = "this end has closed"
        try:
            self._socket.connect(address)
        except zmq.ZMQError as error:
            self._end(f"no address of a host: {error.strerror}")
        if not self._handshaken(begun + timeout):
            failure = "it has closed; only processes with the keys of its run can connect"
            self._end(failure if self._gone else f"nothing answers within {timeout:g} s")
        self.send(Message(JOINED))

    def send(self, message: Message) -> None:
        """Sends; waits while the other end is too busy to take it."""
        frames = frames_of(self.identity, message, self.limit_bytes, self._part)
        if not self._answered:
            self._keep_back(frames)
        frames = self._codec.close(frames)
        while not self._socket.closed and self._alive():
            try:
                self._socket.send_multipart(frames, zmq.NOBLOCK, copy=False)
                return
            except zmq.Again:
                self._poller.modify(self._socket, zmq.POLLOUT)
                self._poller.poll()
                self._poller.modify(self._socket, zmq.POLLIN)
        while self.receive(0):  # raises, with the other end's close reason if there is one
            pass

    def _keep_back(self, frames: list[Any]) -> None:
        """Waits for the answer to JOINED before more is sent than a listener takes without."""
        self._early_bytes += sum(wire_bytes(len(frame) + TAG_BYTES, False) for frame in frames)
        if self._early_bytes > EARLY_BYTES and not self._socket.closed:
            received = self._next(None)
            self._answered = True
            if received and received[1].kind == LEFT:
                self._end(close_reason(received[1]))

    def _receive(self, timeout: float | None) -> tuple[Identity, Message] | None:
        deadline = None if timeout is None else time.monotonic() + timeout
        received = self._next(deadline)
        if received and not self._answered:
            self._answered = True
            if received[1].kind == JOINED:
                return self._next(deadline)
        return received

    def _next(self, deadline: float | None) -> tuple[Identity, Message] | None:
        """The next message, of any kind.

        The answer to JOINED is short. So if much has come and nothing can be read, the other end
        has not the keys. While nobody reads, more may wait: the listener sends at any time.
        """
        if self._socket.closed:
            raise Disconnected(f"{self.address}: {self._reason}")
        while True:
            alive = self._alive()  # before the last look, or what came between would be lost
            early = self._tcp.unread_bytes() if self._tcp and not self._answered else 0
            try:
                header = self._socket.recv(zmq.NOBLOCK, copy=False)
                break
            except zmq.Again:
                if not alive:
                    exceeded = self._tcp.exceeded if self._tcp else ""
                    self._end(f"it sent {exceeded}" if exceeded else "it has closed")
                if early > self._most_early:
                    self._end(f"it sent {early:,} bytes without a first message")
            if not self._wait(deadline):
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

    def _wait(self, deadline: float | None) -> bool:
        """Waits until something may have come, or is to be looked for; False at the deadline."""
        wait = milliseconds(None if deadline is None else deadline - time.monotonic())
        if not self._answered and (wait is None or wait > _LOOK_MS):
            self._poller.poll(_LOOK_MS)
            return True
        return bool(self._poller.poll(wait))

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

    def _handshaken(self, deadline: float) -> bool:
        """Waits for the handshake; False if it failed."""
        while self._alive() and not self._known:
            if not self._monitor.poll(milliseconds(deadline - time.monotonic())):
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
        while not self._gone and has_events(self._monitor):
            event = recv_monitor_message(self._monitor)
            if event["event"] == zmq.EVENT_CONNECTED:
                self._tcp = watch(int(event["value"]), self._most_unread)
            elif event["event"] == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._known = True
            else:
                self._gone = True
        return not self._gone
