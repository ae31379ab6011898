"""The base of algorithms with an actor that learns from critics of actions, as SAC and TD3.

There are several critics, each with a target network. The least of a random subset of those is the
target of all (REDQ, Chen et al., 2021, https://arxiv.org/abs/2101.05982); with two of two that
is clipped double Q-learning (Fujimoto et al., 2018, https://arxiv.org/abs/1802.09477).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from srl.algorithms.distributions import action_mask
from srl.algorithms.normalization import Statistics
from srl.algorithms.off_policy import OffPolicy, OffPolicyInstance
from srl.algorithms.replay import portions
from srl.algorithms.stretch import Stretch
from srl.core.errors import UserError
from srl.core.lazy import jax, jnp, optax
from srl.core.schedule import Adjustable
from srl.core.spaces import bounded, spaces
from srl.core.types import Array, Tree
from srl.networks import PolicyAndValue

_ROUNDS = 2**32 - 1  # folded into keys, as replays fold the number of the update, which is less


@dataclass(frozen=True)
class Critics(OffPolicy):
    """Settings of the critics and of the optimisers."""

    critics: int = 2
    """The number of critics."""
    subset: int = 2
    """The number of critics, drawn anew for each gradient step, that make a target."""
    learning_rate: Adjustable = 3e-4
    """The step size of the actor's Adam."""
    critic_learning_rate: Adjustable = 1e-3
    """The step size of the critics' Adam."""

    limits: ClassVar[Mapping[str, tuple[float, ...]]] = {
        **OffPolicy.limits,
        "critics": (1,),
        "subset": (1,),
        "learning_rate": (0.0,),
        "critic_learning_rate": (0.0,),
    }

    adjustable = ("learning_rate", "critic_learning_rate")

    def validate(self) -> None:
        """Raises UserError where settings are out of their limits or do not fit each other."""
        super().validate()
        if self.subset > self.critics:
            raise UserError(
                f"{type(self).__name__} with subset={self.subset} of critics={self.critics}: give "
                "a subset that is no larger"
            )


class CriticsState(NamedTuple):
    """The state of learning; see `State`."""

    params: Tree  # of the actor, of the critics [critics, ...], and what an algorithm adds
    optimizer: Tree
    key: Array
    n: Array
    observations: dict[str, Statistics]
    targets: Tree  # the target networks' parameters


@dataclass(frozen=True)
class CriticsInstance(OffPolicyInstance[CriticsState]):
    """An actor and its critics, for one trained policy."""

    config: Critics

    @property
    def actor(self) -> PolicyAndValue:
        """The functions of the actor."""
        raise NotImplementedError

    def draw_critic(self, key: Array) -> Tree:
        """Draws the parameters of a critic."""
        raise NotImplementedError

    def draw_params(self, key: Array) -> dict[str, Tree]:
        """Draws all parameters."""
        actor_key, critic_key = jax.random.split(key)
        drawn = [self.draw_critic(key) for key in jax.random.split(critic_key, self.config.critics)]
        return {
            "actor": self.actor.init(actor_key)["policy"],
            "critics": jax.tree.map(lambda *x: jnp.stack(x), *drawn),
        }

    def slow(self, params: Tree) -> Tree:
        """Gives the parameters of the critics, which have target networks."""
        return {"critics": params["critics"]}

    @property
    def optimizer(self) -> optax.GradientTransformation:
        """An Adam of its own for each of the networks."""
        steps = {name: optax.flatten(optax.adam(rate)) for name, rate in self.rates.items()}
        return optax.partition(steps, {name: name for name in steps})

    @property
    def rates(self) -> dict[str, float]:
        """The step size of each part that `draw_params` draws."""
        config = self.config
        return {"actor": config.learning_rate, "critics": config.critic_learning_rate}

    def init(self, key: Array) -> CriticsState:
        """Draws parameters."""
        fields = super().init(key)._asdict()
        return CriticsState(**fields, targets=jax.tree.map(jnp.copy, self.slow(fields["params"])))

    def round_key(self, state: CriticsState, round: Array) -> Array:
        """Gives the random key of a round; replays draw by keys of slots, which are others."""
        key = jax.random.fold_in(jax.random.wrap_key_data(state.key), _ROUNDS)
        return jax.random.fold_in(jax.random.fold_in(key, state.n), round)

    def act_on(self, params: Tree, statistics: Any, observation: Tree) -> Array:
        """Gives the outputs of the actor, [S, outputs]."""
        inputs = self.normalizer.normalize(statistics, observation)
        return self.actor.policy_sequence(params, inputs)

    def values(self, params: Tree, statistics: Any, observation: Tree, action: Array) -> Array:
        """Gives the values of actions by all critics, [critics, S]."""
        raise NotImplementedError

    def least(self, values: Array, key: Array) -> Array:
        """Gives the least value by a random subset of the critics: [critics, ...] to [...]."""
        some = jax.random.permutation(key, self.config.critics)[: self.config.subset]
        return jnp.min(values[some], axis=0)


