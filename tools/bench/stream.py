"""The speed of blocks and messages between threads, processes and hosts."""

from __future__ import annotations

import itertools
import os
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np

from srl.core.console.arguments import Arguments, listed, number, one_of
from srl.core.errors import RunError
from srl.extras.bench.rounds import (
    add_rounds,
    comparison,
    in_turns,
    median,
    neighbouring_ratios,
    show,
)
from srl.streams.layout import Layout
from srl.streams.transport import Identity, Message, listen
from srl.streams.transport.keys import VARIABLE, Keys
from srl.system.child_process import child_command
from srl.system.shared_memory import SharedMemory
from tools.bench import PROGRAM
from tools.bench.stream_peer import (
    BLOCK,
    BLOCKS,
    DONE,
    FREE,
    HAND_OVER,
    PING,
    PUSH,
    SEND,
    block_count,
    connected,
    limit_bytes,
)

_PATIENCE_SECONDS = 60.0
_PINGS = 500
_TRANSPORTS = ("thread", "host", "network")
_NOTES = """
thread and host: blocks in shared memory are handed over, each by one message; the value is the time
for each when they follow upon each other, the latency that of one when its reader sleeps.

network: the blocks themselves are sent to another process over TCP; the value is the throughput.

With --keys, once more as between hosts: encrypted, and with keys that are looked at.

With --vs zmq, a bare ZeroMQ PUSH and PULL do the same over TCP, in turns.
"""


def main(argv: list[str]) -> int:
    """`bench stream [--transport NAMES] [--bytes NS] [--keys] [--vs zmq] ... [--json]`."""
    parser = Arguments("stream", program=PROGRAM, epilog=_NOTES)
    add = parser.add_argument
    transports = listed(one_of(*_TRANSPORTS))
    add("--transport", type=transports, default=_TRANSPORTS, metavar="NAMES", help="default: all")
    sizes = listed(number(8, 1 << 28))
    add("--bytes", type=sizes, default="1000,65536,1000000,10000000", metavar="NS", help="a block")
    add("--keys", action="store_true", help="measure the network with a run's keys, too")
    add("--vs", choices=("zmq",), help="compare the network with bare ZeroMQ")
    add_rounds(parser, 3.0)
    options = parser.parse_args(argv)
    for transport, size in itertools.product(options.transport, options.bytes):
        vs = options.vs if transport == "network" else None
        for keys in (None, Keys.new()) if options.keys and transport == "network" else (None,):
            line = bench_stream(transport, size, vs, options.seconds, options.rounds, keys)
            show(line, _text(line), options.json)
    return 0


def bench_stream(
    transport: str,
    size: int,
    vs: str | None,
    seconds: float,
    rounds: int,
    keys: Keys | None,
) -> dict[str, Any]:
    """Measures one transport, with blocks of `size` bytes; gives the line that `--json` prints."""
    line: dict[str, Any] = {"name": "stream", "config": {"transport": transport, "bytes": size}}
    if keys is not None:
        line["config"]["keys"] = True
    with ExitStack() as opened:
        near = NearEnd(transport, size, opened, keys)
        sides = {"own": near.sent if transport == "network" else near.handed_over}
        if vs:
            line["config"]["vs"] = vs
            sides["vs"] = near.pushed
        rates = in_turns(sides, seconds, rounds)
        latency = near.latency_us()
    rate = median(rates["own"])
    if transport == "network":
        line |= {"value": rate, "unit": "MB/s"}
    else:
        line |= {"value": 1e6 / rate, "unit": "us/block"}
    line |= {"latency_us": latency, "rates": rates["own"]}
    if vs:
        line |= comparison(rates["vs"], neighbouring_ratios(rates["own"], rates["vs"]))
    return line


def _text(line: dict[str, Any]) -> str:
    config = line["config"]
    name = "keys" if "keys" in config else config["transport"]
    text = f"{name:8} {config['bytes']:>12,} bytes  {line['value']:>10,.1f} "
    text += f"{line['unit']:8}  latency {line['latency_us']:>8,.1f} us"
    if "ratio" in line:
        text += f"  {config['vs']} {line['vs_value']:>10,.1f}  ratio {line['ratio']:.2f}"
        text += f" from {line['ratio_min']:.2f} to {line['ratio_max']:.2f}"
    return text


