"""The room that a Slurm has for a run: its nodes, and what it would take and never start."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from srl.core.errors import UserError
from srl.launch.engines.engine import Part
from srl.launch.engines.needs import MIB, fitted
from srl.system.shared_memory import size_text

Command = Callable[..., str]
"""Gives the output of one of Slurm's commands."""
_GPUS = re.compile(r"\bgpu(?::[^:,(]+)?:(\d+)")
_PARTITION, _CLUSTERS = ("-p", "--partition"), ("-M", "--clusters")
# Options of sbatch that count in place of what the plan asks for.
_OVERRIDES = {
    "cores": ("-c", "--cpus-per-task", "-n", "--ntasks", "--ntasks-per-node"),
    "memory": ("--mem", "--mem-per-cpu", "--mem-per-gpu"),
    "GPUs": ("-G", "--gpus", "--gpus-per-node", "--gpus-per-task", "--gres"),
    "nodes": ("-N", "--nodes"),
}
_MEMORY_VARIABLES = ("SBATCH_MEM_PER_CPU", "SBATCH_MEM_PER_GPU", "SBATCH_MEM_PER_NODE")


@dataclass(frozen=True)
class Node:
    """The resources of a node."""

    cores: int
    gpus: int
    memory: int
    """Bytes."""


@dataclass(frozen=True)
class Room:
    """The nodes that the jobs of a run may get."""

    where: str
    nodes: Sequence[Node]
    memory: bool
    """True if memory is shared out among the jobs of a node."""
    longest_array: int

    def sized(self, parts: Sequence[Part]) -> list[Part]:
        """The parts with cores as these nodes have them."""
        if not self.nodes:
            return list(parts)
        cores = [node.cores for node in self.nodes]
        return fitted(parts, min(cores), sum(cores), whole=True)


def given_to_sbatch(options: Any) -> argparse.Namespace:
    """Parses the options passed on to sbatch, as far as srl needs them: texts, or None."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument(*_PARTITION)
    parser.add_argument(*_CLUSTERS)
    for kind, names in _OVERRIDES.items():
        parser.add_argument(*names, dest=kind)
    try:
        return parser.parse_known_args(options.sbatch)[0]
    except argparse.ArgumentError as error:
        raise UserError(f"--sbatch: {error}") from error


def names_memory(options: Any) -> bool:
    """Tells if the user gives sbatch an amount of memory."""
    named = given_to_sbatch(options).memory is not None
    return named or any(name in os.environ for name in _MEMORY_VARIABLES)


def room_of(options: Any, command: Command) -> Room | None:
    """The nodes of the partition that these options name; None where another cluster is named.

    Raises:
        UserError: If Slurm does not answer, or has no such partition.
    """
    given = given_to_sbatch(options)
    if given.clusters:
        return None
    own = given.partition or options.partition
    partition = own or os.environ.get("SBATCH_PARTITION")
    form = ["--noheader", "--Node", "--format=%P|%N|%c|%G|%m"]
    rows = [row.split("|") for row in command("sinfo", *form).splitlines()]
    fits = (partition or "").split(",")
    nodes = {
        name: Node(
            int(cores.strip("+ ")),
            sum(map(int, _GPUS.findall(gpus))),
            int(memory.strip("+ ")) * MIB,
        )
        for group, name, cores, gpus, memory in rows
        if (group.strip().rstrip("*") in fits if partition else group.strip().endswith("*"))
    }
    if not nodes and partition:
        there = ", ".join(sorted({row[0].strip().rstrip("*") for row in rows}))
        name = "--partition " if own else "SBATCH_PARTITION="
        raise UserError(f"{name}{partition}: Slurm has none with nodes; it has {there}")
    config = dict(re.findall(r"(?m)^(\w+)\s*= (.*)$", command("scontrol", "show", "config")))
    where = f"the partition {partition}" if partition else "the default partition"
    shared = "MEMORY" in config.get("SelectTypeParameters", "").upper()
    longest = config.get("MaxArraySize", "")
    return Room(where, [*nodes.values()], shared, int(longest) if longest.isdigit() else 1001)


def refuse_too_much(parts: Sequence[Part], room: Room, options: Any) -> None:
    """Refuses a run that Slurm would take, and never start: its jobs do not fit all at a time.

    Options of sbatch can name fewer nodes than the partition's, and never more.

    Raises:
        UserError: If the partition has too little.
    """
    for part in parts:
        if not part.controls:
            refuse_long_array(part.hosts, room, f"--plan.{part.fragment}.replicas {part.hosts}")
    if not room.nodes:  # sbatch reports that
        return
    given = vars(given_to_sbatch(options))
    counted: dict[str, Callable[[Part | Node], int]] = {"cores": lambda x: x.cores}
    counted["GPUs"] = lambda x: x.gpus
    if room.memory and not names_memory(options):
        counted["memory"] = lambda x: x.memory
    counted = {kind: of for kind, of in counted.items() if given[kind] is None}
    if given["nodes"] is None:
        apart = {part.fragment: part.hosts for part in parts if part.apart}
        _refuse_more("nodes of their own", apart, len(room.nodes), room)
    for kind, of in counted.items():
        each = {part.fragment: part.hosts * of(part) for part in parts}
        _refuse_more(kind, each, sum(map(of, room.nodes)), room)
    for part in parts:
        fitting = [n for n in room.nodes if all(of(n) >= of(part) for of in counted.values())]
        needed = part.hosts if part.apart else 1
        if len(fitting) < needed:
            wanted = ", ".join(_amount(kind, of(part)) for kind, of in counted.items() if of(part))
            raise UserError(
                f"each host of {part.fragment} is to have {wanted}; {room.where} has "
                f"{len(fitting)} such nodes, and {needed} are needed: {_CURE}"
            )


_CURE = "lower the plan's hosts, replicas, cores, gpus or memory, or choose another --partition"


def refuse_long_array(count: int, room: Room, what: str) -> None:
    """Raises UserError for a job array of more elements than Slurm takes."""
    if count > room.longest_array:
        raise UserError(
            f"{what} would be a job array of {count:,} elements, and this Slurm takes at most "
            f"{room.longest_array:,} (MaxArraySize): spread them over fewer hosts, as by "
            "`--plan.actors.hosts N`, which puts several on each"
        )


def _refuse_more(kind: str, each: Mapping[str, int], there: int, room: Room) -> None:
    if sum(each.values()) > there:
        parts = ", ".join(f"{name} {_number(kind, n)}" for name, n in each.items() if n)
        raise UserError(
            f"the plan asks for {_amount(kind, sum(each.values()))} at a time ({parts}), and "
            f"{room.where} has {_number(kind, there)}: {_CURE}"
        )


def _number(kind: str, count: int) -> str:
    return size_text(count) if kind == "memory" else str(count)


def _amount(kind: str, count: int) -> str:
    return f"{_number(kind, count)}{' of' * (kind == 'memory')} {kind}"
