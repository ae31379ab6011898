"""A gradient step along the mean of sums, with a learning rate that may fall over the run."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from srl.algorithms.algorithm import State
from srl.core.lazy import jax, jnp, optax
from srl.core.types import Array, Metrics

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
        """True if the learning rate falls linearly to 0 over the run, where its length is known."""
        ...


class AnnealedInstance(Protocol):
    """An algorithm's functions, with such settings."""

    @property
    def config(self) -> Annealing:
        """The settings."""
        ...

    @property
    def updates(self) -> int | None:
        """Updates of the run, where that is known."""
        ...

    @property
    def optimizer(self) -> optax.GradientTransformation:
        """Gives the direction of a step."""
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


def annealed_step(instance: AnnealedInstance, state: S, sums: Any) -> tuple[S, Metrics]:
    """Takes a step of an optimizer that knows no learning rate, along the mean gradient.

    Args:
        instance: Whose optimizer and learning rate are used.
        state: Before the step.
        sums: The total of a round: of the gradient, of metrics, and a count.
    """
    mean = mean_of(sums)
    rate = learning_rate(instance.config, state.n, instance.updates)
    steps, changed = instance.optimizer.update(mean["gradient"], state.optimizer, state.params)
    params = jax.tree.map(lambda p, step: p - rate * step, state.params, steps)
    metrics = {**mean["metrics"], "grad_norm": optax.tree.norm(mean["gradient"])}
    return state._replace(params=params, optimizer=changed), metrics
