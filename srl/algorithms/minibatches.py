"""The division of unrolls into minibatches.

In each epoch every chunk of every slot is in one minibatch; without memory a chunk is a step. This
is no permutation of all samples, as in CleanRL: chunks and slots are cut into blocks, of which each
minibatch gets one cell, by a random rotation for each block. Neighbouring chunks are divided among
minibatches first, then neighbouring slots. The minibatch of a chunk depends on the random key, the
slot and the chunk alone, however slots are spread.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from srl.core.errors import UserError
from srl.core.lazy import jax, jnp
from srl.core.types import Array, Tree
from srl.dataflow.trace import trace

# Of a batch, where the number of minibatches is left to be chosen.
MOST_MINIBATCHES = 32
LEAST_SEQUENCES = 8


def expect_chunks_fit(config: Any) -> None:
    """Raises UserError where chunks do not divide the unroll length."""
    if not config.network.memory:
        return
    for unrolled in trace(config).unrolls:
        if unrolled.length % (config.chunk or unrolled.length):
            raise UserError(
                f"{type(config).__name__} with unroll_length={unrolled.length}, "
                f"chunk={config.chunk} and a network with memory: chunk must divide the unroll "
                f"length; make --algorithm.unroll-length a multiple of {config.chunk}, or leave "
                "chunk out, which learns from whole unrolls"
            )


def fitting_minibatches(config: Any, num_envs: int, samples: int) -> int:
    """Chooses the number of minibatches: the most that leave so many samples in each.

    Without memory they divide the unroll. With memory each has chunks of `LEAST_SEQUENCES` slots or
    more, and 2, 4 or 8 learners that can share the environments can share its blocks of slots.
    """
    length = math.gcd(*(unrolled.length for unrolled in trace(config).unrolls))
    most = min(MOST_MINIBATCHES, max(num_envs * length // samples, 1))
    if not config.network.memory:
        return max(n for n in range(1, most + 1) if length % n == 0)
    chunks, most_slots = length // (config.chunk or length), max(num_envs // LEAST_SEQUENCES, 1)
    shared = num_envs // math.gcd(num_envs, LEAST_SEQUENCES)
    shares = ((n, *shares_of(n, chunks)) for n in range(1, most + 1))
    return max(n for n, _, slots in shares if slots <= most_slots and shared % slots == 0)


def shares_of(parts: int, chunks: int) -> tuple[int, int]:
    """Divides a number of minibatches over the chunks of a slot, and the rest over slots.

    Returns:
        The neighbouring chunks and the neighbouring slots of a block, a cell of which each
        minibatch gets; their product is `parts`.
    """
    of_chunks = math.gcd(parts, chunks)
    return of_chunks, parts // of_chunks


class Batch(NamedTuple):
    """Steps of an unroll, to be learned from in minibatches."""

    samples: Any  # [T, B, ...]; their field `valid` is bool [T, B]
    memory: Tree  # [T / length, B, ...], before the first step of each chunk
    slot: Array  # int32 [B]
    results: Any = ()  # of the whole batch


@dataclass(frozen=True)
class Minibatches:
    """The minibatches of all gradient steps of an update."""

    epochs: int
    per_epoch: int
    """Minibatches of an epoch."""
    chunk: int | None
    """Steps of a slot that stay together, for a network with memory, 0 for the whole unroll; None
    without memory."""

    @property
    def gradient_steps(self) -> int:
        """One for each minibatch of each epoch."""
        return self.epochs * self.per_epoch

    def starts(self, tree: Tree, steps: int) -> Tree:
        """Takes the rows that chunks of unrolls of so many steps begin with."""
        return jax.tree.map(lambda x: x[: steps : self.chunk or steps], tree)

    def slots_of_block(self, steps: int) -> int:
        """Slots that are divided among minibatches, of unrolls of so many steps.

        Learners that divide the slots have multiples of it.
        """
        return shares_of(self.per_epoch, steps // self._length(steps))[1]

    def _length(self, steps: int) -> int:
        return 1 if self.chunk is None else self.chunk or steps

    def draw(self, batch: Batch, state: Any, step: Array) -> tuple[Any, Tree]:
        """Gives the samples of a gradient step, and the memories before them.

        Samples are [S, ...] without memory and [chunk, S, ...] with it: products of matrices are
        faster without an axis of time.

        Args:
            batch: Of T steps and B slots.
            state: The key and the number of updates in it say which steps are together.
            step: int32 [], which of the `gradient_steps`.
        """
        epoch, number = step // self.per_epoch, step % self.per_epoch
        key = jax.random.fold_in(jax.random.wrap_key_data(state.key), state.n * self.epochs + epoch)
        steps = len(batch.samples.valid)
        drawn = draw(key, batch.slot, steps, self.per_epoch, self._length(steps), number)
        samples = drawn.steps(batch.samples)
        if drawn.present is not None:
            samples = samples._replace(valid=samples.valid & drawn.present)
        if self.chunk is None:
            samples = jax.tree.map(lambda x: x[0], samples)
        return samples, drawn.starts(batch.memory)


class Minibatch(NamedTuple):
    """S chunks of `length` steps."""

    chunk: Array  # int32 [S], counted from the start of the unroll
    column: Array  # int32 [S], of the slots here
    length: int
    present: Array | None = None  # bool [S], False where a slot stands in for one that is not there

    def steps(self, tree: Tree) -> Tree:
        """Takes what belongs to each step: [T, B, ...] to [length, S, ...]."""
        row = self.chunk * self.length + jnp.arange(self.length)[:, None]
        return jax.tree.map(lambda x: _take(x, row, self.column), tree)

    def starts(self, tree: Tree) -> Tree:
        """Takes what belongs to each chunk: [T / length, B, ...] to [S, ...]."""
        return jax.tree.map(lambda x: _take(x, self.chunk, self.column), tree)


def draw(
    key: Array, slot: Array, steps: int, per_epoch: int, length: int, number: Array
) -> Minibatch:
    """Draws one of the minibatches of an epoch.

    Chunks and slots are cut into blocks of `per_epoch` cells, of neighbouring chunks and
    neighbouring slots (`shares_of`). A minibatch gets one cell of each block. The last block may
    lack slots.

    Args:
        key: Random key of the epoch.
        slot: int32 [B], which of the run's slots each column is.
        steps: T, a multiple of `length`.
        per_epoch: Minibatches of an epoch.
        length: Of a chunk.
        number: int32 [], which of the epoch's minibatches.

    Raises:
        UserError: If there are fewer slots than a block has.
    """
    of_chunks, of_slots = shares_of(per_epoch, steps // length)
    if len(slot) < of_slots:
        raise UserError(
            f"minibatches={per_epoch} cannot be made of {steps // length} chunks of {len(slot)} "
            f"slots: give --algorithm.minibatches {of_chunks * len(slot)}, or more --num-envs"
        )
    rows, columns = steps // length // of_chunks, -(-len(slot) // of_slots)
    # Of each block, known by its chunk and its first slot, the order is rotated by a random number.
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, slot[::of_slots])
    bits = jax.vmap(lambda key: jax.random.bits(key, (rows,)), out_axes=1)(keys)
    cell = ((bits % per_epoch).astype(jnp.int32) + number) % per_epoch
    chunk = cell // of_slots + of_chunks * jnp.arange(rows)[:, None]
    column = (cell % of_slots + of_slots * jnp.arange(columns)).reshape(-1)
    present = None if len(slot) % of_slots == 0 else column < len(slot)
    return Minibatch(chunk.reshape(-1), jnp.minimum(column, len(slot) - 1), length, present)


def _take(x: Array, row: Array, column: Array) -> Array:
    return x.reshape(-1, *x.shape[2:])[row * x.shape[1] + column]