@dataclass(frozen=True)
class ContinuousInstance(CriticsInstance):
    """An actor of bounded numbers, which are critics' inputs."""

    def __post_init__(self) -> None:
        """Raises UserError for actions that are not bounded numbers."""
        space, name = self.specs.action, type(self.config).__name__
        if not isinstance(space, spaces.Box) or not bounded(space).all():
            discrete = isinstance(space, spaces.Discrete)
            other = "DiscreteSAC, DQN or PPO" if discrete else "PPO, APPO or IMPALA"
            raise UserError(
                f"{name} draws actions within bounds, and the action space is {space}; take {other}"
            )
        if isinstance(self.specs.observation, spaces.Dict) and (
            action_mask(self.specs.observation.spaces) is not None
        ):
            raise UserError(
                f"{name} has continuous actions, of which action_mask can allow none or all: leave "
                "it out of the observation"
            )

    @property
    def action_space(self) -> spaces.Box:
        """The bounds."""
        assert isinstance(self.specs.action, spaces.Box)
        return self.specs.action

    @cached_property
    def size(self) -> int:
        """Numbers of an action."""
        return math.prod(self.action_space.shape)

    @cached_property
    def critic(self) -> PolicyAndValue:
        """The functions of a critic, of an observation and an action."""
        action = spaces.Box(-1.0, 1.0, (self.size,), np.float32)
        both = spaces.Dict({"observation": self.specs.observation, "action": action})
        return self.config.network.build(both, 1)

    def draw_critic(self, key: Array) -> Tree:
        """Draws the parameters of a critic."""
        return self.critic.init(key)["value"]

    def values(self, params: Tree, statistics: Any, observation: Tree, action: Array) -> Array:
        """Gives the values by all critics, [critics, S]."""
        inputs = {
            "observation": self.normalizer.normalize(statistics, observation),
            "action": action.reshape(*action.shape[:1], -1),
        }
        return jax.vmap(lambda each: self.critic.value_sequence({"value": each}, inputs)[0])(params)

    def noise(self, key: Array, slot: Array) -> Array:
        """Draws normal numbers for each transition, [S, numbers], that follow from its slot.

        A slot's transitions are numbered; draws go through the slots again for each.
        """
        each, _ = portions(self.share)
        earlier = jnp.arange(len(slot)) // (len(slot) // each)

        def of_one(slot: Array, place: Array) -> Array:
            own = jax.random.fold_in(jax.random.fold_in(key, slot), place)
            return jax.random.normal(own, (self.size,))

        return jax.vmap(of_one)(slot, earlier)

    def evenly(self, keys: Array) -> Array:
        """Draws an action between the bounds for each slot, [B, numbers]: keys [B]."""
        return jax.vmap(lambda key: jax.random.uniform(key, (self.size,), minval=-1.0))(keys)

    def shaped(self, action: Array) -> Array:
        """Gives actions the shape of their space: [..., numbers] to [..., *shape]."""
        return action.reshape(*action.shape[:-1], *self.action_space.shape)

    @cached_property
    def env_action(self) -> Stretch:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Stretches actions from [-1, 1] to the bounds of the space; needs no JAX."""
        return Stretch(self.action_space)
