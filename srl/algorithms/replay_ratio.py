"""The replay ratio: how many gradient steps each update takes, from which update on."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from srl.algorithms.replay_sampling import portions
from srl.core.lazy import jax, jnp
from srl.core.types import Array, Metrics

_PERIOD = 1024
"""The most updates after which gradient steps are as many as `samples_per_insert` asks for."""


@dataclass(frozen=True)
class ReplayRatio:
    """The gradient steps of each update.

    The batch is rounded to a multiple or a part of the slots; the average number of times that each
    step is learned from stays as given.
    """

    slots: int
    """The number of slots in the run that learn the policy; 0 without learning."""
    unroll_length: int
    batch_size: int
    samples_per_insert: float
    warm_up: int
    """Steps of all slots before the first gradient step."""
    sequence: float = 1
    """Steps that are learned from of each draw, on average."""

    @classmethod
    def of(cls, config: Any, slots: int, sequence: float = 1) -> ReplayRatio:
        """Gives that of an algorithm's settings."""
        numbers = config.unroll_length, config.batch_size, config.samples_per_insert
        return cls(slots, *numbers, config.warm_up, sequence)

    @property
    def share(self) -> float:
        """Draws from each slot in a gradient step."""
        return self.batch_size / max(self.slots, 1)

    @property
    def steps(self) -> int:
        """Steps of all slots in an update."""
        return self.unroll_length * max(self.slots, 1)

    @property
    def draws(self) -> int:
        """Draws of a gradient step: the multiple or part of the slots that is next to the batch."""
        each, turns = portions(self.share)
        return max(1, self.slots // turns * each)

    @property
    def rate(self) -> Fraction:
        """Gradient steps of an update, on average."""
        learned = self.draws * Fraction(self.sequence)
        rate = Fraction(self.samples_per_insert) * self.steps / learned
        return max(rate.limit_denominator(_PERIOD), Fraction(1, _PERIOD))

    @property
    def gradient_steps(self) -> int:
        """The most gradient steps of an update; in some updates the last is left out."""
        return math.ceil(self.rate)

    @property
    def warm_up_updates(self) -> int:
        """Updates before the first gradient step."""
        return math.ceil(self.warm_up / self.steps)

    def past_warm_up(self, updates: Array) -> Array:
        """Tells if the steps of so many updates are enough to begin with."""
        return updates >= self.warm_up_updates  # without large products

    def steps_before(self, n: Array) -> Array:
        """Gives the gradient steps of the updates before update n, int32; warm-up counts, too."""
        steps, period = self.rate.numerator, self.rate.denominator
        return n // period * steps + n % period * steps // period

    def due(self, n: Array, step: Array) -> Array:
        """Tells if gradient step `step` of update n is taken: bool of their shapes."""
        taken = self.steps_before(n + 1) - self.steps_before(n)
        return self.past_warm_up(n + 1) & (step < taken)

    def every(self, period: int, n: Array, step: Array) -> Array:
        """Tells if a gradient step is the first of each `period`: bool of their shapes."""
        return (self.steps_before(n) + step) % period == 0

    def means(self, metrics: Metrics) -> dict[str, Array]:
        """Gives the means [] of metrics [gradient_steps] over the steps that were taken.

        A mean over updates is right: one with fewer steps weighs less.
        """
        factor = self.gradient_steps / float(self.rate)
        return {name: jnp.mean(x) * factor for name, x in metrics.items()}


def zeros_unless(condition: Array, compute: Callable[[], Any]) -> Any:
    """Gives what `compute` gives where the condition, bool [], is set; else zeros like that."""
    shapes = jax.eval_shape(compute)
    zeros = lambda: jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)  # noqa: E731
    return jax.lax.cond(condition, compute, zeros)
