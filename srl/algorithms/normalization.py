"""Running mean and variance, of observations and of value targets.

Statistics are parameters: they change only in `learn`, in slot order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

from srl.algorithms.privileged import policy_space, visible
from srl.algorithms.returns import valid_rows
from srl.core.lazy import jax, jnp
from srl.core.spaces import Space, is_mask, is_picture, space_tree, spaces
from srl.core.tree import leaves_of, map_tree, names_of
from srl.core.types import Array, Tree, Unroll
from srl.networks.entities import entity_sets

EPSILON = 1e-8
FLOOR = 1e-2
"""The least deviation that observations are divided by, as rsl_rl and FastTD3 add to it: a feature
that hardly ever changes is not blown up to the bound by its first small change."""
ScaledBytes = Literal["pictures", "all", "none"]
"""The observations of uint8 that are divided by 255."""


class Statistics(NamedTuple):
    """Mean and variance of the rows seen so far."""

    count: Array  # float32 []
    mean: Array  # float32 [...]
    variance: Array  # float32 [...]


def no_statistics(shape: tuple[int, ...] = (), tasks: tuple[int, ...] = ()) -> Statistics:
    """Gives the statistics of nothing: normalising with them changes nothing.

    Args:
        shape: Of a row's features.
        tasks: The leading axis of statistics by task: (tasks,); () without tasks.
    """
    shape = (*tasks, *shape)
    return Statistics(jnp.zeros(tasks), jnp.zeros(shape), jnp.ones(shape))


class Moments(NamedTuple):
    """Sums over rows, around a centre; those of disjoint sets of slots add up.

    The squares are split as in an analysis of variance: float32 is enough for large numbers even
    where the centre is far from them, since only what differs between slots then is imprecise.
    """

    count: Array  # float32 [], rows
    total: Array  # float32 [...], of the differences to the centre
    within: Array  # float32 [...], of the squared differences to the slot's own mean
    between: Array  # float32 [...], of the squared differences of that mean to the centre


def moments(x: Array, mask: Array, center: Array) -> Moments:
    """Gives the sums over the rows whose mask is True.

    Args:
        x: [T, *slots, *shared, *shape]; the features at all places of the shared axes are alike.
        mask: bool [T, *slots]; a row whose mask is False does not count, whatever it holds.
        center: [*shape], the same wherever the sums are to be added.
    """
    steps, shape = len(x), center.shape
    mask = mask.reshape(steps, -1)
    x = x.reshape(*mask.shape, -1, *shape)  # [T, slots, shared, *shape]
    shared, ones = x.shape[2], [1] * len(shape)
    inside = mask.reshape(*mask.shape, 1, *ones)
    weight = jnp.sum(mask, axis=0, dtype=jnp.float32).reshape(-1, *ones)

    x = jnp.where(inside, x, center).astype(jnp.float32) - center
    mean = jnp.sum(x, axis=(0, 2)) / (jnp.maximum(weight, 1.0) * shared)
    from_mean = jnp.where(inside, x - mean[:, None], 0.0)
    return Moments(
        count=jnp.sum(mask, dtype=jnp.float32),
        total=jnp.sum(weight * mean, axis=0),
        within=jnp.sum(jnp.square(from_mean), axis=(0, 1, 2)) / shared,
        between=jnp.sum(weight * jnp.square(mean), axis=0),
    )


def spread(sums: Moments) -> tuple[Array, Array]:
    """Gives the mean's distance from the centre, and the variance; 0 of no rows."""
    count = jnp.maximum(_along(sums.count, sums.total), 1.0)
    mean = sums.total / count
    between = sums.between / count
    beyond = between - jnp.square(mean)
    # Less than this is what rounding leaves of slots that do not differ.
    beyond = jnp.where(beyond > 1e-5 * between, beyond, 0.0)
    return mean, sums.within / count + beyond


