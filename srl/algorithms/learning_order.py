"""The order of one call of `learn`: measure, adapt, the rounds of gradient and update, finish."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from srl.core.lazy import jax, jnp
from srl.core.types import Array, Metrics, Tree


def learn_in_order(
    learns: Any, state: Any, replay: Any, unroll: Any, total: Callable[[Tree], Tree]
) -> tuple[Any, Any, Metrics, Metrics]:
    """Learns from one batch, within a compiled program.

    Args:
        learns: An `Instance`, or such functions for several of them.
        state: Before the batch.
        replay: Of these slots.
        unroll: The slots of the batch that are here.
        total: Adds sums to those of the slots that are elsewhere; replicas meet here alone.

    Returns:
        The new state and replay, the means of the rounds' metrics, and the metrics of `finish`.
    """
    remembered, batch, sums = learns.look(state, replay, unroll)
    measured = total(sums)

    def step(state: Any, round: Array) -> tuple[Any, tuple[Metrics, Tree]]:
        sums, notes = learns.noted_gradient(state, batch, round)
        state, metrics = learns.update(state, total(sums))
        return state, (metrics, notes)

    rounds = jnp.arange(learns.rounds)
    learned, (metrics, notes) = jax.lax.scan(step, learns.adapt(state, measured), rounds)
    learned, finished = learns.finish(learned, measured)
    revised = learns.revise(state, remembered, batch, notes)
    return learned, revised, jax.tree.map(jnp.mean, metrics), finished