class NearEnd:
    """The end that listens, starts the far end, and reads what that sends."""

    def __init__(self, transport: Any, size: int, opened: ExitStack, keys: Keys | None) -> None:
        """Waits until the far end has joined; `opened` ends it.

        Raises:
            RunError: If it does not join.
        """
        run = int.from_bytes(os.urandom(8), "little")
        identity = Identity(run, 0, 0)
        self._listener = listen(transport, identity, limit_bytes=limit_bytes(size), keys=keys)
        opened.callback(_start(transport, self._listener.address, run, size, keys))
        opened.callback(self._listener.close)
        self._size = size
        self._peer, _ = self._next()
        self._layout = Layout.of(np.zeros(size // 8, np.int64))
        number, stride = block_count(size), self._layout.size
        memory = SharedMemory.create(number * stride)
        opened.callback(memory.close)
        self._blocks = memory.array.reshape(number, stride)
        if transport != "network":
            self._send(Message(BLOCKS, counts=(number, stride), fds=(memory.fd,)))

    def handed_over(self, seconds: float) -> float:
        """Blocks a second, by reference."""
        self._send(Message(HAND_OVER, counts=(round(1e6 * seconds),)))
        count, half = 0, len(self._blocks) // 2
        begin = time.perf_counter()
        while (message := self._next()[1]).kind != DONE:
            block = self._layout.views(self._blocks[message.counts[0]])
            if block[0] != message.sequence:
                raise RunError(f"block {message.sequence} holds {block[0]}")
            count += 1
            if count % half == 0:
                self._send(Message(FREE, counts=(half,)))
        return count / (time.perf_counter() - begin)

    def sent(self, seconds: float) -> float:
        """Megabytes a second, as bodies of messages."""
        self._send(Message(SEND, counts=(round(1e6 * seconds), self._size)))
        count = 0
        begin = time.perf_counter()
        while self._next()[1].kind != DONE:
            count += 1
        return self._megabytes(count, begin)

    def pushed(self, seconds: float) -> float:
        """Megabytes a second by a bare PUSH and PULL."""
        import zmq

        with zmq.Context.instance().socket(zmq.PULL) as socket:
            socket.rcvhwm = block_count(self._size)
            socket.rcvtimeo = round(1000 * _PATIENCE_SECONDS)
            port = socket.bind_to_random_port("tcp://127.0.0.1")
            address = f"tcp://127.0.0.1:{port}".encode()
            counts = (round(1e6 * seconds), self._size)
            self._send(Message(PUSH, counts=counts, body=address))
            count = 0
            begin = time.perf_counter()
            while len(socket.recv(copy=False)):
                count += 1
            return self._megabytes(count, begin)

    def latency_us(self) -> float:
        """Microseconds from a message's sending to its sleeping reader, the median."""
        times = []
        for ping in range(_PINGS):
            begin = time.perf_counter()
            self._send(Message(PING, ping, counts=(0,)))
            while self._next()[1].kind != BLOCK:
                pass
            times.append(time.perf_counter() - begin)
        return 1e6 * float(np.median(times)) / 2

    def _megabytes(self, count: int, begin: float) -> float:
        return count * self._size / (time.perf_counter() - begin) / 1e6

    def _send(self, message: Message) -> None:
        self._listener.send(self._peer, message)

    def _next(self) -> tuple[Any, Message]:
        got = self._listener.receive(_PATIENCE_SECONDS)
        if got is None:
            raise RunError(f"the far end has sent nothing for {_PATIENCE_SECONDS:g} s")
        return got


def _start(
    transport: str, address: str, run: int, size: int, keys: Keys | None
) -> Callable[[], Any]:
    """Starts the far end, in a thread or a process; gives what waits for its end."""
    if transport == "thread":
        thread = threading.Thread(target=connected(address, run, size).run)
        thread.start()
        return thread.join
    code = child_command("tools.bench.stream_peer", address, str(run), str(size))
    variables = {VARIABLE: keys.to_text() if keys else ""}
    return subprocess.Popen(code, env=os.environ | variables).wait
