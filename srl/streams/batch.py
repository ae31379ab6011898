"""The memory of a batch: the unrolls of all groups, side by side."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from srl.core.errors import UserError
from srl.core.tree import Leaves, copy_tree, leaves_of, map_tree
from srl.core.types import Array, Decision, Specs, Timestep, Tree
from srl.pools.timestep_arrays import empty_timestep
from srl.streams.transport.message import Refused
from srl.system.shared_memory import available_bytes, size_text


class Batch(NamedTuple):
    """T steps of all groups, time-major; the second axis of every array divides by the groups.

    With G groups of n environments and b slots each: N = G n, B = G b.
    """

    timesteps: Timestep  # [T + 1, ...]; the last row is the bootstrap one
    action: Tree  # [T, B, ...]
    log_prob: Array  # float32 [T, B], of the policy that acted
    memory: Tree  # [T / chunk, B, ...] by policy: at the first step of each chunk
    version: Array  # int32 [T, G, 2], the (epoch, n) that acted
    advice: Tree = ()  # [T, B, ...], of a teacher where there is one

    def write_unroll(
        self, timesteps: Timestep, decision: Decision, memory: Tree, version: np.ndarray
    ) -> None:
        """Writes all of one group's unroll.

        Args:
            timesteps: [T + 1, ...]
            decision: [T, b, ...]
            memory: [T / chunk, b, ...], see above.
            version: int32 [2], that acted.
        """
        given = timesteps, decision.action, decision.log_prob, memory, decision.advice
        copy_tree(given, (self.timesteps, self.action, self.log_prob, self.memory, self.advice))
        self.version[:] = version

    def columns(self, position: int, positions: int) -> Batch:
        """The part of one group."""

        def part(x: np.ndarray) -> np.ndarray:
            width = x.shape[1] // positions
            return x[:, position * width : (position + 1) * width]

        return map_tree(part, self)

    @classmethod
    def from_tree(cls, tree: Tree) -> Batch:
        """A batch from the dicts and tuples that a layout gives.

        Raises:
            Refused: If they are those of something else.
        """
        try:
            batch = cls(*tree)
            return batch._replace(timesteps=Timestep(*batch.timesteps))
        except TypeError as error:
            raise Refused(f"a layout of no unroll: {error}") from error


class UnrollWriter:
    """Writes one group's unroll, row by row."""

    def __init__(self, columns: Batch) -> None:
        """Takes the group's part of a batch."""
        self.length = len(columns.log_prob)
        steps = columns.timesteps
        self._timesteps, self._read_timestep = leaves_of(steps), Leaves(steps)
        form = Decision(columns.action, columns.log_prob, (), columns.advice)
        self._decisions, self._read_decision = leaves_of(form), Leaves(form)
        self._memory, self._version = leaves_of(columns.memory), columns.version
        self._chunk = self.length // len(self._memory[0]) if self._memory else 0

    def write_timestep(self, t: int, timestep: Timestep) -> None:
        """Writes the timestep of row t."""
        for target, source in zip(self._timesteps, self._read_timestep(timestep), strict=True):
            target[t] = source

    def write_memory(self, t: int, memory: Tree) -> None:
        """Writes the memory before step t, if it is the first of a chunk."""
        if self._chunk and t % self._chunk == 0:
            for target, source in zip(self._memory, leaves_of(memory), strict=True):
                target[t // self._chunk] = source

    def write(self, t: int, decision: Decision, version: np.ndarray) -> None:
        """Writes the decision at row t."""
        self.write_leaves(t, self._read_decision(decision), version)

    def write_leaves(self, t: int, decision: list[Array], version: np.ndarray) -> None:
        """Writes the decision at row t: the arrays of its action, log_prob and advice."""
        for target, source in zip(self._decisions, decision, strict=True):
            target[t] = source
        self._version[t] = version


def batches_of(tree: Tree) -> tuple[Batch, ...]:
    """The unrolls or batches of a pass, from what a layout of them gives.

    Raises:
        Refused: If it is that of something else.
    """
    if not isinstance(tree, tuple) or not tree:
        raise Refused("a layout of no unrolls")
    return tuple(map(Batch.from_tree, tree))


@dataclass(frozen=True)
class ArraySpec:
    """The shape and dtype of an array for which no memory is allocated yet."""

    shape: tuple[int, ...]
    dtype: np.dtype


def batch_spec(specs: Specs, num_envs: int, decision: Decision, length: int, chunk: int) -> Batch:
    """The array specs of one group's unroll.

    Args:
        specs: Of the environments.
        num_envs: Of the group.
        decision: Of all its slots, of anything with `shape` and `dtype`.
        length: Steps of the unroll.
        chunk: Steps from one stored memory to the next.
    """

    def spec(shape: tuple[int, ...], dtype: Any) -> ArraySpec:
        return ArraySpec(tuple(shape), np.dtype(dtype))

    def times(steps: int, tree: Tree) -> Tree:
        return map_tree(lambda x: spec((steps, *x.shape), x.dtype), tree)

    return Batch(
        timesteps=empty_timestep(specs, num_envs, (length + 1,), spec),
        action=times(length, decision.action),
        log_prob=times(length, decision.log_prob),
        memory=times(length // chunk, decision.memory),
        version=spec((length, 1, 2), np.int32),
        advice=times(length, decision.advice),
    )


def expect_room(spec: Tree, learned_bytes: int = 0) -> None:
    """Checks that memory would hold batches, before any of it is allocated.

    Args:
        spec: Of the batches.
        learned_bytes: What is made of one to learn from it.

    Raises:
        UserError: With the sizes, and what makes them smaller.
    """
    unrolls = sum(math.prod(f.shape) * f.dtype.itemsize for f in leaves_of(spec))
    available = available_bytes()
    if unrolls + learned_bytes > available:
        learned = f", what is learned from {size_text(learned_bytes)}" if learned_bytes else ""
        raise UserError(
            f"an update's unrolls would take {size_text(unrolls)} of memory{learned}, of which "
            f"{size_text(available)} are free; give fewer as num_envs, or a shorter "
            "algorithm.unroll_length"
        )


def widened(spec: Tree, groups: int) -> Any:
    """The array specs of batches of so many groups, from those of one group's unrolls."""
    return map_tree(
        lambda f: ArraySpec((f.shape[0], f.shape[1] * groups, *f.shape[2:]), f.dtype), spec
    )
