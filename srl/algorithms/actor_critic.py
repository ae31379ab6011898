"""A policy and a value network, and the distributions of actions that the policy's outputs give."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from srl.algorithms.carried_memory import empty_memory, memory_before
from srl.algorithms.distributions import (
    ActionSpace,
    Distribution,
    action_distribution,
    action_mask,
    expect_masks,
)
from srl.algorithms.normalization import ObservationNormalizer, of_task
from srl.algorithms.returns import zero_unless
from srl.core.errors import UserError
from srl.core.lazy import jax, jnp
from srl.core.types import Array, Policy, Specs, Tree, Unroll
from srl.networks import Network, PolicyAndValue


@dataclass(frozen=True)
class ActorCritic:
    """The networks, as pure functions of their parameters.

    The parameters are {"policy": {"network", "actions"}, "value"}. Wherever `statistics` are
    arguments, they are those of observations.
    """

    settings: Network
    specs: Specs
    normalizer: ObservationNormalizer
    initial_log_std: float = -0.5

    def __post_init__(self) -> None:
        """Raises UserError for masks of numbers."""
        expect_masks(self.specs)

    @cached_property
    def actions(self) -> ActionSpace:
        """The distributions over actions."""
        return action_distribution(self.specs.action, self.initial_log_std)

    @cached_property
    def network(self) -> PolicyAndValue:
        """The network's functions."""
        space = self.normalizer.policy_space
        value_space = space if self.settings.shared else self.specs.observation
        built = self.settings.build(space, self.actions.num_outputs, value_space)
        if built.shared != self.settings.shared:
            raise UserError(
                f"network.shared={self.settings.shared}, and what "
                f"{type(self.settings).__name__}.build gives has shared={built.shared}: let it "
                "follow the setting"
            )
        return built

    def init(self, key: Array) -> Tree:
        """Draws the parameters."""
        params, tasks = self.network.init(key), self.normalizer.by_task
        of_each = lambda x: jnp.broadcast_to(x, (*tasks, *x.shape))  # noqa: E731
        actions = jax.tree.map(of_each, self.actions.init())
        return {**params, "policy": {"network": params["policy"], "actions": actions}}

    def initial_memory(self, batch: int) -> Tree:
        """Gives the policy network's memory of nothing."""
        return self.network.initial_memory(batch)

    def env_action(self, action: Tree) -> Tree:
        """Gives what the simulator takes for the actions of a decision; needs no JAX."""
        return self.actions.to_env(action)

    def distribution(
        self, policy: Policy, observation: Tree, memory: Tree, slot: Array
    ) -> tuple[Distribution, Tree]:
        """Gives the distributions of actions, and the memory after them; all slots are alike."""
        inputs = self.normalizer.policy_inputs(policy.normalizer, observation)
        outputs, memory = self.network.policy(policy.params["network"], inputs, memory)
        return self._distribution(policy.params, outputs, observation), memory

    def _distribution(self, params: Tree, outputs: Array, observation: Tree) -> Distribution:
        """The distributions that a policy's outputs give; each task has its own deviations."""
        actions = of_task(params["actions"], self.normalizer.task(observation))
        return self.actions(actions, outputs, action_mask(observation))

    def distributions(
        self, policy: Policy, observation: Tree, memory: Tree, ended: Array
    ) -> Distribution:
        """Gives the distributions that acting had, or would have, row after row.

        Args:
            policy: Parameters and statistics.
            observation: [L, B, ...]; without memory, any leading axes.
            memory: [B, ...], before the first row.
            ended: bool [L, B], rows that end an episode.
        """
        inputs = self.normalizer.policy_inputs(policy.normalizer, observation)
        outputs = self.network.policy_sequence(policy.params["network"], inputs, memory, ended)
        return self._distribution(policy.params, outputs, observation)

    def values(
        self, params: Tree, statistics: Any, observation: Tree, memory: Tree, ended: Array
    ) -> tuple[Array, Tree]:
        """Gives the value of each row, and the memory before each; see `distributions`."""
        inputs = self._value_inputs(statistics, observation)
        return self.network.value_sequence(_networks(params), inputs, memory, ended)

    def distributions_and_values(
        self,
        params: Tree,
        statistics: Any,
        observation: Tree,
        memory: Mapping[str, Tree],
        ended: Array,
    ) -> tuple[Distribution, Array]:
        """Gives what `distributions` and `values` do, with less work where layers are shared.

        Args:
            params: Of the policy and of the value.
            statistics: Of observations.
            observation: [L, B, ...]; without memory, any leading axes.
            memory: [B, ...] of `policy` and of `value`, before the first row.
            ended: bool [L, B], rows that end an episode.
        """
        seen = self.normalizer.policy_inputs(statistics, observation)
        inputs = seen, self._value_inputs(statistics, observation)
        outputs, value = self.network.both_sequences(_networks(params), *inputs, memory, ended)
        return self._distribution(params["policy"], outputs, observation), value

    def _value_inputs(self, statistics: Any, observation: Tree) -> Tree:
        """The value's inputs: those of the policy, where the two share layers."""
        if self.settings.shared:
            return self.normalizer.policy_inputs(statistics, observation)
        return self.normalizer.normalize(statistics, observation)

    def empty_value_memory(self, unroll: Unroll) -> Tree:
        """Gives a `CarriedMemory` of nothing for an unroll's slots; () where none is needed."""
        if self.network.shared or not self.network.memory:
            return ()
        return empty_memory(self.network.initial_memory(unroll.reward.shape[1]), unroll)

    def value_memory(self, unroll: Unroll, carried: Tree = ()) -> Tree:
        """Gives the memory that values are computed with from an unroll's first row on, [B, ...].

        Args:
            unroll: Of B slots.
            carried: A `CarriedMemory`; () remembers nothing.
        """
        if self.network.shared:
            return jax.tree.map(lambda x: x[0], unroll.memory)
        return memory_before(self.network.initial_memory(unroll.reward.shape[1]), unroll, carried)


def _networks(params: Tree) -> Tree:
    return {"policy": params["policy"]["network"], "value": params["value"]}


def log_probs(distribution: Distribution, action: Tree, valid: Array) -> Array:
    """Gives the log probabilities of an unroll's actions, float32 [T, B].

    Args:
        distribution: Of each row, [T + 1, B]; after the last nothing has been done yet.
        action: [T, B, ...].
        valid: bool [T, B]; what the other rows hold does not count.
    """
    after = lambda x: jnp.concatenate([x, jnp.zeros_like(x[:1])])  # noqa: E731
    return distribution.log_prob(jax.tree.map(after, zero_unless(valid, action)))[:-1]