def merge(statistics: Statistics, sums: Moments) -> Statistics:
    """Adds rows to statistics (Chan et al., 1979: Welford's update for sets).

    Args:
        statistics: Of the rows so far.
        sums: Of the new rows, around the statistics' mean.
    """
    delta, variance = spread(sums)
    total = statistics.count + sums.count
    share = _along(sums.count / jnp.maximum(total, 1.0), delta)
    within = (1 - share) * statistics.variance + share * variance
    between = share * (1 - share) * jnp.square(delta)
    return Statistics(total, statistics.mean + share * delta, within + between)


def _along(count: Array, x: Array) -> Array:
    """Gives counts by task, [tasks], with the axes of what was counted; one count, [], as it is."""
    return count.reshape(-1, *[1] * (x.ndim - 1)) if count.ndim else count


def standardize(statistics: Statistics, x: Array, floor: float = 0.0) -> Array:
    """Gives numbers of mean 0 and variance 1; a deviation below the floor counts as the floor."""
    deviation = jnp.sqrt(statistics.variance + EPSILON)
    return (x - statistics.mean) / jnp.maximum(deviation, floor)


def unstandardize(statistics: Statistics, x: Array) -> Array:
    """Undoes `standardize`."""
    return x * jnp.sqrt(statistics.variance + EPSILON) + statistics.mean


def of_task(by_task: Tree, task: Array | None, axes: int = 0) -> Tree:
    """Gives each row what is its task's.

    Args:
        by_task: Arrays [tasks, *shape].
        task: int [...]; None without tasks, where the arrays are [*shape] and given as they are.
        axes: Axes of length 1 to put between those of the rows and those of the shape.

    Returns:
        Arrays [..., 1, ..., *shape].
    """
    if task is None:
        return by_task

    def pick(x: Array) -> Array:
        # A product with one-hot rows, which is exact: the derivative of an index would be a sum in
        # any order.
        rows = jax.nn.one_hot(task, len(x))
        own = jnp.matmul(rows, x.reshape(len(x), -1), precision="highest")
        return own.reshape(*task.shape, *[1] * axes, *x.shape[1:])

    return jax.tree.map(pick, by_task)


def task_moments(x: Array, mask: Array, center: Array, task: Array | None) -> Moments:
    """Gives `moments`, by task where there are tasks.

    Args:
        x: As for `moments`.
        mask: As for `moments`.
        center: [tasks, *shape]; [*shape] without tasks.
        task: int [T, *slots]; None without tasks.

    Returns:
        Of arrays with a leading axis [tasks] where there are tasks.
    """
    if task is None:
        return moments(x, mask, center)

    def of(number: Array, center: Array) -> Moments:
        own = task == number
        return moments(x, mask & own.reshape(*own.shape, *[1] * (mask.ndim - own.ndim)), center)

    return jax.vmap(of)(jnp.arange(len(center)), center)


