"""The base of algorithms with a policy and a value network: all but their learning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, TypeVar

from srl.algorithms.distributions import (
    ActionSpace,
    Distribution,
    action_distribution,
    action_mask,
)
from srl.algorithms.normalization import Observing
from srl.algorithms.observing import ObservingAlgorithm, ObservingInstance
from srl.algorithms.returns import zero_unless
from srl.core.errors import UserError
from srl.core.lazy import jax, jnp
from srl.core.types import Array, Decision, Policy, Tree, Unroll
from srl.networks import PolicyAndValue


@dataclass(frozen=True)
class ActorCritic(ObservingAlgorithm):
    """Settings of the policy and of the value, which are networks of the same form."""

    learns_state_value: ClassVar[bool] = True

    initial_log_std: float = -0.5
    """The logarithm of the standard deviation that actions of a Box start with, its bounds being -1
    and 1. With 0, a third of the first actions would be out of bounds."""

    limits: ClassVar[Mapping[str, tuple[float, ...]]] = {
        **ObservingAlgorithm.limits,
        "initial_log_std": (-10.0, 10.0),
    }


A = TypeVar("A", bound=Observing)
"""The state of an algorithm with a policy and a value network."""


@dataclass(frozen=True)
class ActorCriticInstance(ObservingInstance[A]):
    """Acts for one trained policy; an algorithm adds `optimizer`, `gradient` and `update`.

    The parameters are {"policy": {"network", "actions"}, "value"}.
    """

    config: ActorCritic

    @cached_property
    def actions(self) -> ActionSpace:
        """The distributions over actions."""
        return action_distribution(self.specs.action, self.config.initial_log_std)

    @cached_property
    def network(self) -> PolicyAndValue:
        """The network's functions."""
        network = self.config.network
        built = network.build(self.specs.observation, self.actions.num_outputs)
        if built.shared != network.shared:
            raise UserError(
                f"network.shared={network.shared}, and what {type(network).__name__}.build gives "
                f"has shared={built.shared}: let it follow the setting"
            )
        return built

    def draw_params(self, key: Array) -> Tree:
        """Draws the parameters of the policy and of the value."""
        params = self.network.init(key)
        return {**params, "policy": {"network": params["policy"], "actions": self.actions.init()}}

    # Acting.

    def policy(self, state: A) -> Policy:
        """Gives the policy's parameters and the statistics of observations."""
        return Policy(state.params["policy"], state.observations)

    def initial_memory(self, batch: int) -> Tree:
        """Gives the policy network's memory of nothing."""
        return self.network.initial_memory(batch)

    def act(
        self, policy: Policy, observation: Tree, memory: Tree, keys: Array, slot: Array
    ) -> Decision:
        """Draws an action for each slot with its own random key: keys [B]."""
        distribution, memory = self._decide(policy, observation, memory)
        action = distribution.sample(keys)
        return Decision(action, distribution.log_prob(action), memory)

    def act_greedy(self, policy: Policy, observation: Tree, memory: Tree) -> Decision:
        """Takes the most probable action for each slot."""
        distribution, memory = self._decide(policy, observation, memory)
        action = distribution.mode()
        return Decision(action, distribution.log_prob(action), memory)

    def action_outputs(self, policy: Policy, observation: Tree, memory: Tree) -> dict[str, Array]:
        """Gives the parameters of the distributions that actions are drawn from."""
        return self._decide(policy, observation, memory)[0].parameters()

    def env_action(self, action: Tree) -> Tree:
        """Gives what the simulator takes for the actions of a decision; needs no JAX."""
        return self.actions.to_env(action)

    def _decide(self, policy: Policy, observation: Tree, memory: Tree) -> tuple[Distribution, Tree]:
        inputs = self.normalizer.normalize(policy.normalizer, observation)
        outputs, memory = self.network.policy(policy.params["network"], inputs, memory)
        return self.actions(policy.params["actions"], outputs, action_mask(observation)), memory

    # Learning.

    def distribution(
        self, policy: Policy, observation: Tree, memory: Tree, ended: Array
    ) -> Distribution:
        """Gives the distributions that acting had, or would have, row after row.

        Args:
            policy: Parameters and statistics.
            observation: [L, B, ...]; without memory, any leading axes.
            memory: [B, ...], before the first row.
            ended: bool [L, B], rows that end an episode.
        """
        inputs = self.normalizer.normalize(policy.normalizer, observation)
        outputs = self.network.policy_sequence(policy.params["network"], inputs, memory, ended)
        return self.actions(policy.params["actions"], outputs, action_mask(observation))

    def value(
        self, params: Tree, statistics: Any, observation: Tree, memory: Tree, ended: Array
    ) -> tuple[Array, Tree]:
        """Gives the value of each row, and the memory before each.

        Args:
            params: Of the policy and of the value.
            statistics: Of observations.
            observation: [L, B, ...]; without memory, any leading axes.
            memory: [B, ...], before the first row; see `value_memory`.
            ended: bool [L, B], rows that end an episode.
        """
        inputs = self.normalizer.normalize(statistics, observation)
        return self.network.value_sequence(self._networks(params), inputs, memory, ended)

    def value_memory(self, unroll: Unroll) -> Tree:
        """Gives the memory that values are computed with from an unroll's first row on, [B, ...].

        The value network's own starts from zeros at each unroll, as only learning knows it.
        """
        if self.network.shared:
            return jax.tree.map(lambda x: x[0], unroll.memory)
        return self.network.initial_memory(unroll.reward.shape[1])

    def evaluate(
        self,
        params: Tree,
        statistics: Any,
        observation: Tree,
        memory: Mapping[str, Tree],
        ended: Array,
    ) -> tuple[Distribution, Array]:
        """Gives what `distribution` and `value` do, with less work where layers are shared.

        Args:
            params: Of the policy and of the value.
            statistics: Of observations.
            observation: [L, B, ...]; without memory, any leading axes.
            memory: [B, ...] of `policy` and of `value`, before the first row.
            ended: bool [L, B], rows that end an episode.
        """
        inputs = self.normalizer.normalize(statistics, observation)
        networks = self._networks(params)
        outputs, value = self.network.both_sequences(networks, inputs, memory, ended)
        mask = action_mask(observation)
        return self.actions(params["policy"]["actions"], outputs, mask), value

    def _networks(self, params: Tree) -> Tree:
        return {"policy": params["policy"]["network"], "value": params["value"]}


def log_probs(distribution: Distribution, action: Tree, valid: Array) -> Array:
    """Gives the log probabilities of an unroll's actions, float32 [T, B].

    Args:
        distribution: Of each row, [T + 1, B]; after the last nothing has been done yet.
        action: [T, B, ...].
        valid: bool [T, B]; what the other rows hold does not count.
    """
    action = zero_unless(valid, action)
    action = jax.tree.map(lambda x: jnp.concatenate([x, jnp.zeros_like(x[:1])]), action)
    return distribution.log_prob(action)[:-1]
