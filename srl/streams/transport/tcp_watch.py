"""Watches the TCP connections below ZeroMQ's sockets, by the kernel's statistics.

ZeroMQ has heartbeats, but they abort the process when a peer dies while its queue is full. And it
takes in all frames of a message, however many, before the first can be read. So one thread of each
process shuts down connections over which nothing is acknowledged any more, and those that have
brought in far more than may wait; ZeroMQ then reports their end as that of any other.

An idle connection is probed by the kernel itself (TCP keepalive, see `open_socket`), which does not
probe while sent data is unacknowledged and would try to send that for many minutes.
"""

from __future__ import annotations

import fcntl
import socket
import struct
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

KEEPALIVE_SECONDS, KEEPALIVE_PROBES = 1, 3
"""An idle connection is probed so often, and is over when so many probes were not answered."""
_QUIET_MS = 3000  # without any packet from the other end
_DOUBTED_SECONDS = 1.0  # as the answer may be on its way when the connection is looked at
_LOOK_SECONDS = 0.05
_LONGEST_PAUSE = 1.0
_WORK_SHARE = 50  # the thread pauses at least so many times longer than it works
# struct tcp_info of Linux: probes; unacked; last_data_recv and last_ack_recv; bytes_received.
_INFO = struct.Struct("<3xB20xI24xII68xQ")


class TcpConnection:
    """One TCP connection that belongs to ZeroMQ."""

    def __init__(self, fd: int, most_unread: int) -> None:
        """Does not own the descriptor: ZeroMQ closes it at any time.

        Args:
            fd: The connection's descriptor, as ZeroMQ reports it.
            most_unread: Bytes that may have come over it and not been read from the ZeroMQ socket.

        Raises:
            OSError: If it has ended already.
        """
        self.fd = fd
        self.read_bytes = 0
        """Bytes read from the ZeroMQ socket; its owner counts them."""
        self.exceeded = ""
        """Why it was shut down, if it did not keep to a limit."""
        self.most_unread = most_unread
        self.begun = time.monotonic()
        self._doubted_since: float | None = None
        with _borrowed(fd) as opened:
            self._ends = opened.getsockname(), opened.getpeername()

    def look(self, now: float) -> None:
        """Shuts it down if the other end is out of reach, or does not keep to its limit."""
        try:
            with _borrowed(self.fd) as opened:
                info = opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO.size)
                probes, unacked, *quiet, received = _INFO.unpack(info)
                exceeded = self._check_unread(received)
                lost = self._is_lost(now, bool(probes or unacked), min(quiet))
            if exceeded or lost:
                self.end(exceeded)
        except OSError:
            pass  # it has ended, which ZeroMQ reports

    def unread_bytes(self) -> int:
        """The bytes that ZeroMQ has taken in and its owner has not read; 0 if it has ended."""
        with suppress(OSError), _borrowed(self.fd) as opened:
            info = opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO.size)
            return self._unread(_INFO.unpack(info)[-1])
        return 0

    def end(self, exceeded: str = "") -> None:
        """Shuts it down, perhaps for what it brought in; ZeroMQ reports its end."""
        with suppress(OSError), _borrowed(self.fd) as opened:
            # ZeroMQ may have closed it, and the number may be another file's by now.
            if self._ends == (opened.getsockname(), opened.getpeername()):
                self.exceeded = exceeded
                opened.shutdown(socket.SHUT_RDWR)

    def _is_lost(self, now: float, awaits_answer: bool, quiet_ms: int) -> bool:
        """Tells if sent bytes are not acknowledged, and nothing else comes either."""
        if not awaits_answer or quiet_ms < _QUIET_MS:
            self._doubted_since = None
            return False
        if self._doubted_since is None:
            self._doubted_since = now
        return now - self._doubted_since >= _DOUBTED_SECONDS

    def _check_unread(self, received: int) -> str:
        """The error if too many bytes came and were not read yet; else empty."""
        if received - self.read_bytes <= self.most_unread:
            return ""
        unread = self._unread(received)
        if unread <= self.most_unread:
            return ""
        return f"{unread:,} bytes that were not read yet; at most {self.most_unread:,} may wait"

    def _unread(self, received: int) -> int:
        in_kernel = struct.unpack("i", fcntl.ioctl(self.fd, termios.FIONREAD, b"\0" * 4))[0]
        return received - in_kernel - self.read_bytes


class _Watch:
    """All connections of this process, and the thread that looks at them."""

    def __init__(self) -> None:
        self._watched: set[TcpConnection] = set()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def add(self, connection: TcpConnection) -> None:
        with self._changed:
            self._watched.add(connection)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="tcp watch", daemon=True)
                self._thread.start()
            self._changed.notify()

    def remove(self, connection: TcpConnection) -> None:
        with self._changed:
            self._watched.discard(connection)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._watched)
                watched = tuple(self._watched)
            begun = time.monotonic()
            for connection in watched:
                connection.look(begun)
            pause = max(_LOOK_SECONDS, _WORK_SHARE * (time.monotonic() - begun))
            time.sleep(min(pause, _LONGEST_PAUSE))


_watch = _Watch()


def watch(fd: int, most_unread: int) -> TcpConnection | None:
    """Watches a connection from now on; None if it has ended already. See `TcpConnection`."""
    try:
        connection = TcpConnection(fd, most_unread)
    except OSError:
        return None
    _watch.add(connection)
    return connection


def unwatch(connection: TcpConnection | None) -> None:
    """Stops watching a connection."""
    if connection is not None:
        _watch.remove(connection)


@contextmanager
def _borrowed(fd: int) -> Iterator[Any]:
    """A socket object for a descriptor that others own."""
    borrowed = socket.socket(fileno=fd)
    try:
        yield borrowed
    finally:
        borrowed.detach()
