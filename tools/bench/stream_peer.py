"""The far end of `bench stream`: sends what it is asked to send."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from srl.streams.transport import Connection, Disconnected, Identity, Message, connect
from srl.streams.transport.keys import keys_from_environment
from srl.system.shared_memory import SharedMemory

SENDER = 1

BLOCKS = 16
"""Map the memory that comes along: counts[0] blocks of counts[1] bytes."""
HAND_OVER = 17
"""Hand over blocks for counts[0] microseconds, each by a BLOCK, as far as they are free."""
SEND = 18
"""Send, for counts[0] microseconds, bodies of counts[1] bytes, each in a BLOCK."""
PUSH = 19
"""The same, by a bare ZeroMQ socket to the PULL whose address is the body; an empty one is last."""
PING = 20
"""Answer with a BLOCK."""
FREE = 21
"""counts[0] blocks have been read."""
BLOCK = 22
"""Block counts[0] is written, or the body is one."""
DONE = 23
"""The time is over."""


def block_count(size: int) -> int:
    """Gives the number of blocks of `size` bytes to keep in flight: 64 MB, in 16 to 64 blocks."""
    return min(64, max(16, (1 << 26) // size))


def limit_bytes(size: int) -> int:
    """The limit of messages, when blocks are of so many bytes."""
    return max(size, 1 << 20)


class FarEnd:
    """Obeys the messages until it is disconnected."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._blocks = np.zeros((0, 0), np.uint8)

    def run(self) -> None:
        """Serves until the near end closes."""
        try:
            while message := self._connection.receive(None):
                self._serve(message)
        except Disconnected:
            self._connection.close()

    def _serve(self, message: Message) -> None:
        counts = message.counts
        if message.kind == BLOCKS:
            memory = SharedMemory.attach(message.fds[0], counts[0] * counts[1])
            memory.close()
            self._blocks = memory.array.reshape(counts[0], counts[1])
        elif message.kind == HAND_OVER:
            self._hand_over(counts[0] / 1e6)
            self._connection.send(Message(DONE))
        elif message.kind == SEND:
            self._send(counts[0] / 1e6, counts[1])
            self._connection.send(Message(DONE))
        elif message.kind == PUSH:
            self._push(counts[0] / 1e6, counts[1], bytes(message.body or b"").decode())
        elif message.kind == PING:
            self._connection.send(Message(BLOCK, message.sequence, counts=counts))

    def _hand_over(self, seconds: float) -> None:
        number = free = len(self._blocks)
        sequence = 0
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            while not free:
                returned = self._connection.receive(None)
                free += returned.counts[0] if returned else 0
            index = sequence % number
            self._blocks[index, :8].view(np.int64)[0] = sequence
            self._connection.send(Message(BLOCK, sequence, counts=(index,)))
            sequence += 1
            free -= 1

    def _send(self, seconds: float, size: int) -> None:
        body = np.zeros(size, np.uint8)
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            self._connection.send(Message(BLOCK, body=body))

    def _push(self, seconds: float, size: int, address: str) -> None:
        import zmq

        body = np.zeros(size, np.uint8)
        with zmq.Context.instance().socket(zmq.PUSH) as socket:
            socket.sndhwm = block_count(size)
            socket.connect(address)
            end = time.perf_counter() + seconds
            while time.perf_counter() < end:
                socket.send(body, copy=size < 1 << 16)
            socket.send(b"")


def connected(address: str, run: int, size: int) -> FarEnd:
    """The far end, connected to the near end's address."""
    identity, keys = Identity(run, SENDER, 0), keys_from_environment()
    return FarEnd(connect(address, identity, limit_bytes=limit_bytes(size), keys=keys))


def main(argv: Sequence[str]) -> None:
    """Runs until it is disconnected; its arguments are those of `connected`."""
    address, run, size = argv
    connected(address, int(run), int(size)).run()
