"""A gradient step along the mean of sums, with a learning rate that may fall over the run."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from srl.algorithms.algorithm import State
from srl.lazy import jax, jnp, optax
from srl.types import Array, Tree

S = TypeVar("S", bound=State)
"""The state that a step changes."""


class Annealing(Protocol):
    """Settings of the learning rate."""

    @property
    def learning_rate(self) -> float:
        """The step size in the beginning."""
        ...

    @property
    def anneal(self) -> bool:
        """Whether it falls linearly to 0 over the run, where its length is known."""
        ...


def learning_rate(config: Annealing, n: Array, updates: int | None) -> Array:
    """Gives the learning rate of update n of so many, [].

    Args:
        config: Settings.
        n: int32 [], earlier updates.
        updates: Of the run, where its length is known.
    """
    rate = jnp.asarray(config.learning_rate)
    return rate * jnp.maximum(1 - n / updates, 0.0) if config.anneal and updates else rate


def mean_of(sums: Any) -> Any:
    """Gives the sums over their `count`, or over 1 where that is 0."""
    return jax.tree.map(lambda x: x / jnp.maximum(sums["count"], 1), sums)


def step_along(optimizer: optax.GradientTransformation, state: S, gradient: Tree, rate: Array) -> S:
    """Gives the state after a step of the optimizer, which knows no learning rate of its own."""
    steps, changed = optimizer.update(gradient, state.optimizer, state.params)
    params = jax.tree.map(lambda p, step: p - rate * step, state.params, steps)
    return state._replace(params=params, optimizer=changed)
