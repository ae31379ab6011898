"""Prior data: a second replay, which is never written over, and a declared share of each draw.

Half of each batch from past data and half from the replay is RLPD (Ball et al., 2023,
https://arxiv.org/abs/2302.02948). The second replay is divided by slots as the first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from srl.algorithms.replay import Replay
from srl.algorithms.replay_sampling import draw, portions
from srl.algorithms.uniform_replay import Priority, Sample, UniformReplay
from srl.core.lazy import jax, jnp
from srl.core.types import Array, Unroll

_SALT = 2**32 - 1  # no number of an update
_PARTS = 1024
"""The share is rounded to one of so many parts."""


class WithPrior(NamedTuple):
    """A replay, and prior data for the same slots."""

    own: Any  # the replay that the run fills
    prior: Replay  # [K, T + 1, B, ...], of any K and T; without memory


@dataclass(frozen=True)
class MixedReplay:
    """A replay of which a share of each draw is of prior data instead, once there are any."""

    own: UniformReplay
    """The replay that the run fills."""
    share: float | Array
    """The share of the windows of each slot, from 0 to 1."""

    def empty(self, unroll: Unroll) -> Any:
        """Gives a replay of nothing, without prior data; whoever has some adds it."""
        return self.own.empty(unroll)

    def insert(
        self, replay: Any, unroll: Unroll, n: Array, priority: Priority | None = None
    ) -> Any:
        """Gives the replay with the unroll of update n; the prior data stay as they are."""
        if not isinstance(replay, WithPrior):
            return self.own.insert(replay, unroll, n, priority)
        return replay._replace(own=self.own.insert(replay.own, unroll, n, priority))

    def sample(self, key: Array, replay: Any, n: Array, slot: Array, total: Any) -> Sample:
        """Draws the windows of all gradient steps of update n; see `UniformReplay.sample`.

        Prior data are drawn uniformly, and weigh 1.
        """
        if not isinstance(replay, WithPrior):
            return self.own.sample(key, replay, n, slot, total)
        own, ratio, prior = self.own, self.own.ratio, replay.prior
        sample = own.sample(key, replay.own, n, slot, total)
        key = jax.random.fold_in(key, _SALT)
        blocks, starts = len(prior.reward), math.ceil((prior.reward.shape[1] - 1) / own.stride)
        steps = ratio.gradient_steps, ratio.share, starts, ratio.steps_before(n)
        draws = draw(key, prior, n, slot, *steps, unrolls=jnp.full(slot.shape, blocks))
        rows = own.take(key, prior, draws, n)
        rows = rows._replace(memory=jax.tree.map(jnp.zeros_like, sample.rows.memory))
        chosen = self._chosen(draws.slot, ratio.steps_before(n))
        return sample._replace(
            rows=_mixed(chosen, rows, sample.rows),
            weight=jnp.where(chosen, 1.0, sample.weight),
            prior=chosen,
        )

    def update_priorities(self, replay: Any, sample: Sample, priority: Array, due: Array) -> Any:
        """Gives the replay after the gradient steps, with the priorities of its own windows."""
        if not isinstance(replay, WithPrior):
            return self.own.update_priorities(replay, sample, priority, due)
        own = self.own.update_priorities(replay.own, sample, priority, due)
        return replay._replace(own=own)

    def _chosen(self, slot: Array, first: Array) -> Array:
        """Marks the windows that are to be of prior data, [rounds, S].

        Of the windows that each slot has ever drawn, these are evenly spread; slots do not take
        them at the same time.

        Args:
            slot: int32 [rounds, S].
            first: int32 [], the run's rounds before these.
        """
        rounds, size = slot.shape
        each, turns = portions(self.own.ratio.share)
        place = jnp.arange(size) // (size // each)
        number = (first + jnp.arange(rounds))[:, None] // turns * each + place
        part = jnp.round(jnp.asarray(self.share) * _PARTS).astype(jnp.int32)
        phase = slot % _PARTS * 633  # multiples of the golden ratio are evenly spread
        return (number % _PARTS * part + phase) % _PARTS + part >= _PARTS


def _mixed(chosen: Array, rows: Replay, others: Replay) -> Replay:
    """Takes windows from `rows` where they are chosen, bool [rounds, S], else from others."""

    def choose(axes: int) -> Any:
        def of(x: Array, y: Array) -> Array:
            shape = chosen.shape[0], *[1] * axes, chosen.shape[1], *[1] * (x.ndim - 2 - axes)
            return jnp.where(chosen.reshape(shape), x, y)

        return of

    by_row = {name: getattr(rows, name) for name in _BY_ROW}
    mixed = jax.tree.map(choose(1), by_row, {name: getattr(others, name) for name in _BY_ROW})
    memory = jax.tree.map(choose(0), rows.memory, others.memory)
    return others._replace(**mixed, memory=memory, begin=choose(0)(rows.begin, others.begin))


_BY_ROW = ("observation", "reward", "terminated", "truncated", "action")
"""Fields of windows with an axis of time, [rounds, L, S, ...]."""
