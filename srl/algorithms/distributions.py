"""Distributions over the actions of a space.

An action is kept as it was drawn, since log-probabilities are of that; `to_env` gives what the
simulator takes. A distribution is `actions(params, outputs, mask)`, where `actions` stands for the
space, `params` are numbers of its own and `outputs` come from a network.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from srl.algorithms.stretch import Stretch
from srl.core.errors import UserError
from srl.core.lazy import jax, jnp
from srl.core.spaces import Space, choice_counts, has_choices, limits, space_tree, spaces
from srl.core.tree import leaves_of, map_tree, names_of
from srl.core.types import Array, Specs, Tree


class Distribution:
    """A distribution over one slot's actions, for any leading axes."""

    def sample(self, keys: Array) -> Tree:
        """Draws an action for each slot with the slot's own key: keys [B]."""
        raise NotImplementedError

    def sample_and_log_prob(self, keys: Array) -> tuple[Tree, Array]:
        """Draws an action for each slot; gives its log-probability (density), too."""
        action = self.sample(keys)
        return action, self.log_prob(action)

    def mode(self) -> Tree:
        """Gives the most probable action."""
        raise NotImplementedError

    def parameters(self) -> dict[str, Array]:
        """Gives the numbers that the distribution follows from, by name."""
        raise NotImplementedError

    def log_prob(self, action: Tree) -> Array:
        """Gives the log-probability (density) of an action as it was drawn."""
        raise NotImplementedError

    def entropy(self) -> Array:
        """Gives the entropy in nats."""
        raise NotImplementedError

    def divergence(self, parameters: Mapping[str, Array]) -> Array:
        """Gives KL(other || this) in nats, of another distribution of the same kind.

        Args:
            parameters: The other's.
        """
        raise NotImplementedError


class ActionSpace:
    """The fixed properties of the distributions over a space."""

    num_outputs: int
    """The number of a network's outputs for each slot."""

    def init(self) -> Tree:
        """Gives the parameters that do not depend on observations."""
        return ()

    def __call__(self, params: Tree, outputs: Array, mask: Tree = None) -> Distribution:
        """Gives the distributions of `outputs` [..., num_outputs], `mask` True where allowed."""
        raise NotImplementedError

    def to_env(self, action: Tree) -> Tree:
        """Gives what the simulator takes; works on NumPy and JAX arrays."""
        raise NotImplementedError


def action_distribution(space: Space, initial_log_std: float = 0.0) -> ActionSpace:
    """Chooses the distributions for a space of actions.

    Args:
        space: Of the actions.
        initial_log_std: Logarithm of the deviation that normal distributions start from.
    """
    parts = map_tree(partial(_actions_of, initial_log_std=initial_log_std), space_tree(space))
    return parts if isinstance(parts, ActionSpace) else ProductActions(parts)


def _actions_of(space: Space, initial_log_std: float) -> ActionSpace:
    """The distributions over one array."""
    if has_choices(space):
        counts = choice_counts(space)
        starts = np.broadcast_to(limits(space)[0], counts.shape)
        return CategoricalActions(
            *(tuple(map(int, x.flat)) for x in (counts, starts)), shape=counts.shape
        )
    if isinstance(space, spaces.Box):
        return GaussianActions(space, initial_log_std)
    raise UserError(
        f"no distribution over actions of {space}; supported: Discrete, MultiDiscrete, "
        "MultiBinary, Box, and Dict and Tuple of these"
    )


def action_mask(observation: Tree) -> Tree:
    """Finds the mask of allowed actions in an observation; None if it has none."""
    return observation.get("action_mask") if isinstance(observation, Mapping) else None


def expect_masks(specs: Specs) -> None:
    """Raises UserError for a mask of numbers, which only a mixture gives, for its tasks' own."""
    observation = specs.observation
    masked = isinstance(observation, spaces.Dict) and "action_mask" in observation.spaces
    if masked and isinstance(specs.action, spaces.Box) and not specs.tasks:
        raise UserError(
            "an action_mask needs Discrete or MultiDiscrete actions, not a Box; leave it out of "
            "the observation"
        )


def any_allowed(observation: Tree) -> Array:
    """Gives where any action is allowed, bool [...], or [] without masks.

    Masks may allow nothing after an episode's last action, and while others have their turn.
    """
    mask = action_mask(observation)
    return jnp.ones((), bool) if mask is None else jnp.any(mask.astype(bool), axis=-1)


