"""Soft actor-critic for discrete actions (Christodoulou, 2019, https://arxiv.org/abs/1910.07207).

As SAC, but critics give the values of all actions, and what the actor's choice is worth is an exact
expectation: nothing is drawn to learn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from srl.algorithms.critics import CriticsState
from srl.algorithms.distributions import (
    ActionSpace,
    Categorical,
    action_distribution,
    action_mask,
    any_allowed,
)
from srl.algorithms.q_learning import chosen
from srl.algorithms.sac import SAC, SoftInstance
from srl.core.errors import UserError
from srl.core.lazy import jax, jnp
from srl.core.schedule import Adjustable
from srl.core.spaces import spaces
from srl.core.types import Array, Decision, Policy, Tree
from srl.networks import PolicyAndValue


@dataclass(frozen=True)
class DiscreteSAC(SAC):
    """The settings of soft actor-critic for discrete actions."""

    target_entropy: Adjustable = 0.98
    """The entropy that is aimed at, as a part of that of an even choice of what is allowed."""
    critic_learning_rate: Adjustable = 3e-4
    """The step size of the critics' Adam."""

    @property
    def instance(self) -> type[DiscreteSACInstance]:
        """The functions of SAC for discrete actions."""
        return DiscreteSACInstance


@dataclass(frozen=True)
class DiscreteSACInstance(SoftInstance):
    """SAC for one trained policy of discrete actions."""

    config: DiscreteSAC

    def __post_init__(self) -> None:
        """Raises UserError for actions that are not one choice."""
        if not isinstance(self.specs.action, spaces.Discrete):
            raise UserError(
                f"DiscreteSAC needs Discrete actions, and the action space is {self.specs.action}: "
                "take SAC or TD3 for bounded continuous ones, PPO, APPO or IMPALA for others"
            )

    @cached_property
    def actions(self) -> ActionSpace:
        """The distributions over actions."""
        return action_distribution(self.specs.action)

    @cached_property
    def actor(self) -> PolicyAndValue:
        """The functions of the actor, which gives logits; a critic is of the same form."""
        return self.config.network.build(self.specs.observation, self.actions.num_outputs)

    def draw_critic(self, key: Array) -> Tree:
        """Draws the parameters of a critic."""
        return self.actor.init(key)["policy"]

    # Acting.

    def policy(self, state: CriticsState) -> Policy:
        """Gives the actor's parameters and the statistics of observations."""
        return Policy(state.params["actor"], state.observations)

    def act(
        self, policy: Policy, observation: Tree, memory: Tree, keys: Array, slot: Array
    ) -> Decision:
        """Draws an action for each slot with its own random key: keys [B]."""
        distribution = self._choice(policy.params, policy.normalizer, observation)
        action = distribution.sample(keys)
        return Decision(action, distribution.log_prob(action), memory)

    def act_greedy(self, policy: Policy, observation: Tree, memory: Tree) -> Decision:
        """Takes the most probable action for each slot."""
        distribution = self._choice(policy.params, policy.normalizer, observation)
        action = distribution.mode()
        return Decision(action, distribution.log_prob(action), memory)

    def action_outputs(self, policy: Policy, observation: Tree, memory: Tree) -> dict[str, Array]:
        """Gives the parameters of the distributions that actions are drawn from."""
        return self._choice(policy.params, policy.normalizer, observation).parameters()

    def env_action(self, action: Array) -> Array:
        """Gives the actions as the simulator counts them; needs no JAX."""
        return self.actions.to_env(action)

    def _choice(self, actor: Tree, statistics: Any, observation: Tree) -> Categorical:
        outputs = self.act_on(actor, statistics, observation)
        return self.actions((), outputs, action_mask(observation))

    # Learning.

    def values(self, params: Tree, statistics: Any, observation: Tree, action: Array) -> Array:
        """Gives the values of actions by all critics, [critics, S]."""
        return chosen(self._all_values(params, statistics, observation), action)

    def expected(
        self,
        actor: Tree,
        critics: Tree,
        joined: Callable[[Array], Array],
        statistics: Any,
        observation: Tree,
        key: Array,
        slot: Array,
    ) -> tuple[Array, Array]:
        """Gives the expected value of the actor's choice (eq. 10), and its entropy.

        Both are 0 where nothing may be chosen, as after a last action.
        """
        del key, slot
        choice = self._choice(actor, statistics, observation)
        values = joined(self._all_values(critics, statistics, observation))
        value = jnp.sum(jnp.exp(choice.log_probs[0]) * values, axis=-1)
        possible = any_allowed(observation)
        return jnp.where(possible, value, 0.0), jnp.where(possible, choice.entropy(), 0.0)

    def target_entropy(self, observation: Tree) -> Array:
        """Gives the entropy that is aimed at, in nats."""
        mask, count = action_mask(observation), self.actions.num_outputs
        allowed = count if mask is None else jnp.sum(mask.astype(bool), axis=-1)
        # Masks after the last action may allow nothing.
        return self.config.target_entropy * jnp.log(jnp.maximum(allowed, 1).astype(jnp.float32))

    def _all_values(self, params: Tree, statistics: Any, observation: Tree) -> Array:
        """The values of all actions by all critics, [critics, S, actions]."""
        inputs = self.normalizer.normalize(statistics, observation)
        return jax.vmap(lambda params: self.actor.policy_sequence(params, inputs))(params)
