"""The division of unrolls into minibatches.

A minibatch takes one chunk of every `parts` neighbouring ones from each slot, and in each epoch
every chunk is in one minibatch. Its minibatch depends on the random key, the slot and the chunk
alone, however slots are spread.
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
MOST_MINIBATCHES, LEAST_SAMPLES = 32, 64


def expect_minibatches_fit(config: Any) -> None:
    """Raises UserError where minibatches, and chunks, do not divide the unroll length."""
    has_memory = bool(config.network.memory)
    unit = (config.minibatches or 1) * chunk_length(config)
    for unrolled in trace(config).unrolls:
        if unrolled.length % unit == 0:
            continue
        chunks = f", chunk={config.chunk}, and a network with memory" if has_memory else ""
        raise UserError(
            f"{type(config).__name__} with unroll_length={unrolled.length}, "
            f"minibatches={config.minibatches or 1}{chunks}: "
            f"minibatches{' * chunk' if has_memory else ''} must divide the unroll "
            f"length; make --algorithm.unroll-length a multiple of {unit}, or change the others"
        )


def fitting_minibatches(config: Any, num_envs: int) -> int:
    """Chooses the number of minibatches: the most that leave enough samples in each."""
    length = math.gcd(*(unrolled.length for unrolled in trace(config).unrolls))
    most = min(MOST_MINIBATCHES, max(num_envs * length // LEAST_SAMPLES, 1))
    step = chunk_length(config)
    return max(n for n in range(1, most + 1) if length // step % n == 0)


def chunk_length(config: Any) -> int:
    """Steps of a slot that stay together in a minibatch."""
    return config.chunk if config.network.memory else 1


class Batch(NamedTuple):
    """Steps of an unroll, to be learned from in minibatches."""

    samples: Any  # [T, B, ...]; their field `valid` is bool [T, B]
    memory: Tree  # [T / length, B, ...], before the first step of each chunk
    slot: Array  # int32 [B]
    once: Any = ()  # of the whole batch


@dataclass(frozen=True)
class Minibatches:
    """The minibatches of all gradient steps of an update."""

    epochs: int
    parts: int
    """Minibatches of an epoch."""
    length: int
    """Steps of a chunk."""

    @property
    def gradient_steps(self) -> int:
        """One for each minibatch of each epoch."""
        return self.epochs * self.parts

    def draw(self, batch: Batch, state: Any, step: Array) -> tuple[Any, Tree]:
        """Gives the samples of a gradient step, [length, S, ...], and the memories before them.

        Args:
            batch: Of T steps and B slots.
            state: The key and the number of updates in it say which steps are together.
            step: int32 [], which of the `gradient_steps`.
        """
        epoch, number = step // self.parts, step % self.parts
        key = jax.random.fold_in(jax.random.wrap_key_data(state.key), state.n * self.epochs + epoch)
        steps = len(batch.samples.valid)
        drawn = draw(key, batch.slot, steps, self.parts, self.length, number)
        return drawn.steps(batch.samples), drawn.starts(batch.memory)


class Minibatch(NamedTuple):
    """Chunks of `length` steps, S of them from each of B slots."""

    start: Array  # int32 [S, B], the first step of each
    length: int

    def steps(self, tree: Tree) -> Tree:
        """Takes what belongs to each step: [T, B, ...] to [length, S * B, ...].

        Chunks of one step have no axis of time: products of matrices are faster without it.
        """
        rows = self.start + jnp.arange(self.length)[:, None, None]
        rows = rows if self.length > 1 else self.start
        return jax.tree.map(lambda x: _take(x, rows), tree)

    def starts(self, tree: Tree) -> Tree:
        """Takes what belongs to each chunk: [T / length, B, ...] to [S * B, ...]."""
        return jax.tree.map(lambda x: _take(x, self.start // self.length), tree)


def draw(key: Array, slot: Array, steps: int, parts: int, length: int, number: Array) -> Minibatch:
    """Draws one of the minibatches of an epoch.

    Args:
        key: Random key of the epoch.
        slot: int32 [B], which of the run's slots each column is.
        steps: T, a multiple of `parts * length`.
        parts: Minibatches of an epoch.
        length: Of a chunk.
        number: int32 [], which of the epoch's minibatches.
    """
    blocks = steps // (parts * length)
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, slot)
    bits = jax.vmap(lambda key: jax.random.bits(key, (blocks,)), out_axes=1)(keys)
    # Each block's order is rotated by a random number.
    place = ((bits % parts).astype(jnp.int32) + number) % parts
    return Minibatch((place + parts * jnp.arange(blocks)[:, None]) * length, length)


def _take(x: Array, rows: Array) -> Array:
    slots = x.shape[1]
    index = rows * slots + jnp.arange(slots)
    return x.reshape(-1, *x.shape[2:])[index.reshape(*rows.shape[:-2], -1)]
