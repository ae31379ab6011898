"""Runs on this machine: a few processes at a time, each with its share of cores and GPUs."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from srl.run.managed_run import ManagedRun
from srl.system.gpus import machine_gpus, memory_variable

_GPU_MEMORY = 0.9  # of a GPU, that the runs on it take together


class Here:
    """See `Trainer`. Runs end with this process, also if it is killed."""

    look_seconds = 0.2

    def __init__(self, folder: Path, parallel: int) -> None:
        """Starts nothing; `folder`, the sweep's, gets the logs."""
        self._folder = folder
        self._queue: list[ManagedRun] = []
        self._processes: dict[int, tuple[ManagedRun, subprocess.Popen[bytes]]] = {}  # by slot
        self._cores = divided(sorted(os.sched_getaffinity(0)), parallel)
        self._gpus = gpu_variables(machine_gpus(), parallel)

    @property
    def waiting(self) -> bool:
        """Implements `Trainer.waiting`."""
        return bool(self._queue or self._processes)

    def begin(self, runs: Sequence[ManagedRun]) -> None:
        """Implements `Trainer.begin`."""
        self._queue += runs
        self._fill()

    def trains(self, run: ManagedRun) -> bool:
        """Implements `Trainer.trains`."""
        return any(other.path == run.path for other, _ in self._processes.values())

    def ended(self) -> list[ManagedRun]:
        """Implements `Trainer.ended`."""
        over = {s: r for s, (r, process) in self._processes.items() if process.poll() is not None}
        for slot in over:
            del self._processes[slot]
        self._fill()
        return list(over.values())

    def stop(self, run: ManagedRun) -> None:
        """Implements `Trainer.stop`."""
        self._queue = [other for other in self._queue if other.path != run.path]
        for other, process in self._processes.values():
            if other.path == run.path:
                process.send_signal(signal.SIGTERM)

    def leave(self) -> str:
        """Ends all runs after a checkpoint."""
        self._queue.clear()
        for _, process in self._processes.values():
            process.send_signal(signal.SIGTERM)
        for _, process in self._processes.values():
            process.wait()
        return "interrupted; the same command goes on"

    def log(self, run: ManagedRun) -> Path:
        """Implements `Trainer.log`."""
        return self._folder / f"{run.path.name}.log"

    def _fill(self) -> None:
        for slot in range(len(self._cores)):
            if self._queue and slot not in self._processes:
                run = self._queue.pop(0)
                self._processes[slot] = (run, self._started(run, slot))

    def _started(self, run: ManagedRun, slot: int) -> subprocess.Popen[bytes]:
        with self.log(run).open("ab") as log, _bound_to(self._cores[slot]):
            return subprocess.Popen(
                run.child_command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **self._gpus[slot]},
                start_new_session=True,  # Ctrl-C is for this process, which ends them in order
            )


def divided(items: Sequence[int], parts: int) -> list[list[int]]:
    """Neighbouring items for each part, as even as can be; of too few, one each in turn."""
    if len(items) < parts:
        return [[items[part % len(items)]] for part in range(parts)]
    ends = [part * len(items) // parts for part in range(parts + 1)]
    return [list(items[a:b]) for a, b in itertools.pairwise(ends)]


def gpu_variables(gpus: Sequence[str], parts: int) -> list[Mapping[str, str]]:
    """Environment variables that give each of several runs its share of the machine's GPUs."""
    if not gpus or parts == 1:
        return [{}] * parts
    sharing = -(-parts // len(gpus))  # runs on a GPU
    memory = {memory_variable(): f"{_GPU_MEMORY / sharing:.3f}"}
    return [
        {
            "CUDA_VISIBLE_DEVICES": ",".join(gpus[number] for number in own),
            **(memory if sharing > 1 else {}),
        }
        for own in divided(range(len(gpus)), parts)
    ]


@contextlib.contextmanager
def _bound_to(cores: Sequence[int]) -> Iterator[None]:
    """Keeps this thread to some cores, and with it the processes that it starts."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