@dataclass(frozen=True)
class ObservationNormalizer:
    """Normalises what a space observes, leaf by leaf.

    Box leaves of numbers are standardised and clipped; all entities, rays or pixels of a leaf with
    several axes share their statistics, and places of a set that its mask leaves empty do not
    count. A deviation below 0.01 counts as 0.01. Pictures are scaled to [0, 1]. Categories, and
    what is named `mask...` or `action_mask`, stay as they are. Each task of a mixture has its own
    statistics.
    """

    space: Space
    clip: float = 10.0
    running: bool = True
    """True if observations are standardised; otherwise only pictures are scaled."""
    scaled_bytes: ScaledBytes = "pictures"
    """The leaves of uint8 that are scaled as pictures."""
    privileged: tuple[str, ...] = ()
    """The keys that policies do not see."""
    by_task: tuple[int, ...] = ()
    """(tasks,) where observations have tasks, by which statistics are kept; () without."""

    def task(self, observation: Tree) -> Array | None:
        """Gives the task of each observation, int [...]; None without tasks."""
        return observation["task"] if self.by_task else None

    @cached_property
    def policy_space(self) -> Space:
        """The space of what policies see of the observations."""
        return policy_space(self.space, self.privileged)

    def init(self) -> dict[str, Statistics]:
        """Gives the statistics by the leaf's name, such as `observation` or `camera/depth`."""
        return {
            name: no_statistics(_features(leaf), self.by_task)
            for name, leaf in zip(leaves_of(self._names), leaves_of(self._leaves), strict=True)
            if self.running and self._has_statistics(name, leaf)
        }

    def measure(
        self, statistics: dict[str, Statistics], observation: Tree, mask: Array
    ) -> dict[str, Moments]:
        """Gives the sums over the observations [T, B, ...] whose mask [T, B] is True.

        Of sets with a mask, the sums over the entities that are there.
        """
        values = dict(zip(leaves_of(self._names), leaves_of(observation), strict=True))
        sets = entity_sets(self.space)

        def rows(name: str) -> Array:
            taken = sets[name].taken if name in sets else None
            if taken is None or not values[taken].shape[-1]:  # a set without places
                return mask
            return mask[..., None] & (values[taken] > 0.5)

        task = self.task(observation)
        return {
            name: task_moments(values[name], rows(name), statistics[name].mean, task)
            for name in statistics
        }

    def update(
        self, statistics: dict[str, Statistics], sums: dict[str, Moments]
    ) -> dict[str, Statistics]:
        """Adds what was measured of them to the statistics."""
        return {name: merge(old, sums[name]) for name, old in statistics.items()}

    def seen(
        self, statistics: dict[str, Statistics], unroll: Unroll, total: Callable[[Tree], Tree]
    ) -> dict[str, Statistics]:
        """Gives the statistics with the observations of an unroll, and of its other slots.

        Args:
            statistics: Of earlier unrolls.
            unroll: The slots that are here.
            total: Adds sums to those of the slots that are elsewhere.
        """
        valid = valid_rows(unroll.terminated, unroll.truncated)
        observation = map_tree(lambda x: x[:-1], unroll.observation)
        return self.update(statistics, total(self.measure(statistics, observation, valid)))

    def policy_statistics(self, statistics: dict[str, Statistics]) -> dict[str, Statistics]:
        """Gives the statistics of what policies see."""
        seen = leaves_of(visible(self._names, self.privileged))
        return {name: x for name, x in statistics.items() if name in seen}

    def normalize(self, statistics: dict[str, Statistics], observation: Tree) -> Tree:
        """Gives the observation as values and critics take it, for any leading axes."""
        return self._normalized(statistics, self._names, self._leaves, observation)

    def policy_inputs(self, statistics: dict[str, Statistics], observation: Tree) -> Tree:
        """Gives the observation as policies take it, without privileged keys; see `normalize`."""
        trees = self._names, self._leaves, observation
        return self._normalized(statistics, *(visible(tree, self.privileged) for tree in trees))

    def _normalized(
        self, statistics: dict[str, Statistics], names: Tree, leaves: Tree, observation: Tree
    ) -> Tree:
        task = self.task(observation)

        def visit(name: str, leaf: Space, value: Array) -> Array:
            if name in statistics:
                shared = len(leaf.shape or ()) - len(_features(leaf))
                scaled = standardize(of_task(statistics[name], task, shared), value, FLOOR)
                return jnp.clip(scaled, -self.clip, self.clip)
            return value.astype(jnp.float32) / 255 if self._is_scaled(leaf) else value

        return map_tree(visit, names, leaves, observation)

    def _has_statistics(self, name: str, leaf: Space) -> bool:
        return isinstance(leaf, spaces.Box) and not is_mask(name) and not self._is_scaled(leaf)

    def _is_scaled(self, leaf: Space) -> bool:
        if self.scaled_bytes == "all":
            return isinstance(leaf, spaces.Box) and leaf.dtype == "uint8"
        return self.scaled_bytes == "pictures" and is_picture(leaf)

    @property
    def _leaves(self) -> Tree:
        return space_tree(self.space)

    @property
    def _names(self) -> Tree:
        return names_of(self._leaves) or "observation"


def _features(leaf: Space) -> tuple[int, ...]:
    """Gives the shape of a leaf's statistics, which entities and pixels share."""
    shape = leaf.shape or ()
    return shape[-1:] if len(shape) <= 2 else ()
