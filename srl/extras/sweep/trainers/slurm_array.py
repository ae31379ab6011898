"""Runs on a Slurm cluster: an array job, each element of which trains one run on one node.

The sweep's folder is on a file system that all nodes share. Elements go on without this command;
when it is given again, it finds those that wait or run by the numbers in the folder.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from srl.core.errors import UserError
from srl.extras.sweep.trainers.memory import RunMemory
from srl.launch.engines import slurm
from srl.launch.engines.engine import names_file, parts_of, read_names, write_names
from srl.launch.engines.needs import MIB, fitted
from srl.launch.engines.options import OF_SBATCH
from srl.launch.engines.slurm_room import Room, names_memory, refuse_long_array, room_of
from srl.record.files import write_output
from srl.run.managed_run import ManagedRun


class SlurmArray:
    """See `Trainer`."""

    look_seconds = 2.0

    def __init__(self, folder: Path, parallel: int, options: Any) -> None:
        """Finds the elements of an earlier command, and releases those that it has left held.

        Raises:
            UserError: If Slurm does not answer.
        """
        self._folder, self._parallel, self._options = folder / "slurm", parallel, options
        self._names = names_file(folder, "slurm")
        self._elements = read_names(self._names, "sweep")
        self._runs: dict[str, ManagedRun] = {}
        self._memory = RunMemory()
        self._states = self._listed() if self._elements else {}
        # An earlier command may have been killed before it released them.
        held = {name for name, state in self._states.items() if state == "PENDING JobHeldUser"}
        for job in {name.partition("_")[0] for name in held}:
            slurm.release(job, options)

    @property
    def waiting(self) -> bool:
        """Implements `Trainer.waiting`."""
        return bool(self._runs)

    def begin(self, runs: Sequence[ManagedRun]) -> None:
        """Implements `Trainer.begin`; one array for all that Slurm does not have."""
        for run in runs:
            self._runs[run.path.name] = run
        new = [run for run in runs if self._elements.get(run.path.name) not in self._states]
        if not new:
            return
        self._folder.mkdir(exist_ok=True)
        number = sum(1 for _ in self._folder.glob("*.sh"))
        script = self._folder / f"{number}.sh"
        write_output(script, script_of(new).encode())
        # Nothing begins before the folder names it: a command that is killed leaves no unknown run.
        answer = slurm.command("sbatch", "--parsable", "--hold", *self._sbatch(new), str(script))
        job = answer.strip().partition(";")[0]
        elements = {run.path.name: f"{job}_{place}" for place, run in enumerate(new)}
        try:
            write_names(self._names, self._elements | elements)
            slurm.release(job, self._options)
        except BaseException:
            slurm.command("scancel", job)
            raise
        self._elements |= elements
        self._states.update(dict.fromkeys(elements.values(), "PENDING"))

    def trains(self, run: ManagedRun) -> bool:
        """Implements `Trainer.trains`."""
        return self._states.get(self._elements.get(run.path.name, ""), "").startswith("RUNNING")

    def ended(self) -> list[ManagedRun]:
        """Implements `Trainer.ended`."""
        if not self._runs:
            return []
        try:
            self._states = self._listed()
        except UserError:  # it may answer later
            return []
        over = [name for name in self._runs if self._elements[name] not in self._states]
        return [self._runs.pop(name) for name in over]

    def stop(self, run: ManagedRun) -> None:
        """Implements `Trainer.stop`."""
        element = self._elements[run.path.name]
        signal = ("--signal=TERM", "--batch") if self.trains(run) else ()
        slurm.command("scancel", *signal, element)

    def leave(self) -> str:
        """Leaves all elements to Slurm."""
        jobs = sorted({self._elements[name].partition("_")[0] for name in self._runs})
        return (
            "left running; the same command shows the sweep again, and "
            f"`scancel --signal=TERM --batch {' '.join(jobs)}` ends its runs after a checkpoint"
        )

    def log(self, run: ManagedRun) -> Path:
        """Implements `Trainer.log`."""
        job, _, place = self._elements.get(run.path.name, "_").partition("_")
        return self._folder / f"{job}-{place}.log"

    def _listed(self) -> dict[str, str]:
        """The states of the elements that wait or run, with Slurm's reasons, by their names."""
        jobs = sorted({element.partition("_")[0] for element in self._elements.values()})
        lines = slurm.listed(dict(zip(jobs, jobs, strict=True)), "%F_%K|%T %r", "--array")
        return dict(line.split("|") for line in lines)

    def _sbatch(self, runs: Sequence[ManagedRun]) -> list[str]:
        room = room_of(self._options, slurm.command)
        if room:
            refuse_long_array(len(runs), room, f"a sweep of {len(runs):,} runs at a time")
        # All elements of an array get the same: enough for each of the runs.
        sizes = zip(*(sizes_of(run, room, self._memory) for run in runs), strict=True)
        cores, gpus, memory = map(max, sizes)
        shared = not (room and not room.memory) and not names_memory(self._options)
        given = {name: getattr(self._options, name) for name in OF_SBATCH}
        return [
            f"--job-name=srl-sweep-{runs[0].experiment.name}",
            f"--array=0-{len(runs) - 1}%{self._parallel}",
            *("--nodes=1", "--ntasks=1", "--requeue", "--open-mode=append"),
            f"--cpus-per-task={cores}",
            *([f"--gpus-per-node={gpus}"] if gpus else []),
            *([f"--mem={memory}M"] if shared and memory else []),
            "--signal=B:TERM@60",  # a checkpoint before the time is over
            f"--output={self._folder}/%A-%a.log",
            *(f"--{name}={value}" for name, value in given.items() if value),
            *self._options.sbatch,
        ]


def sizes_of(run: ManagedRun, room: Room | None, memory: RunMemory) -> tuple[int, int, int]:
    """Gives the cores, the GPUs and the MiB of a run on one node."""
    experiment = run.experiment
    parts = parts_of(experiment.settled_plan, memory.of(experiment))
    if room and room.nodes:
        node = min(node.cores for node in room.nodes)
        parts = fitted(parts, node, node, whole=False)
    return (
        sum(part.hosts * part.cores for part in parts),
        sum(part.hosts * part.gpus for part in parts),
        math.ceil(sum(part.hosts * part.memory for part in parts) / MIB),
    )


def script_of(runs: Sequence[ManagedRun]) -> str:
    """The batch script of an array that trains these runs."""
    cases = (f"{k}) {run.shell_command()} ;;" for k, run in enumerate(runs))
    return "\n".join(("#!/bin/bash", "case $SLURM_ARRAY_TASK_ID in", *cases, "esac", ""))