@dataclass(frozen=True)
class CategoricalActions(ActionSpace):
    """One choice, or several independent ones, of some number of categories each."""

    sizes: tuple[int, ...]
    starts: tuple[int, ...]
    shape: tuple[int, ...]
    """The shape of an action, () for one choice alone."""

    @property
    def num_outputs(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """A logit for each category."""
        return sum(self.sizes)

    def __call__(self, params: Tree, outputs: Array, mask: Tree = None) -> Categorical:
        """Gives the categorical distributions; `mask` is flat, or a tuple with a part for each."""
        del params
        if isinstance(mask, tuple):
            mask = jnp.concatenate(mask, axis=-1)
        if mask is not None:
            outputs = jnp.where(mask.astype(bool), outputs, jnp.finfo(outputs.dtype).min)
        ends = np.cumsum(self.sizes)
        parts = jnp.split(outputs, ends[:-1], axis=-1)
        return Categorical([jax.nn.log_softmax(part) for part in parts], self.shape)

    def to_env(self, action: Array) -> Array:
        """Shifts the categories to where the space starts."""
        if not any(self.starts):
            return action
        return action + np.asarray(self.starts, np.int32).reshape(self.shape)


@dataclass(frozen=True)
class Categorical(Distribution):
    """Independent categories, by their log-probabilities [..., size] each."""

    log_probs: list[Array]
    shape: tuple[int, ...]

    def sample(self, keys: Array) -> Array:
        """Draws by the Gumbel-max trick."""
        size = sum(part.shape[-1] for part in self.log_probs)
        gumbel = jax.vmap(lambda key: jax.random.gumbel(key, (size,)))(keys)
        ends = np.cumsum([part.shape[-1] for part in self.log_probs])
        noise = jnp.split(gumbel, ends[:-1], axis=-1)
        return self._largest([p + g for p, g in zip(self.log_probs, noise, strict=True)])

    def mode(self) -> Array:
        """Gives the most probable categories."""
        return self._largest(self.log_probs)

    def parameters(self) -> dict[str, Array]:
        """Gives the `logits` [..., sizes], which are log-probabilities, part after part."""
        return {"logits": jnp.concatenate(self.log_probs, axis=-1)}

    def log_prob(self, action: Array) -> Array:
        """Sums the log-probabilities of the chosen categories."""
        total = jnp.zeros(())
        choices = action.reshape(*action.shape[: action.ndim - len(self.shape)], -1)
        for i, part in enumerate(self.log_probs):
            chosen = choices[..., i]
            # A sum over one-hot rows: its gradient needs no scatter, which is slow on CPU.
            one_hot = chosen[..., None] == jnp.arange(part.shape[-1])
            total += jnp.sum(jnp.where(one_hot, part, 0.0), axis=-1)
        return total

    def entropy(self) -> Array:
        """Sums the entropies; a forbidden category adds exactly 0."""
        return sum(-jnp.sum(jnp.exp(part) * part, axis=-1) for part in self.log_probs)

    def divergence(self, parameters: Mapping[str, Array]) -> Array:
        """Sums the divergences; categories that are forbidden here do not count."""
        ends = np.cumsum([part.shape[-1] for part in self.log_probs])
        theirs = jnp.split(parameters["logits"], ends[:-1], axis=-1)

        def one(here: Array, there: Array) -> Array:
            counts = here > jnp.finfo(here.dtype).min / 2
            ratio = jnp.where(counts, there - here, 0.0)
            return jnp.sum(jnp.where(counts, jnp.exp(there), 0.0) * ratio, axis=-1)

        return sum(map(one, self.log_probs, theirs))

    def _largest(self, scores: list[Array]) -> Array:
        chosen = [jnp.argmax(score, axis=-1).astype(jnp.int32) for score in scores]
        return jnp.stack(chosen, axis=-1).reshape(*chosen[0].shape, *self.shape)


class GaussianActions(ActionSpace):
    """Independent normal distributions, with a deviation that does not depend on observations.

    Where the space is bounded, drawn numbers are clipped to [-1, 1] and stretched to its bounds
    for the simulator (`Stretch`); log-probabilities are of the unclipped ones. Numbers that a mask
    leaves out are 0, and have no part in probabilities.
    """

    def __init__(self, space: spaces.Box, initial_log_std: float) -> None:
        self.initial_log_std = initial_log_std
        self.shape: tuple[int, ...] = space.shape
        self.num_outputs = math.prod(space.shape)
        self.to_env = Stretch(space)

    def init(self) -> Tree:
        """Gives every component the initial deviation."""
        return {"log_std": jnp.full(self.shape, self.initial_log_std)}

    def __call__(self, params: Tree, outputs: Array, mask: Tree = None) -> Distribution:
        """Gives the normal distributions around `outputs`; `mask` has a value for each number."""
        mean = outputs.reshape(*outputs.shape[:-1], *self.shape)
        mask = None if mask is None else used_numbers(mask).reshape(mean.shape)
        return Gaussian(only(mask, mean), params["log_std"], len(self.shape), mask)


def used_numbers(mask: Tree) -> Array:
    """Gives the numbers of a Box that a mask [..., numbers] allows, as bool.

    Raises:
        UserError: If the mask is none of a Box.
    """
    if isinstance(mask, tuple):
        raise UserError("an action_mask of a Box is one array, with a value for each number")
    return mask.astype(bool)


def only(mask: Array | None, x: Array) -> Array:
    """Gives numbers with 0 in place of those that a mask leaves out; None leaves out none."""
    return x if mask is None else jnp.where(mask, x, 0.0)


@dataclass(frozen=True)
class Gaussian(Distribution):
    """Independent normal distributions over the last `rank` axes of `mean`."""

    mean: Array
    log_std: Array
    rank: int
    mask: Array | None = None
    """The numbers that there are, bool, of the mean's shape; None for all."""

    def sample(self, keys: Array) -> Array:
        """Draws with the slot's own key."""
        shape = self.mean.shape[1:]
        noise = jax.vmap(lambda key: jax.random.normal(key, shape))(keys)
        return only(self.mask, self.mean + jnp.exp(self.log_std) * noise)

    def mode(self) -> Array:
        """Gives the mean."""
        return self.mean

    def parameters(self) -> dict[str, Array]:
        """Gives `mean` and `log_std`, of numbers that are not clipped or stretched yet."""
        return {"mean": self.mean, "log_std": jnp.broadcast_to(self.log_std, self.mean.shape)}

    def log_prob(self, action: Array) -> Array:
        """Sums the log-densities."""
        z = (action - self.mean) * jnp.exp(-self.log_std)
        return self._sum(-0.5 * jnp.square(z) - self.log_std - 0.5 * math.log(2 * math.pi))

    def entropy(self) -> Array:
        """Sums the entropies, the same for every slot."""
        entropy = self.log_std + 0.5 * math.log(2 * math.pi * math.e)
        return self._sum(jnp.broadcast_to(entropy, self.mean.shape))

    def divergence(self, parameters: Mapping[str, Array]) -> Array:
        """Sums the divergences."""
        mean, log_std = parameters["mean"], parameters["log_std"]
        spread = jnp.exp(2 * (log_std - self.log_std))
        distance = jnp.square((mean - self.mean) * jnp.exp(-self.log_std))
        return self._sum(self.log_std - log_std + 0.5 * (spread + distance - 1))

    def _sum(self, x: Array) -> Array:
        x = only(self.mask, x)
        return jnp.sum(x, axis=tuple(range(-self.rank, 0))) if self.rank else x


class ProductActions(ActionSpace):
    """Independent distributions over the parts of a Dict or Tuple: an action is a tree."""

    def __init__(self, parts: Tree) -> None:
        self.parts = parts
        self.num_outputs = sum(part.num_outputs for part in leaves_of(parts))

    def init(self) -> Tree:
        """Gives the parameters of each part."""
        return jax.tree.map(lambda part: part.init(), self.parts)

    def __call__(self, params: Tree, outputs: Array, mask: Tree = None) -> Product:
        """Gives the distributions; the outputs of the parts stand one after the other."""
        if mask is not None:
            raise UserError("an action_mask needs Discrete or MultiDiscrete actions, not a tree")
        parts, form = jax.tree.flatten(self.parts)
        ends = np.cumsum([part.num_outputs for part in parts])
        own = zip(
            parts, form.flatten_up_to(params), jnp.split(outputs, ends[:-1], axis=-1), strict=True
        )
        return Product(form.unflatten([part(x, y) for part, x, y in own]))

    def to_env(self, action: Tree) -> Tree:
        """Gives what the simulator takes, part by part."""
        return map_tree(lambda part, x: part.to_env(x), self.parts, action)


@dataclass(frozen=True)
class Product(Distribution):
    """Independent distributions, a tree of them; log-probabilities and entropies add up."""

    parts: Tree

    def sample(self, keys: Array) -> Tree:
        """Draws each part with another key of the slot."""
        parts, form = jax.tree.flatten(self.parts)
        fold = jax.vmap(jax.random.fold_in, (0, None))
        return form.unflatten([part.sample(fold(keys, i)) for i, part in enumerate(parts)])

    def mode(self) -> Tree:
        """Gives the most probable action of each part."""
        return jax.tree.map(lambda part: part.mode(), self.parts)

    def parameters(self) -> dict[str, Array]:
        """Gives those of the parts, such as `move/logits`."""
        named = zip(leaves_of(names_of(self.parts)), leaves_of(self.parts), strict=True)
        return {f"{name}/{key}": x for name, part in named for key, x in part.parameters().items()}

    def log_prob(self, action: Tree) -> Array:
        """Sums those of the parts."""
        pairs = zip(leaves_of(self.parts), leaves_of(action), strict=True)
        return sum(part.log_prob(x) for part, x in pairs)

    def entropy(self) -> Array:
        """Sums those of the parts."""
        return sum(part.entropy() for part in leaves_of(self.parts))

    def divergence(self, parameters: Mapping[str, Array]) -> Array:
        """Sums those of the parts."""
        named = zip(leaves_of(names_of(self.parts)), leaves_of(self.parts), strict=True)
        return sum(
            part.divergence({key: parameters[f"{name}/{key}"] for key in part.parameters()})
            for name, part in named
        )


def of_slots(values: Array, slot: Array) -> Array:
    """Gives each slot's own of some values [N], which repeat after N slots: [B].

    Args:
        values: [N].
        slot: int32 [B].
    """
    # ONNX graphs have no remainder for a symbolic number of rows.
    slot = jnp.asarray(slot, jnp.int32)
    return values[slot - jax.lax.div(slot, jnp.int32(len(values))) * len(values)]
