"""Running mean and variance, of observations and of value targets.

Statistics are parameters: they change only in `learn`, in slot order.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import gymnasium
from gymnasium import spaces

from srl.lazy import jnp
from srl.types import Array, Tree

EPSILON = 1e-8


class Statistics(NamedTuple):
    """Mean and variance of the rows seen so far."""

    count: Array  # float32 []
    mean: Array  # float32 [...]
    variance: Array  # float32 [...]


def no_statistics(shape: tuple[int, ...] = ()) -> Statistics:
    """Gives the statistics of nothing: normalising with them changes nothing."""
    return Statistics(jnp.zeros(()), jnp.zeros(shape), jnp.ones(shape))


def merge(statistics: Statistics, x: Array, mask: Array) -> Statistics:
    """Adds rows to statistics (Chan et al., 1979: Welford's update for sets).

    Sums are of differences to a mean, so float32 is enough for large numbers.

    Args:
        statistics: Of features of some shape.
        x: [*leading, *shared, *shape]; the features at all places of the shared axes are alike.
        mask: bool [*leading]; a row whose mask is False does not count, whatever it holds.
    """
    axes = tuple(range(x.ndim - statistics.mean.ndim))
    shared = math.prod(x.shape[mask.ndim : len(axes)])
    count = jnp.sum(mask, dtype=jnp.float32)
    mask = mask.reshape(*mask.shape, *[1] * (x.ndim - mask.ndim))

    def mean_of(values: Array) -> Array:
        return jnp.sum(jnp.where(mask, values, 0.0), axes) / (jnp.maximum(count, 1.0) * shared)

    x = jnp.where(mask, x, statistics.mean).astype(jnp.float32)
    mean = statistics.mean + mean_of(x - statistics.mean)
    variance = mean_of(jnp.square(x - mean))

    total = statistics.count + count
    share = count / jnp.maximum(total, 1.0)
    delta = mean - statistics.mean
    within = (1 - share) * statistics.variance + share * variance
    between = share * (1 - share) * jnp.square(delta)
    return Statistics(total, statistics.mean + share * delta, within + between)


def standardize(statistics: Statistics, x: Array) -> Array:
    """Gives numbers of mean 0 and variance 1."""
    return (x - statistics.mean) / jnp.sqrt(statistics.variance + EPSILON)


def unstandardize(statistics: Statistics, x: Array) -> Array:
    """Undoes `standardize`."""
    return x * jnp.sqrt(statistics.variance + EPSILON) + statistics.mean


@dataclass(frozen=True)
class ObservationNormalizer:
    """Normalises what a space observes, leaf by leaf.

    Box leaves of numbers are standardised and clipped; all entities, rays or pixels of a leaf with
    several axes share their statistics. Images (uint8) are scaled to [0, 1]. Categories, and what
    is named `mask...` or `action_mask`, stay as they are.
    """

    space: gymnasium.Space
    clip: float = 10.0
    running: bool = True
    """Whether to standardise at all; without it only images are scaled."""

    def init(self) -> dict[str, Statistics]:
        """Gives the statistics by the leaf's name, such as `observation` or `camera/depth`."""
        statistics: dict[str, Statistics] = {}

        def visit(name: str, leaf: gymnasium.Space, value: None) -> None:
            if self.running and _has_statistics(name, leaf):
                statistics[name] = no_statistics(_features(leaf))

        _map(visit, self.space, None)
        return statistics

    def update(
        self, statistics: dict[str, Statistics], observation: Tree, mask: Array
    ) -> dict[str, Statistics]:
        """Adds the observations [*leading, ...] whose mask [*leading] is True."""
        updated = dict(statistics)

        def visit(name: str, leaf: gymnasium.Space, value: Array) -> None:
            if name in statistics:
                updated[name] = merge(statistics[name], value, mask)

        _map(visit, self.space, observation)
        return updated

    def normalize(self, statistics: dict[str, Statistics], observation: Tree) -> Tree:
        """Gives the observation as networks take it, for any leading axes."""

        def visit(name: str, leaf: gymnasium.Space, value: Array) -> Array:
            if name in statistics:
                return jnp.clip(standardize(statistics[name], value), -self.clip, self.clip)
            return value.astype(jnp.float32) / 255 if _is_image(leaf) else value

        return _map(visit, self.space, observation)


def _map(
    visit: Callable[[str, gymnasium.Space, Any], Any],
    space: gymnasium.Space,
    value: Tree,
    name: str = "",
) -> Tree:
    """Applies `visit(name, leaf space, value)` to every leaf; a None value is None everywhere."""

    def below(key: str, part: gymnasium.Space, inner: Any) -> Any:
        return _map(visit, part, inner, f"{name}/{key}" if name else key)

    if isinstance(space, spaces.Dict):
        return {
            key: below(key, part, None if value is None else value[key])
            for key, part in space.items()
        }
    if isinstance(space, spaces.Tuple):
        return tuple(
            below(str(i), part, None if value is None else value[i]) for i, part in enumerate(space)
        )
    return visit(name or "observation", space, value)


def _has_statistics(name: str, leaf: gymnasium.Space) -> bool:
    key = name.rsplit("/", 1)[-1]
    named_mask = key.startswith("mask") or key == "action_mask"
    return isinstance(leaf, spaces.Box) and not named_mask and not _is_image(leaf)


def _is_image(leaf: gymnasium.Space) -> bool:
    return isinstance(leaf, spaces.Box) and leaf.dtype == "uint8"


def _features(leaf: gymnasium.Space) -> tuple[int, ...]:
    """Gives the shape of a leaf's statistics, which entities and pixels share."""
    shape = leaf.shape or ()
    return shape[-1:] if len(shape) <= 2 else ()
