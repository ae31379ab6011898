"""The messages between a process pool and its workers, over sockets of their own.

To a worker: a fixed header, and the ids or the bytes that it counts. From a worker: a record in
the pipe of all workers for each thing done, and rarely a pickled message in its socket. Pickles
pass only between a process and the workers it started itself.
"""

from __future__ import annotations

import fcntl
import os
import pickle
import socket
import struct
import time
from collections import deque
from collections.abc import Callable
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from srl.system.cores import WaitingCore


class CommandKind(IntEnum):
    """The commands to a worker."""

    SETUP = 0
    """Make environments `memory` up to `place`, as pickled; answered by READY or FAILED."""
    CONTROL = 1
    """Map the pool's control, whose descriptor is sent too."""
    MAP = 2
    """Map rows number `memory`, `place` of them, whose descriptor is sent too."""
    FORGET = 3
    """Unmap rows number `memory`."""
    ADVANCE = 4
    """Step the environments of the payload, or all, into row `place` of `memory`; one record."""
    START = 5
    """Step the environments of the payload into row `place` of `memory`; a record for each."""
    RENDER = 6
    """Answer with a PICTURE of environment `place`."""
    CLOSE = 7
    """Close the environments and end."""


READY, FAILED, FAILURES, PICTURE = "ready", "failed", "failures", "picture"

_HEADER = struct.Struct("<4i")
RECORD = struct.Struct("<3i")
"""A message in the pipe: the worker's number, the environment or -1 for all asked, the number of
failures."""
_LENGTH = struct.Struct("<I")
_FDS_SPACE = socket.CMSG_SPACE(16 * 4)


class Command(NamedTuple):
    """One command to a worker."""

    kind: CommandKind
    memory: int
    place: int
    payload: bytes
    fd: int

    @property
    def envs(self) -> list[int]:
        """The payload as environment ids."""
        return np.frombuffer(self.payload, np.int32).tolist()


def send_command(
    connection: socket.socket,
    kind: CommandKind,
    memory: int = 0,
    place: int = 0,
    payload: bytes = b"",
    fd: int | None = None,
) -> None:
    """Sends a command whole."""
    data = _HEADER.pack(kind, memory, place, len(payload)) + payload
    if fd is not None:
        sent = socket.send_fds(connection, [data], [fd])
        data = data[sent:]
    if data:
        connection.sendall(data)


def completions_pipe(num_envs: int) -> tuple[int, int]:
    """Gives both ends of a pipe for records of so many environments; reading never waits."""
    reads, writes = os.pipe()
    os.set_blocking(reads, False)
    # A full pipe would only delay the workers, so the largest that the kernel grants will do.
    for size in (1 << 20, RECORD.size * num_envs):
        try:
            fcntl.fcntl(reads, fcntl.F_SETPIPE_SZ, size)
            break
        except OSError:
            continue
    return reads, writes


SPIN_SECONDS = 3e-4
"""The time that a worker with a dedicated core polls for the next command before it sleeps: it
wakes with cold caches and, on a virtual machine, late."""


class CommandReader:
    """A worker's end: splits what arrives into commands."""

    def __init__(self, connection: socket.socket) -> None:
        self.spin_seconds = 0.0
        self.core = WaitingCore(None)
        """The core to wait for commands on."""
        self.meanwhile: Callable[[bool], None] = lambda _: None
        """Called again and again while waiting, and at last, with True, before it sleeps."""
        self._connection = connection
        self._data = b""
        self._fds: deque[int] = deque()

    def read(self, wait: bool) -> list[Command]:
        """The commands that have come.

        Args:
            wait: Until there is one at least.

        Raises:
            EOFError: When the other end is closed.
        """
        while not (commands := self._split()):
            if wait:
                self._wait()
            elif not self._receive(socket.MSG_DONTWAIT):
                break
        return commands

    def _wait(self) -> None:
        """Waits until something has come."""
        self.core.come_back()
        patience = time.perf_counter() + self.spin_seconds
        while time.perf_counter() < patience:
            self.meanwhile(False)
            if self._receive(socket.MSG_DONTWAIT):
                return
            os.sched_yield()
        self.meanwhile(True)
        with self.core.held():
            self._receive()

    def _receive(self, flags: int = 0) -> bool:
        """Takes in what has come; gives whether anything had."""
        try:
            # Not socket.recv_fds, which leaves out the flags.
            data, ancillary, *_ = self._connection.recvmsg(1 << 16, _FDS_SPACE, flags)
        except BlockingIOError:
            return False
        if not data:
            raise EOFError
        self._data += data
        for level, kind, content in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                self._fds.extend(np.frombuffer(content, np.int32).tolist())
        return True

    def _split(self) -> list[Command]:
        commands: list[Command] = []
        data, start = self._data, 0
        while len(data) - start >= _HEADER.size:
            kind, memory, place, length = _HEADER.unpack_from(data, start)
            body = start + _HEADER.size
            if len(data) < body + length:
                break
            fd = self._fds.popleft() if kind in (CommandKind.CONTROL, CommandKind.MAP) else -1
            commands.append(Command(kind, memory, place, data[body : body + length], fd))
            start = body + length
        self._data = data[start:]
        return commands


def send_message(connection: socket.socket, kind: str, content: Any) -> None:
    """Sends a message to the pool."""
    data = pickle.dumps((kind, content))
    connection.sendall(_LENGTH.pack(len(data)) + data)


def receive_message(connection: socket.socket) -> tuple[str, Any]:
    """Waits for a worker's next message.

    Raises:
        EOFError: When the worker is gone.
        TimeoutError: After the socket's timeout.
    """
    (length,) = _LENGTH.unpack(_receive(connection, _LENGTH.size))
    return pickle.loads(_receive(connection, length))


def _receive(connection: socket.socket, length: int) -> bytes:
    data = bytearray()
    while len(data) < length:
        try:
            part = connection.recv(length - len(data))
        except ConnectionError:
            part = b""
        if not part:
            raise EOFError
        data += part
    return bytes(data)
