"""Connections within a host: sequenced packets over Unix sockets in the abstract namespace.

No file can go stale, a dead peer shows at once, and descriptors can be passed. A body that does not
fit into a packet lies in shared memory whose descriptor comes with the header.
"""

from __future__ import annotations

import os
import select
import socket
import struct
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from srl.core.errors import RunError
from srl.streams.transport.interface import (
    Connection,
    Disconnected,
    Peer,
    PolledListener,
    check_size,
)
from srl.streams.transport.message import (
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
from srl.system.shared_memory import SharedMemory

INLINE_BYTES = 1 << 17
"""A larger body goes through shared memory."""
MOST_FDS = 16
_SEND_BUFFER = 1 << 21
_ANCILLARY_BYTES = socket.CMSG_SPACE((MOST_FDS + 1) * 4)
# As plain numbers, whose operators are faster than those of enums.
_READ_FLAGS = int(socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC)
_CUT = int(socket.MSG_TRUNC | socket.MSG_CTRUNC)
_AT_ONCE = 16  # packets read from one peer before another one's turn
_BACKLOG_MESSAGES = 1024
_PEER_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid


def this_host() -> str:
    """A name for the range in which this process's socket names are known: this boot of this host.

    Such names belong to a network namespace, so each of these is a host of its own.
    """
    start = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{start}/{os.stat('/proc/self/ns/net').st_ino}"


class Packet(NamedTuple):
    """A message as it is written to the socket."""

    buffers: list[Any]
    fds: tuple[int, ...]
    owned: tuple[int, ...] = ()
    """The descriptors among `fds` that are closed with the packet."""

    def kept(self) -> Packet:
        """The packet for later, when the sender may have closed its descriptors."""
        own = tuple(fd if fd in self.owned else os.dup(fd) for fd in self.fds)
        return self._replace(fds=own, owned=own)

    def close(self) -> None:
        """Closes what the packet owns."""
        for fd in self.owned:
            os.close(fd)


class Link:
    """One end of a connected socket, which reads and writes whole messages."""

    def __init__(self, connected: socket.socket, identity: Identity, limit_bytes: int) -> None:
        self.socket = connected
        self.peer: Peer | None = None
        """The peer, once it was admitted."""
        self.backlog: deque[Packet] = deque()
        """Packets that the socket does not take yet."""
        self._identity = identity
        self._limit_bytes = limit_bytes
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)

    def same_user(self) -> bool:
        """True if the other end is a process of this user."""
        size = _PEER_CREDENTIALS.size
        credentials = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
        return _PEER_CREDENTIALS.unpack(credentials)[1] == os.getuid()

    def pack(self, message: Message) -> Packet:
        """Writes the header, and a large body into memory of its own."""
        check_size(message, self._limit_bytes)
        if len(message.fds) > MOST_FDS:
            raise RunError(f"{len(message.fds)} descriptors; at most {MOST_FDS} can be passed")
        body = as_bytes(message.body)
        if body is None:
            return Packet([encode(self._identity, message, 0)], message.fds)
        header = encode(self._identity, message, len(body))
        if len(body) <= INLINE_BYTES:
            return Packet([header, body], message.fds)
        memory = SharedMemory.create(len(body))
        memory.array[:] = body
        return Packet([header], (*message.fds, memory.fd), (memory.fd,))

    def write(self, packet: Packet, flags: int = 0) -> None:
        """Sends a packet and closes it.

        Raises:
            BlockingIOError: If the socket is full and `flags` forbid waiting; it is kept then.
            OSError: If the other end has gone.
        """
        passed = struct.pack(f"{len(packet.fds)}i", *packet.fds)
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, passed)] if passed else ()
        try:
            self.socket.sendmsg(packet.buffers, ancillary, flags)
        except BlockingIOError:
            raise
        except OSError:
            packet.close()
            raise
        packet.close()

    def read(self, buffer: bytearray) -> tuple[Identity, Message] | None:
        """The next message; None if there is none yet.

        Raises:
            Refused: If what came is not a message.
            EOFError: If the other end has gone.
        """
        try:
            size, ancillary, flags, _ = self.socket.recvmsg_into(
                [buffer], _ANCILLARY_BYTES, _READ_FLAGS
            )
        except BlockingIOError:
            return None
        except ConnectionResetError:  # it has not read all; its own messages are still here
            return self.read(buffer)
        if not size:
            raise EOFError
        fds = _passed(ancillary)
        try:
            if flags & _CUT:
                raise Refused(f"a packet of more than {len(buffer):,} bytes or {MOST_FDS} files")
            identity, message, body_size = decode(memoryview(buffer)[:size], self._limit_bytes)
            inline = size - HEADER_BYTES
            if inline != body_size and (inline or not fds):
                raise Refused(f"a body of {inline:,} bytes, announced as {body_size:,}")
            if inline == body_size:
                body = bytes(memoryview(buffer)[HEADER_BYTES:size]) if inline else None
                return identity, message._replace(body=body, fds=fds) if body or fds else message
            fds, memory = fds[:-1], fds[-1]
            return identity, message._replace(body=_body(memory, body_size), fds=fds)
        except Refused:
            for fd in fds:
                os.close(fd)
            raise

    def close(self) -> None:
        """Lets go of the socket and of what was not sent."""
        self.socket.close()
        while self.backlog:
            self.backlog.popleft().close()


