"""The speed of sending new parameters to many hosts."""

from __future__ import annotations

import os
import secrets
import subprocess
import time
from contextlib import ExitStack, closing
from typing import Any

import numpy as np

from srl.core.console.arguments import Arguments, listed, number
from srl.core.errors import RunError
from srl.extras.bench.rounds import show
from srl.streams.layout import Layout
from srl.streams.parameters import Publisher
from srl.streams.relay import FAN_OUT, parents
from srl.streams.transport import Identity, listen
from srl.streams.transport.keys import VARIABLE, Keys
from srl.system.child_process import child_command
from tools.bench import PROGRAM
from tools.bench.parameters_host import FOLLOWING

_NOTES = """
Each host is a process of this machine with its supervisor's relay and one worker, which reads from
the memory that they share; between hosts all goes over TCP, at loopback. An update is published
when all have the one before. The value is what the learner sends for each update; `seconds` how
long it takes until the last host has it, the median. On one machine that is the time of all copies
together, which real hosts make side by side.
"""


def main(argv: list[str]) -> int:
    """`bench parameters [--hosts N] [--bytes N] [--fan-out NS] [--keys] ... [--json]`."""
    parser = Arguments("parameters", program=PROGRAM, epilog=_NOTES)
    add, count = parser.add_argument, number(1)
    add("--hosts", type=count, default=64, metavar="N", help="default 64")
    size = "of all parameters; default 4 MB"
    add("--bytes", type=count, default=4_000_000, metavar="N", help=size)
    every = f"hosts that each sends to; default {FAN_OUT}, as in a run"
    add("--fan-out", type=listed(count), default=[FAN_OUT], metavar="NS", help=every)
    add("--updates", type=count, default=20, metavar="N", help="after a first; default 20")
    add("--keys", action="store_true", help="encrypt, as between the hosts of a run")
    add("--json", action="store_true", help="one JSON object a line")
    options = parser.parse_args(argv)
    with ExitStack() as opened:
        hosts = Hosts(options.hosts, options.bytes, Keys.new() if options.keys else None, opened)
        for fan_out in options.fan_out:
            line = hosts.measure(fan_out, options.updates)
            show(line, _text(line), options.json)
    return 0


def _text(line: dict[str, Any]) -> str:
    config = line["config"]
    return (
        f"{config['hosts']:>4} hosts, each sends to {config['fan_out']:>4}   "
        f"{line['value'] / 1e6:>8,.1f} MB sent by the learner for each update of "
        f"{config['bytes'] / 1e6:,.1f} MB   {1e3 * line['seconds']:>8,.1f} ms until the last has it"
    )


class Hosts:
    """A publisher, and the processes that stand for hosts."""

    def __init__(self, number: int, size: int, keys: Keys | None, opened: ExitStack) -> None:
        """Starts them; `opened` ends them."""
        self._keys, self._number = keys, 0
        run = secrets.randbits(63)
        self._tree = {"parameters": np.zeros(max(1, size // 4), np.float32)}
        layout = Layout.of(self._tree)
        self._size = layout.size
        listener = listen(
            "cluster", Identity(run, 0, 0), limit_bytes=layout.size, keys=keys, host="learner"
        )
        self._address = listener.address
        self._publisher = opened.enter_context(closing(Publisher(listener, layout)))
        variables = os.environ | {VARIABLE: keys.to_text() if keys else ""}
        command = child_command("tools.bench.parameters_host", str(run), str(layout.size))
        self._processes = []
        for k in range(1, number + 1):
            process = subprocess.Popen(
                [*command, str(k)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=variables,
            )
            opened.callback(process.wait)
            opened.callback(process.communicate)  # closes its input, and so ends it
            self._processes.append(process)
        self._relays = [self._receive(process) for process in self._processes]

    def measure(self, fan_out: int, updates: int) -> dict[str, Any]:
        """Gives the line that `--json` prints for a tree of this width."""
        names = [str(k) for k in range(len(self._relays))]
        for process, parent in zip(self._processes, parents(names, fan_out), strict=True):
            above = "" if parent is None else self._relays[parent]
            self._send(process, f"{self._address}|{above}")
        for process in self._processes:  # or a busy one's next update may come by the old tree
            while self._receive(process) != FOLLOWING:
                pass
        self._update()  # all have connected then
        sent, seconds = self._publisher.bytes_sent, [self._update() for _ in range(updates)]
        config = {
            "hosts": len(self._relays),
            "bytes": self._size,
            "fan_out": fan_out,
            "updates": updates,
            "keys": self._keys is not None,
        }
        return {
            "name": "parameters",
            "config": config,
            "value": (self._publisher.bytes_sent - sent) / updates,
            "unit": "bytes sent by the learner/update",
            "seconds": float(np.median(seconds)),
            "seconds_all": seconds,
        }

    def _update(self) -> float:
        """Publishes once; gives the seconds until the last host has it."""
        self._number += 1
        begin = time.monotonic()
        self._publisher.publish((0, self._number), self._tree)
        for process in self._processes:
            while int(self._receive(process)) != self._number:
                pass
        return time.monotonic() - begin

    def _send(self, process: subprocess.Popen[str], text: str) -> None:
        assert process.stdin is not None
        process.stdin.write(text + "\n")
        process.stdin.flush()

    def _receive(self, process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise RunError(f"a process that stands for a host has ended with {process.wait()}")
        return line.strip()
