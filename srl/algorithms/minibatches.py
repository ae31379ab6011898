"""The division of unrolls into minibatches.

A minibatch takes one chunk of every `parts` neighbouring ones from each slot, and in each epoch
every chunk is in one minibatch. Its minibatch depends on the random key, the slot and the chunk
alone, however slots are spread.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

from srl.algorithms.algorithm import State
from srl.algorithms.observing import ObservingAlgorithm
from srl.core.errors import UserError
from srl.core.lazy import jax, jnp
from srl.core.types import Array, Metrics, Tree
from srl.dataflow.trace import trace
from srl.networks import PolicyAndValue

# Of a batch, where the number of minibatches is left to be chosen.
MOST_MINIBATCHES, LEAST_SAMPLES = 32, 64


@dataclass(frozen=True)
class Minibatched(ObservingAlgorithm):
    """Settings of learning that goes through each batch several times, in minibatches."""

    epochs: int = 1
    """Passes of learning through each batch."""
    minibatches: int = 0
    """The number of parts of a batch, each for one gradient step; it divides the unroll length.
    0 chooses up to 32, of 64 steps or more each."""
    chunk: int = 8
    """Steps that a network with memory learns from in sequence; not used without memory."""

    limits: ClassVar[Mapping[str, tuple[float, ...]]] = {
        **ObservingAlgorithm.limits,
        "epochs": (1,),
        "minibatches": (0,),
        "chunk": (1,),
    }

    def validate(self) -> None:
        """Raises UserError where settings are out of their limits or do not fit each other."""
        super().validate()
        remembers = bool(self.network.memory)
        unit = (self.minibatches or 1) * self._step
        for unrolled in trace(self).unrolls:
            if unrolled.length % unit == 0:
                continue
            chunks = f", chunk={self.chunk}, and a network with memory" if remembers else ""
            raise UserError(
                f"{type(self).__name__} with unroll_length={unrolled.length}, "
                f"minibatches={self.minibatches or 1}{chunks}: "
                f"minibatches{' * chunk' if remembers else ''} must divide the unroll "
                f"length; make --algorithm.unroll-length a multiple of {unit}, or change the others"
            )

    def settled(self, num_envs: int = 64) -> Self:
        """Gives the settings with the number of minibatches, where that is 0."""
        if self.minibatches:
            return self
        length = math.gcd(*(unrolled.length for unrolled in trace(self).unrolls))
        most = min(MOST_MINIBATCHES, max(num_envs * length // LEAST_SAMPLES, 1))
        fitting = [n for n in range(1, most + 1) if length // self._step % n == 0]
        return replace(self, minibatches=fitting[-1])

    @property
    def _step(self) -> int:
        """Steps of a slot that stay together in a minibatch."""
        return self.chunk if self.network.memory else 1


class MinibatchedInstance:
    """Takes a gradient step for each minibatch; an algorithm adds `loss`."""

    config: Minibatched
    network: PolicyAndValue
    loss: Callable[..., tuple[Array, Metrics]]
    """(params, state, samples, memory) to the summed loss, and metrics, summed, too."""

    @property
    def chunk(self) -> int:
        """Steps of a policy with memory that are learned from in sequence."""
        return self.config.chunk if self.network.memory else 0

    @property
    def rounds(self) -> int:
        """One for each minibatch of each epoch."""
        return self.config.epochs * self.config.minibatches

    def gradient(self, state: Any, batch: Batch, round: Array) -> dict[str, Any]:
        """Gives the sums over a minibatch: of the loss's gradient, and of metrics."""
        settings = self.config.epochs, self.config.minibatches, self.chunk or 1
        samples, memory = minibatch(batch, state, round, *settings)
        gradient, metrics = jax.grad(self.loss, has_aux=True)(state.params, state, samples, memory)
        count = jnp.sum(samples.valid, dtype=jnp.float32)
        return {"gradient": gradient, "metrics": metrics, "count": count}


class Batch(NamedTuple):
    """An unroll measured by `measure`, to be learned from in minibatches."""

    samples: Any  # [T, B, ...]; their field `valid` is bool [T, B]
    memory: Tree  # [T / length, B, ...], before the first step of each chunk
    slot: Array  # int32 [B]


def minibatch(
    batch: Batch, state: State, round: Array, epochs: int, parts: int, length: int
) -> tuple[Any, Tree]:
    """Gives the samples of a round, [length, S, ...], and the memories before them, [S, ...].

    Args:
        batch: Of T steps and B slots.
        state: Its key, and the number of updates, say which steps are together.
        round: int32 [], below epochs * parts.
        epochs: How often learning goes through the batch.
        parts: Minibatches of an epoch.
        length: Steps of a chunk.
    """
    epoch, number = round // parts, round % parts
    key = jax.random.fold_in(jax.random.wrap_key_data(state.key), state.n * epochs + epoch)
    drawn = draw(key, batch.slot, len(batch.samples.valid), parts, length, number)
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
