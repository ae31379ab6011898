"""The form in which a network gives values: the mean of returns, or their distribution.

Distributions are C51's (Bellemare et al., 2017, https://arxiv.org/abs/1707.06887): probabilities of
returns at even distances, the atoms. HL-Gauss (Farebrother et al., 2024,
https://arxiv.org/abs/2403.03950) learns such probabilities of one number.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from srl.core.errors import UserError
from srl.core.lazy import jax, jnp
from srl.core.types import Array, Metrics


class Mean:
    """The mean of returns: one output stands for a value."""

    size = 1
    """The number of outputs that stand for one value."""

    def value(self, outputs: Array) -> Array:
        """Gives values, [...], of outputs [..., size]."""
        return outputs[..., 0]

    def target(self, reward: Array, discount: Array, last: Array) -> Array:
        """Gives targets: reward [S] and discount [S] times the value of `last` [S, size]."""
        return reward + discount * last[..., 0]

    def loss(self, outputs: Array, target: Array) -> tuple[Array, Array]:
        """Gives errors of outputs [..., size] to targets, and half their squares, [...] each."""
        error = target - outputs[..., 0]
        return error, 0.5 * jnp.square(error)

    def metrics(self, reward: Array, discount: Array, last: Array) -> Metrics:
        """Gives metrics of targets, [S] each: none; for the arguments see `target`."""
        return {}


@dataclass(frozen=True)
class Atoms:
    """A distribution of returns, by the logits of atoms, with the functions of `Mean`."""

    size: int
    range: tuple[float, float]
    """The returns of the first and of the last atom."""

    @cached_property
    def returns(self) -> np.ndarray:
        """The return that each atom stands for."""
        return np.linspace(*self.range, self.size, dtype=np.float32)

    def value(self, outputs: Array) -> Array:
        """Gives the mean returns."""
        return jnp.sum(jax.nn.softmax(outputs) * self.returns, axis=-1)

    def target(self, reward: Array, discount: Array, last: Array) -> Array:
        """Gives the distribution of targets over the atoms (algorithm 1), [S, size]."""
        low, high = self.range
        step = (high - low) / (self.size - 1)
        moved = self._moved(reward, discount).clip(low, high)
        distance = jnp.abs(moved[..., None] - self.returns) / step
        share = jnp.clip(1 - distance, 0.0, 1.0)  # of each atom's mass, to each atom
        return jnp.einsum("...i,...ij->...j", jax.nn.softmax(last), share)

    def loss(self, outputs: Array, target: Array) -> tuple[Array, Array]:
        """Gives the divergences from targets, and the cross-entropies."""
        loss = -jnp.sum(target * jax.nn.log_softmax(outputs), axis=-1)
        # The divergence, which is what the loss can still fall by, is the error (Rainbow).
        divergence = loss + jnp.sum(jax.scipy.special.xlogy(target, target), axis=-1)
        return divergence, loss

    def metrics(self, reward: Array, discount: Array, last: Array) -> Metrics:
        """Gives the share of targets' mass that is clipped to the range."""
        (low, high), moved = self.range, self._moved(reward, discount)
        beyond = (moved < low) | (moved > high)
        return {_CLIPPED: jnp.sum(jnp.where(beyond, jax.nn.softmax(last), 0.0), axis=-1)}

    def _moved(self, reward: Array, discount: Array) -> Array:
        """The returns of the atoms of targets, [S, size]."""
        return reward[..., None] + discount[..., None] * self.returns


@dataclass(frozen=True)
class HLGauss(Atoms):
    """A number, as the probabilities of a normal distribution around it."""

    def target(self, reward: Array, discount: Array, last: Array) -> Array:
        """Gives the probabilities of targets, whose mean is clipped to the atoms, [S, size]."""
        return self.probabilities(reward + discount * self.value(last))

    def probabilities(self, value: Array) -> Array:
        """Gives the mass near each atom of a normal distribution: values [...] to [..., size].

        Its deviation is three quarters of the atoms' distance, as in the paper.
        """
        (low, high), most = self.range, self.size - 1
        place = (value.clip(low, high) - low) / (high - low) * most
        edges = np.arange(self.size + 1, dtype=np.float32) - 0.5
        below = jax.scipy.special.erf((edges - place[..., None]) / (math.sqrt(2) * _DEVIATION))
        # Rounding may make neighbours fall.
        return jnp.maximum(jnp.diff(below), 0.0) / (below[..., -1:] - below[..., :1])

    def beyond(self, value: Array) -> Metrics:
        """Gives which values [...] are clipped to the range."""
        low, high = self.range
        return {_CLIPPED: (value < low) | (value > high)}

    def metrics(self, reward: Array, discount: Array, last: Array) -> Metrics:
        """Gives which targets are clipped to the range, [S]."""
        return self.beyond(reward + discount * self.value(last))


ValueForm = Mean | Atoms
"""The meaning of the outputs that stand for one value."""
_DEVIATION = 0.75
_CLIPPED, _MUCH = "clipped_targets", 0.05


def value_form(config: Any) -> ValueForm:
    """Gives the form that an algorithm's settings `atoms` and `value_range` ask for.

    Without a range it is that of all returns of rewards from -1 to 1.
    """
    return Mean() if config.atoms == 1 else Atoms(config.atoms, value_range(config))


def value_range(config: Any) -> tuple[float, float]:
    """Gives the setting `value_range`, or that of all returns of rewards from -1 to 1."""
    if config.value_range is not None:
        return config.value_range
    most = config.reward_scale / (1 - config.discount)
    return -most, most


def expect_range_fits(config: Any) -> None:
    """Raises UserError where there is no range of returns for the atoms."""
    name, limits = type(config).__name__, config.value_range
    if limits is None and config.atoms > 1 and config.discount >= 1:
        raise UserError(
            f"{name} with atoms={config.atoms} and discount={config.discount}: returns have no "
            "bounds; give value_range=(least, greatest)"
        )
    if limits is not None and (len(limits) != 2 or limits[0] >= limits[1]):
        raise UserError(f"{name} with value_range={limits}; expected (least, greatest)")


def range_remarks(config: Any, report: Mapping[str, Any]) -> list[str]:
    """Tells that returns often lie beyond the atoms, if a report says so."""
    shares = [x for name, x in report.items() if name.rpartition("/")[2] == _CLIPPED]
    if not any(share > _MUCH for share in shares):
        return []
    low, high = value_range(config)
    smaller = ", or a smaller algorithm.reward_scale" if config.value_range else ""
    return [
        f"more than {_MUCH:.0%} of targets lie beyond the atoms' returns, {low:g} to {high:g}, and "
        f"are clipped (loss/clipped_targets): give a wider algorithm.value_range{smaller}"
    ]
