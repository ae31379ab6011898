"""Measurements of a run's processes: CPU time, memory and progress."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from srl.core.errors import RunError
from srl.dataflow.plan import Plan
from srl.launch.hosts.hosts import ThisHost, WorkerMessage
from srl.system.supervised import Child
from srl.workers.control import ControlMessage, unpack
from srl.workers.worker_spec import WorkerSpec

_TICKS = os.sysconf("SC_CLK_TCK")
CONTROLLER = "controller"
"""The role of this process, beside the plan's fragments."""


class Report(NamedTuple):
    """The last report of a worker's progress."""

    time: float
    """When it arrived, by `time.perf_counter`."""
    counters: Mapping[str, float]
    """The growth of each counter since the worker began."""


@dataclass(frozen=True)
class Snapshot:
    """The resource use of all processes until one moment."""

    time: float
    """When it was taken, by `time.perf_counter`."""
    pids: Mapping[str, int]
    cpu: Mapping[str, float]
    """Seconds of user and system time, by name."""
    memory: Mapping[str, int]
    """Bytes, by name; what processes share is divided among them."""
    reports: Mapping[str, Report]
    messages: int
    """Messages that the controller has received."""
    machine: tuple[float, float]
    """Seconds of all cores together: busy, and in all."""


class WatchedHost(ThisHost):
    """This machine, with an eye on each worker."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.messages = 0
        """Messages that the controller has received."""
        self.reports: dict[str, Report] = {}
        """The last report of each worker, by name, such as actors-3."""
        self._pids: dict[str, int] = {}
        self._names: dict[int, str] = {}

    def start(
        self, spec: WorkerSpec, log: Path, *, accounts: bool, slot: int | None = None
    ) -> Child:
        """Starts a worker; see `ThisHost`."""
        process = super().start(spec, log, accounts=accounts, slot=slot)
        self._pids[spec.name], self._names[spec.number] = process.pid, spec.name
        return process

    def receive(self, timeout: float) -> WorkerMessage | None:
        """The next message; see `ThisHost`."""
        received = super().receive(timeout)
        if received is not None:
            self.messages += 1
            if received.message.kind == ControlMessage.BEAT:
                grown = unpack(received.message)["grown"]
                self.reports[self._names[received.number]] = Report(time.perf_counter(), grown)
        return received

    def snapshot(self, *, first: bool) -> Snapshot:
        """Looks at everything.

        Args:
            first: Whether what happens is measured from now on, and not until now: looking at
                memory takes time, which is not to count.
        """
        pids = {**self._pids, CONTROLLER: os.getpid()}
        memory = _memory(pids) if first else {}
        now, machine = time.perf_counter(), _machine_seconds()
        cpu = {name: _cpu_seconds(pid) for name, pid in pids.items()}
        return Snapshot(
            time=now,
            pids=pids,
            cpu=cpu,
            memory=memory or _memory(pids),
            reports=dict(self.reports),
            messages=self.messages,
            machine=machine,
        )


def _machine_seconds() -> tuple[float, float]:
    """Seconds that the cores were busy, with any process, and in all."""
    line = Path("/proc/stat").read_text().partition("\n")[0]
    user, nice, system, idle, wait, interrupts, soft, stolen, *_ = map(int, line.split()[1:])
    busy = user + nice + system + interrupts + soft + stolen
    return busy / _TICKS, (busy + idle + wait) / _TICKS


def _cpu_seconds(pid: int) -> float:
    """User and system time of a process, with all of its threads."""
    fields = _proc(pid, "stat").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _memory(pids: Mapping[str, int]) -> dict[str, int]:
    return {name: _memory_bytes(pid) for name, pid in pids.items()}


def _memory_bytes(pid: int) -> int:
    lines = _proc(pid, "smaps_rollup").splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def _proc(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text()
    except OSError as error:
        raise RunError(f"process {pid} of the run has ended while it was measured") from error
