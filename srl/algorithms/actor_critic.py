"""A policy and a value network, and the distributions of actions that the policy's outputs give."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from srl.algorithms.distributions import (
    ActionSpace,
    Distribution,
    action_distribution,
    action_mask,
)
from srl.algorithms.normalization import ObservationNormalizer
from srl.algorithms.returns import where_rows, zero_unless
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

    @cached_property
    def actions(self) -> ActionSpace:
        """The distributions over actions."""
        return action_distribution(self.specs.action, self.initial_log_std)

    @cached_property
    def network(self) -> PolicyAndValue:
        """The network's functions."""
        built = self.settings.build(self.specs.observation, self.actions.num_outputs)
        if built.shared != self.settings.shared:
            raise UserError(
                f"network.shared={self.settings.shared}, and what "
                f"{type(self.settings).__name__}.build gives has shared={built.shared}: let it "
                "follow the setting"
            )
        return built

    def init(self, key: Array) -> Tree:
        """Draws the parameters."""
        params = self.network.init(key)
        return {**params, "policy": {"network": params["policy"], "actions": self.actions.init()}}

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
        inputs = self.normalizer.normalize(policy.normalizer, observation)
        outputs, memory = self.network.policy(policy.params["network"], inputs, memory)
        return self.actions(policy.params["actions"], outputs, action_mask(observation)), memory

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
        inputs = self.normalizer.normalize(policy.normalizer, observation)
        outputs = self.network.policy_sequence(policy.params["network"], inputs, memory, ended)
        return self.actions(policy.params["actions"], outputs, action_mask(observation))

    def values(
        self, params: Tree, statistics: Any, observation: Tree, memory: Tree, ended: Array
    ) -> tuple[Array, Tree]:
        """Gives the value of each row, and the memory before each; see `distributions`."""
        inputs = self.normalizer.normalize(statistics, observation)
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
        inputs = self.normalizer.normalize(statistics, observation)
        outputs, value = self.network.both_sequences(_networks(params), inputs, memory, ended)
        mask = action_mask(observation)
        return self.actions(params["policy"]["actions"], outputs, mask), value

    def empty_value_memory(self, unroll: Unroll) -> Tree:
        """Gives a `ValueMemory` of nothing for the slots of an unroll; () where none is needed."""
        if self.network.shared or not self.network.memory:
            return ()
        memory = self.network.initial_memory(unroll.reward.shape[1])
        first = jax.tree.map(lambda x: x[0], (unroll.observation, unroll.memory))
        return jax.tree.map(
            lambda x: jnp.zeros((2, 1, *x.shape), x.dtype), ValueMemory(memory, *first)
        )

    def value_memory(self, unroll: Unroll, remembered: Tree = ()) -> Tree:
        """Gives the memory that values are computed with from an unroll's first row on, [B, ...].

        The value network's own is what it was when the same row was last seen: at the end of the
        slot's last unroll, or at its start if the unroll is learned from once more. A slot whose
        policy remembers nothing, or of which an unroll is missing, remembers nothing. Where all
        rows look alike, a missing unroll goes unnoticed.

        Args:
            unroll: Of B slots.
            remembered: A `ValueMemory`; () remembers nothing.
        """
        if self.network.shared:
            return jax.tree.map(lambda x: x[0], unroll.memory)
        memory = self.network.initial_memory(unroll.reward.shape[1])
        if not remembered:
            return memory
        seen, policy = jax.tree.map(lambda x: x[0], (unroll.observation, unroll.memory))
        start, end = (jax.tree.map(lambda x, k=k: x[k, 0], remembered) for k in (0, 1))
        nothing = jax.tree.map(jnp.zeros_like, policy)
        goes_on = _equal_rows(end.observation, seen) & ~_equal_rows(policy, nothing)
        again = _equal_rows((start.observation, start.policy), (seen, policy))
        memory = where_rows(goes_on, end.memory, memory)
        return where_rows(again, start.memory, memory)

    def remembered(self, unroll: Unroll, memories: Tree, remembered: Tree) -> Tree:
        """Gives the `ValueMemory` after an unroll; see `value_memory`.

        Args:
            unroll: Of B slots.
            memories: [T + 1, B, ...], before each row.
            remembered: That before it, or ().
        """
        if not remembered:
            return remembered
        rows = ValueMemory(memories, unroll.observation, unroll.memory)
        return jax.tree.map(lambda x: jnp.stack([x[:1], x[-1:]]), rows)


class ValueMemory(NamedTuple):
    """The value network's memory of B slots, before the first and the last row of their unrolls.

    Acting does not know it, so it is carried from update to update by those who learn.
    """

    memory: Array  # [2, 1, B, units]
    observation: Tree  # [2, 1, B, ...], at these rows
    policy: Tree  # [2, 1, B, units], the policy's memory before the first and the last chunk


def _equal_rows(one: Tree, other: Tree) -> Array:
    """Tells which rows of two trees [B, ...] are equal, bool [B]."""
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    equal = [jnp.all((a == b).reshape(len(a), -1), axis=1) for a, b in pairs]
    return jnp.all(jnp.stack(equal), axis=0)


def _networks(params: Tree) -> Tree:
    return {"policy": params["policy"]["network"], "value": params["value"]}


def log_probs(distribution: Distribution, action: Tree, valid: Array) -> Array:
    """Gives the log probabilities of an unroll's actions, float32 [T, B].

    Args:
        distribution: Of each row, [T + 1, B]; after the last nothing has been done yet.
        action: [T, B, ...].
        valid: bool [T, B]; what the other rows hold does not count.
    """
    return distribution.log_prob(with_last_row(action, valid))[:-1]


def with_last_row(tree: Tree, valid: Array) -> Tree:
    """Gives arrays [T, B, ...] with zeros at rows that are not valid, and one row more of them."""
    tree = zero_unless(valid, tree)
    return jax.tree.map(lambda x: jnp.concatenate([x, jnp.zeros_like(x[:1])]), tree)
