"""A network that acts by numbers between -1 and 1, which are stretched to the action space."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from srl.algorithms.distributions import Distribution, action_mask, expect_masks, only, used_numbers
from srl.algorithms.normalization import ObservationNormalizer
from srl.algorithms.replay import Rows
from srl.algorithms.replay_sampling import portions
from srl.algorithms.stretch import Stretch
from srl.core.errors import UserError
from srl.core.lazy import jax, jnp
from srl.core.spaces import bounded, spaces
from srl.core.types import Array, Specs, Tree
from srl.networks import Network, PolicyAndValue


@dataclass(frozen=True)
class BoundedActor:
    """The actor of SAC and TD3, which add `distribution`."""

    settings: Network
    specs: Specs
    normalizer: ObservationNormalizer
    outputs_per_number: int
    """Outputs of the network for each number of an action."""

    @cached_property
    def network(self) -> PolicyAndValue:
        """The network's functions, of which the actor is the policy."""
        return self.settings.build(
            self.normalizer.policy_space, self.outputs_per_number * self.size
        )

    @cached_property
    def size(self) -> int:
        """Numbers of an action."""
        return math.prod(self.specs.action.shape or ())

    @cached_property
    def _stretch(self) -> Stretch:
        assert isinstance(self.specs.action, spaces.Box)
        return Stretch(self.specs.action)

    def env_action(self, action: Array) -> Array:
        """Stretches actions from [-1, 1] to the bounds of the space; needs no JAX."""
        return self._stretch(action)

    def init(self, key: Array) -> Tree:
        """Draws the parameters."""
        return self.network.init_policy(key)

    def initial_memory(self, batch: int) -> Tree:
        """Gives the network's memory of nothing."""
        return self.network.initial_memory(batch)

    def outputs(self, params: Tree, statistics: Any, observation: Tree, memory: Tree = ()) -> Array:
        """Gives the outputs of the network, [S, outputs]; see `step`."""
        return self.step(params, statistics, observation, memory)[0]

    def step(
        self, params: Tree, statistics: Any, observation: Tree, memory: Tree
    ) -> tuple[Array, Tree]:
        """Gives the outputs of the network and the next memory: of [S, ...], [S, outputs]."""
        inputs = self.normalizer.policy_inputs(statistics, observation)
        return self.network.policy(params, inputs, memory)

    def memories(self, params: Tree, statistics: Any, rows: Rows, memory: Tree) -> Array:
        """Gives the memory before each row and after the last; see `srl.algorithms.sequences`."""
        inputs = self.normalizer.policy_inputs(statistics, rows.observation)
        return self.network.policy_memories(params, inputs, memory, rows.ended)

    def shaped(self, action: Array) -> Array:
        """Gives actions the shape of their space: [..., numbers] to [..., *shape]."""
        return action.reshape(*action.shape[:-1], *(self.specs.action.shape or ()))

    def mask(self, observation: Tree) -> Array | None:
        """Gives the numbers of an action that there are, bool [..., numbers]; None for all."""
        mask = action_mask(observation)
        return None if mask is None else used_numbers(mask)

    def shaped_mask(self, observation: Tree) -> Array | None:
        """Gives `mask` in the shape of actions."""
        mask = self.mask(observation)
        return None if mask is None else self.shaped(mask)

    def count(self, observation: Tree) -> Array | int:
        """Gives how many numbers of an action there are, float32 [...]."""
        mask = self.mask(observation)
        return self.size if mask is None else jnp.sum(mask, -1, dtype=jnp.float32)


@dataclass(frozen=True)
class UniformUntil(Distribution):
    """Uniform actions between -1 and 1 until `begun`, then those of a distribution."""

    begun: Array  # bool []
    then: Distribution
    shape: tuple[int, ...]
    """The shape of one action."""
    mask: Array | None = None  # bool [B, *shape], the numbers that there are; None for all

    def sample_and_log_prob(self, keys: Array) -> tuple[Array, Array]:
        """Draws an action for each slot with the slot's own key: keys [B]."""
        size = math.prod(self.shape)
        draw = lambda key: jax.random.uniform(key, (size,), minval=-1.0)  # noqa: E731
        uniform = only(self.mask, jax.vmap(draw)(keys).reshape(-1, *self.shape))
        action, log_prob = self.then.sample_and_log_prob(keys)
        log_prob = jnp.where(self.begun, log_prob, self._density)
        return jnp.where(self.begun, action, uniform), log_prob

    def sample(self, keys: Array) -> Array:
        """Draws an action for each slot."""
        return self.sample_and_log_prob(keys)[0]

    def mode(self) -> Array:
        """Gives the most probable action, of the distribution that comes later."""
        return self.then.mode()

    def log_prob(self, action: Array) -> Array:
        """Gives the log-density of an action."""
        return jnp.where(self.begun, self.then.log_prob(action), self._density)

    @property
    def _density(self) -> Array | float:
        """The log-density of a uniform action, [B] or []."""
        if self.mask is None:
            return -math.prod(self.shape) * math.log(2)
        return -math.log(2) * jnp.sum(self.mask, tuple(range(1, self.mask.ndim)))

    def parameters(self) -> dict[str, Array]:
        """Gives the numbers that the distribution follows from."""
        return self.then.parameters()


def expect_bounded(config: Any, specs: Specs) -> None:
    """Raises UserError for actions that are not bounded numbers."""
    space, name = specs.action, type(config).__name__
    if not isinstance(space, spaces.Box) or not bounded(space).all():
        discrete = isinstance(space, spaces.Discrete)
        other = "DiscreteSAC, DQN or PPO" if discrete else "PPO, APPO or IMPALA"
        raise UserError(
            f"{name} draws actions within bounds, and the action space is {space}; take {other}"
        )
    expect_masks(specs)


def noise_by_slot(key: Array, slot: Array, share: float, size: int, sequence: int = 1) -> Array:
    """Draws normal numbers for each transition, [sequence * S, size], that follow from its slot.

    A slot's sequences are numbered; draws go through the slots again for each.

    Args:
        key: Of the gradient step.
        slot: int32 [S], of the run's slots.
        share: Sequences of each slot in a gradient step.
        size: Numbers for each transition.
        sequence: Transitions of a sequence; the first ones of all sequences come first.
    """
    each, _ = portions(share)
    earlier = jnp.arange(len(slot)) // (len(slot) // each)

    def of_one(slot: Array, place: Array) -> Array:
        own = jax.random.fold_in(jax.random.fold_in(key, slot), place)
        return jax.random.normal(own, (sequence, size))

    return jax.vmap(of_one, out_axes=1)(slot, earlier).reshape(-1, size)
