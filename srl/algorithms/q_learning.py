"""The base of algorithms that learn the values of actions: networks, acting, exploration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, TypeVar

from srl.algorithms.distributions import action_mask, any_allowed
from srl.algorithms.normalization import Observing
from srl.algorithms.observing import ObservingAlgorithm, ObservingInstance
from srl.core.errors import UserError
from srl.core.lazy import jax, jnp
from srl.core.spaces import spaces
from srl.core.types import Array, Decision, Metrics, Policy, Tree
from srl.networks import MLP, AutoNetwork, Network, PolicyAndValue


@dataclass(frozen=True)
class QLearning(ObservingAlgorithm):
    """Settings of the network and of exploration."""

    network: Network = field(
        default_factory=lambda: AutoNetwork(MLP(width=128, activation="relu"), layer_norm=True)
    )
    """Network of the action values; by default chosen by what is observed."""
    normalize_observations: bool = False
    """Standardise observations by running statistics, which moves the values of all actions."""
    epsilon_start: float = 1.0
    """The share of actions that are drawn at random in the beginning."""
    epsilon_end: float = 0.05
    """The share of random actions after exploration; without a known length of the run, it is so
    from the start."""
    exploration: float = 0.2
    """The part of the run in which the share falls linearly from the one to the other."""
    epsilon_spread: float = 0.0
    """The difference between slots: slot i of N draws the share to the power of
    1 + epsilon_spread * i / (N - 1) (Ape-X, Horgan et al., 2018, with 7 and a share of 0.4)."""

    limits: ClassVar[Mapping[str, tuple[float, ...]]] = {
        **ObservingAlgorithm.limits,
        "epsilon_start": (0.0, 1.0),
        "epsilon_end": (0.0, 1.0),
        "exploration": (0.0, 1.0),
        "epsilon_spread": (0.0,),
    }


Q = TypeVar("Q", bound=Observing)
"""The state of an algorithm that learns the values of actions."""


@dataclass(frozen=True)
class QInstance(ObservingInstance[Q]):
    """Acts by the values of actions; an algorithm adds `optimizer`, `gradient` and `update`."""

    config: QLearning

    def __post_init__(self) -> None:
        """Raises UserError for actions that are not one choice."""
        if not isinstance(self.specs.action, spaces.Discrete):
            bounded = isinstance(self.specs.action, spaces.Box)
            other = "SAC or TD3 for bounded numbers, or PPO" if bounded else "PPO, APPO or IMPALA"
            raise UserError(
                f"{type(self.config).__name__} learns a value for each action, and cannot for "
                f"{self.specs.action}; it needs Discrete actions: take {other}"
            )

    @property
    def num_actions(self) -> int:
        """The number of actions."""
        return int(self._action_space.n)

    @property
    def _action_space(self) -> spaces.Discrete:
        assert isinstance(self.specs.action, spaces.Discrete)
        return self.specs.action

    @property
    def num_outputs(self) -> int:
        """The number of the network's outputs for each slot."""
        return self.num_actions

    def values_of(self, outputs: Array) -> Array:
        """Gives the values of actions [..., actions] that the network's outputs stand for."""
        return outputs

    @cached_property
    def network(self) -> PolicyAndValue:
        """The network's functions, of which action values use the policy's."""
        return self.config.network.build(self.specs.observation, self.num_outputs)

    def draw_params(self, key: Array) -> Tree:
        """Draws the network's parameters."""
        return self.network.init(key)["policy"]

    # Acting.

    def epsilon(self, state: Q) -> Array:
        """Gives the share of random actions: of each slot, or [1] where they are alike."""
        config = self.config
        during = config.exploration * (self.updates or 0)
        passed = jnp.minimum(state.n / during, 1.0) if during else jnp.ones(())
        share = config.epsilon_start + passed * (config.epsilon_end - config.epsilon_start)
        slots = max(self.slots, 1) if config.epsilon_spread else 1
        return share ** (1 + config.epsilon_spread * jnp.linspace(0.0, 1.0, slots))

    def policy(self, state: Q) -> Policy:
        """Gives the network's parameters, epsilon, and the statistics of observations."""
        params = {"network": state.params, "epsilon": self.epsilon(state)}
        return Policy(params, state.observations)

    def initial_memory(self, batch: int) -> Tree:
        """Gives the network's memory of nothing."""
        return self.network.initial_memory(batch)

    def act(
        self, policy: Policy, observation: Tree, memory: Tree, keys: Array, slot: Array
    ) -> Decision:
        """Takes the best action, or with the slot's probability epsilon any: keys [B]."""
        values, memory = self._values(policy, observation, memory)
        allowed = self.allowed(observation, values)
        epsilon = policy.params["epsilon"]
        epsilon = epsilon[slot % len(epsilon)]

        def draw(key: Array) -> tuple[Array, Array]:
            coin, choice = jax.random.split(key)
            return jax.random.uniform(coin), jax.random.gumbel(choice, (self.num_actions,))

        coin, noise = jax.vmap(draw)(keys)
        best = jnp.argmax(values, axis=-1)
        any_action = jnp.argmax(jnp.where(allowed, noise, -jnp.inf), axis=-1)
        action = jnp.where(coin < epsilon, any_action, best).astype(jnp.int32)
        share = epsilon / jnp.sum(allowed, axis=-1)
        probability = share + jnp.where(action == best, 1 - epsilon, 0.0)
        return Decision(action, jnp.log(probability), memory)

    def act_greedy(self, policy: Policy, observation: Tree, memory: Tree) -> Decision:
        """Takes the best action for each slot."""
        values, memory = self._values(policy, observation, memory)
        action = jnp.argmax(values, axis=-1).astype(jnp.int32)
        return Decision(action, jnp.zeros(action.shape), memory)

    def action_outputs(self, policy: Policy, observation: Tree, memory: Tree) -> dict[str, Array]:
        """Gives the values of actions."""
        return {"action_values": self._values(policy, observation, memory)[0]}

    def env_action(self, action: Array) -> Array:
        """Gives the actions as the simulator counts them; needs no JAX."""
        start = int(self._action_space.start)
        return action + start if start else action

    def _values(self, policy: Policy, observation: Tree, memory: Tree) -> tuple[Array, Tree]:
        inputs = self.normalizer.normalize(policy.normalizer, observation)
        outputs, memory = self.network.policy(policy.params["network"], inputs, memory)
        return self.mask(observation, self.values_of(outputs)), memory

    # Learning.

    def values(
        self,
        params: Tree,
        statistics: Any,
        observation: Tree,
        memory: Tree = (),
        ended: Array | None = None,
    ) -> Array:
        """Gives the values of all actions, [L, B, actions]; the least number for forbidden ones.

        Args:
            params: Of the network.
            statistics: Of observations.
            observation: [L, B, ...]; without memory, any leading axes.
            memory: [B, ...], before the first row.
            ended: bool [L, B], rows that end an episode; only memory needs it.
        """
        outputs = self.outputs(params, statistics, observation, memory, ended)
        return self.mask(observation, self.values_of(outputs))

    def outputs(
        self,
        params: Tree,
        statistics: Any,
        observation: Tree,
        memory: Tree = (),
        ended: Array | None = None,
    ) -> Array:
        """Gives the network's output for each row; see `values`."""
        inputs = self.normalizer.normalize(statistics, observation)
        return self.network.policy_sequence(params, inputs, memory, ended)

    def allowed(self, observation: Tree, values: Array) -> Array:
        """Gives which actions are allowed, bool [..., actions]."""
        mask = action_mask(observation)
        return jnp.ones(values.shape, bool) if mask is None else mask.astype(bool)

    def possible(self, observation: Tree) -> Array:
        """Gives where any action is allowed, bool [...] or []; elsewhere a state is worth 0."""
        return any_allowed(observation)

    def mask(self, observation: Tree, values: Array) -> Array:
        """Gives the values with the least number in place of those of forbidden actions."""
        return jnp.where(self.allowed(observation, values), values, jnp.finfo(values.dtype).min)

    def finish(self, state: Q, sums: Any) -> tuple[Q, Metrics]:
        """Counts the update; gives the share of random actions, the mean over slots."""
        return super().finish(state, sums)[0], {"epsilon": jnp.mean(self.epsilon(state))}


def chosen(values: Array, action: Array) -> Array:
    """Gives the value of the action taken: [..., actions] and [...] to [...]."""
    # A sum over one-hot rows: its gradient needs no scatter, which is slow on CPU.
    one_hot = action[..., None] == jnp.arange(values.shape[-1])
    return jnp.sum(jnp.where(one_hot, values, 0.0), axis=-1)