def _passed(ancillary: list[tuple[int, int, bytes]]) -> tuple[int, ...]:
    """The descriptors that came with a packet."""
    fds: list[int] = []
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds += struct.unpack(f"{len(data) // 4}i", data[: len(data) // 4 * 4])
    return tuple(fds)


def _body(fd: int, size: int) -> Any:
    try:
        memory = SharedMemory.attach(fd, size)
    except RunError as error:
        raise Refused(str(error)) from error
    memory.close()
    return memory.array


class UnixListener(PolledListener):
    """Waits for packets of all peers at once, and for room to write."""

    shares_memory = True

    def __init__(self, identity: Identity, limit_bytes: int) -> None:
        """Takes an abstract name that the kernel chooses."""
        super().__init__(identity, limit_bytes)
        kind = socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK
        self._socket = socket.socket(socket.AF_UNIX, kind)
        self._socket.bind("")
        self._socket.listen(4096)
        self.address = "unix:" + self._socket.getsockname()[1:].decode("ascii")
        self._wait_for(self._socket.fileno())
        self._links: dict[int, Link] = {}
        self._buffer = bytearray(HEADER_BYTES + INLINE_BYTES)

    def close(self) -> None:
        """Ends all connections."""
        if not self._epoll.closed:
            for link in tuple(self._links.values()):
                self._forget(link)
            for unread in filter(None, self._ready):
                unread[1].close_fds()
            self._ready.clear()
            self._socket.close()
            self._wait_no_more()

    def _collect(self, timeout: float | None) -> bool:
        events = self._epoll.poll(None if timeout is None else max(timeout, 0))
        for fd, event in events:
            if fd == self._socket.fileno():
                self._accept()
            elif fd == self._wakeup:
                self._woken()
            elif link := self._links.get(fd):  # unless it was cut off a moment ago
                if event & select.EPOLLOUT:
                    self._flush(link)
                if event & ~select.EPOLLOUT:
                    self._read(link)
        return bool(events)

    def _accept(self) -> None:
        connected, _ = self._socket.accept()
        link = Link(connected, self.identity, self.limit_bytes)
        if link.same_user():
            self._links[connected.fileno()] = link
            self._epoll.register(connected.fileno(), select.EPOLLIN)
        else:
            self.refuse("a process of another user", "only this user's may connect")
            link.close()

    def _read(self, link: Link) -> None:
        for _ in range(_AT_ONCE):
            try:
                packet = link.read(self._buffer)
            except Refused as reason:
                self.refuse(link.peer or "a process that has sent nothing yet", reason)
                if link.peer is None:
                    self._forget(link)
                    return
                continue
            except (EOFError, OSError):
                self._forget(link)
                if link.peer:
                    self._lose(link.peer)
                return
            if packet is None:
                return
            identity, message = packet
            if link.peer:
                self._deliver(link.peer, identity, message)
            else:
                link.peer = self._admit(identity, message, link)
            if link.socket.fileno() < 0:
                return

    def _transmit(self, peer: Peer, message: Message) -> None:
        link: Link = peer.route
        packet = link.pack(message)
        if not link.backlog:
            try:
                return link.write(packet, socket.MSG_DONTWAIT)
            except BlockingIOError:
                self._epoll.modify(link.socket.fileno(), select.EPOLLIN | select.EPOLLOUT)
            except OSError:  # its LEFT comes when all that it sent was read
                return None
        link.backlog.append(packet.kept())
        if len(link.backlog) > _BACKLOG_MESSAGES:
            self.cut_off(peer, "it does not read what it is sent")
        return None

    def _flush(self, link: Link) -> None:
        while link.backlog:
            packet = link.backlog.popleft()
            try:
                link.write(packet, socket.MSG_DONTWAIT)
            except BlockingIOError:
                link.backlog.appendleft(packet)
                return
            except OSError:  # it has gone: the next read notices
                continue
        self._epoll.modify(link.socket.fileno(), select.EPOLLIN)

    def _hang_up(self, peer: Peer, reason: str) -> None:
        link: Link = peer.route
        with suppress(OSError):  # it has gone already, or is the one that does not read
            link.write(link.pack(Message(LEFT, body=reason.encode())), socket.MSG_DONTWAIT)
        self._forget(link)

    def _forget(self, link: Link) -> None:
        if self._links.pop(link.socket.fileno(), None):
            self._epoll.unregister(link.socket.fileno())
        link.close()


class UnixConnection(Connection):
    """A connection to a listener on this host."""

    def __init__(self, address: str, identity: Identity, limit_bytes: int) -> None:
        super().__init__(address, identity, limit_bytes)
        connected = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._link = Link(connected, identity, limit_bytes)
        self._buffer = bytearray(HEADER_BYTES + INLINE_BYTES)
        try:
            connected.connect("\0" + address.removeprefix("unix:"))
        except OSError as error:
            connected.close()
            raise Disconnected(f"nothing listens at {address}: {error.strerror}") from error
        if not self._link.same_user():
            connected.close()
            raise Disconnected(f"{address} belongs to another user")
        self._poll = select.poll()
        self._poll.register(connected.fileno(), select.POLLIN)
        self.send(Message(JOINED))

    def send(self, message: Message) -> None:
        """Sends; waits while the other end is too busy to take it."""
        try:
            self._link.write(self._link.pack(message))
        except OSError as error:
            self._read_to_the_end()
            raise Disconnected(f"{self.address}: {error.strerror}") from error

    def _read_to_the_end(self) -> None:
        """Drops what a peer that has gone had sent.

        Raises:
            Disconnected: With the reason that it has given, if it did.
        """
        while True:
            try:
                message = self.receive(0)
            except Refused:  # the reason may come after it
                continue
            if message is None:
                return
            message.close_fds()

    def _receive(self, timeout: float | None) -> tuple[Identity, Message] | None:
        try:
            while (packet := self._link.read(self._buffer)) is None:
                if not self._poll.poll(None if timeout is None else 1000 * timeout):
                    return None
        except (EOFError, OSError) as error:
            raise Disconnected(f"{self.address}: {self._close_reason}") from error
        return packet

    def fileno(self) -> int:
        """Readable when something may have come: then `receive(0)` until it gives None."""
        return self._link.socket.fileno()

    def close(self) -> None:
        """Ends the connection; what was sent before still arrives."""
        self._link.close()
