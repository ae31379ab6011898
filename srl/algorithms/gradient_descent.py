"""Gradient descent along the mean gradient of all replicas, on one vector of all parameters.

One vector compiles and runs faster than many arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from srl.core.lazy import flatten_util, jax, jnp, optax
from srl.core.types import Array, Metrics, Tree


class GradientSums(NamedTuple):
    """Sums over samples; those of disjoint sets of slots add up."""

    gradient: Array  # float32 [parameters]
    metrics: Metrics
    count: Array  # float32 [], samples

    def mean(self) -> tuple[Array, dict[str, Array]]:
        """Gives the mean gradient [parameters], and mean metrics."""
        count = jnp.maximum(self.count, 1)
        return self.gradient / count, {name: x / count for name, x in self.metrics.items()}


def gradient_sums(
    loss: Callable[[Tree], tuple[Array, Metrics]], params: Tree, valid: Array
) -> tuple[GradientSums, Metrics]:
    """Sums the gradient of a loss over samples; gives the metrics of each sample, too.

    Args:
        loss: params to the loss of each sample, float32 [...], and metrics [...] of each.
        params: That the gradient is with respect to.
        valid: bool [...], the samples that count. The losses of others need finite derivatives.
    """

    def summed(params: Tree) -> tuple[Array, Metrics]:
        losses, metrics = loss(params)
        return jnp.sum(jnp.where(valid, losses, 0.0)), metrics

    gradient, metrics = jax.grad(summed, has_aux=True)(params)
    sums = {name: jnp.sum(jnp.where(valid, x, 0.0)) for name, x in metrics.items()}
    count = jnp.sum(valid, dtype=jnp.float32)
    return GradientSums(vector(gradient), sums, count), metrics


@dataclass(frozen=True)
class Descent:
    """An optimizer without a learning rate, such as `optax.scale_by_adam()`."""

    optimizer: optax.GradientTransformation

    def init(self, params: Tree) -> Any:
        """Gives the optimizer's state before the first step."""
        return self.optimizer.init(vector(params))

    def step(self, params: Tree, state: Any, gradient: Array, rate: Any) -> tuple[Tree, Any]:
        """Takes a step along a gradient [parameters]; gives the parameters and the state."""
        before, tree_of = flatten_util.ravel_pytree(params)
        direction, state = self.optimizer.update(gradient, state, before)
        return tree_of(before - rate * direction), state


def adam(weight_decay: float = 0.0) -> Descent:
    """Gives Adam; with decay AdamW, which shrinks parameters by rate * decay (arXiv:1711.05101)."""
    decay = [optax.add_decayed_weights(weight_decay)] if weight_decay else []
    return Descent(optax.chain(optax.scale_by_adam(), *decay) if decay else optax.scale_by_adam())


def descend(
    descents: dict[str, Descent], state: Any, sums: dict[str, GradientSums], rates: dict[str, Any]
) -> tuple[dict[str, Tree], dict[str, Any], dict[str, Array]]:
    """Takes a step for each of several networks, from the same parameters.

    Args:
        descents: The optimizers, by name.
        state: With `params` and `optimizer` by name.
        sums: The totals, by name.
        rates: Step sizes, by name.

    Returns:
        The parameters, the optimizers' states, and the metrics of all.
    """
    params, optimizer, metrics, norms = {}, {}, {}, []
    for name, total in sums.items():
        gradient, means = total.mean()
        moved = descents[name].step(
            state.params[name], state.optimizer[name], gradient, rates[name]
        )
        params[name], optimizer[name] = moved
        metrics |= means
        norms.append(jnp.linalg.norm(gradient))
    return params, optimizer, {**metrics, "grad_norm": jnp.linalg.norm(jnp.stack(norms))}


def clipped(max_norm: Any, *then: optax.GradientTransformation) -> Descent:
    """Gives a descent along gradients shortened to a norm."""
    return Descent(optax.chain(optax.clip_by_global_norm(max_norm), *then))


def vector(tree: Tree) -> Array:
    """Joins the arrays of a tree."""
    return flatten_util.ravel_pytree(tree)[0]


def annealed_rate(config: Any, n: Array, updates: int | Array | None) -> Array:
    """Gives the learning rate of update n of so many, [].

    Args:
        config: Its `learning_rate` falls linearly to 0 if `anneal` is set.
        n: int32 [], earlier updates.
        updates: Of the run, where its length is known.
    """
    rate = jnp.asarray(config.learning_rate)
    if updates is None or not config.anneal:
        return rate
    return rate * jnp.maximum(1 - n / updates, 0.0)


def polyak(params: Tree, targets: Tree, tau: Any) -> Tree:
    """Gives the targets moved towards the parameters: tau params + (1 - tau) targets."""
    return jax.tree.map(lambda new, old: tau * new + (1 - tau) * old, params, targets)


def where(condition: Array, one: Any, other: Any) -> Any:
    """Gives the one tree where the condition, bool [], is set, and else the other."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), one, other)
