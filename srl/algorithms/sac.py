"""Soft actor-critic (Haarnoja et al., 2018, https://arxiv.org/abs/1812.05905).

The critics learn from n-step transitions drawn from a replay, with targets by target networks;
the actor learns to draw actions of high value and entropy; the temperature keeps the entropy near
its target. All three take their gradient steps at the same time, from the same parameters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from srl.algorithms.critics import ContinuousInstance, Critics, CriticsInstance, CriticsState
from srl.algorithms.off_policy import Drawn, summed
from srl.core.lazy import jax, jnp
from srl.core.schedule import Adjustable
from srl.core.types import Array, Decision, Policy, Tree
from srl.networks import PolicyAndValue

_LOG_STD = -5.0, 2.0  # to which the logarithm of the actor's deviation is squashed


@dataclass(frozen=True)
class SAC(Critics):
    """The settings of soft actor-critic."""

    temperature: float = 1.0
    """The weight of the entropy in the beginning."""
    temperature_learning_rate: Adjustable = 3e-4
    """The step size of the temperature's Adam."""
    target_entropy: Adjustable = -1.0
    """The entropy that is aimed at, in nats for each number of an action."""

    limits: ClassVar[Mapping[str, tuple[float, ...]]] = {
        **Critics.limits,
        "temperature": (0.0,),
        "temperature_learning_rate": (0.0,),
        "target_entropy": (-100.0, 100.0),
    }

    adjustable = (*Critics.adjustable, "temperature_learning_rate", "target_entropy")

    @property
    def instance(self) -> type[SACInstance]:
        """The functions of SAC."""
        return SACInstance


@dataclass(frozen=True)
class SoftInstance(CriticsInstance):
    """The losses of SAC, for continuous and for discrete actions."""

    config: SAC

    @property
    def rates(self) -> dict[str, float]:
        """The step size of each part that `draw_params` draws."""
        return {**super().rates, "log_temperature": self.config.temperature_learning_rate}

    def draw_params(self, key: Array) -> dict[str, Tree]:
        """Draws the networks' parameters; adds the temperature's logarithm."""
        log_temperature = jnp.log(jnp.asarray(self.config.temperature))
        return {**super().draw_params(key), "log_temperature": log_temperature}

    def loss(
        self, params: Tree, state: CriticsState, drawn: Drawn, round: Array
    ) -> tuple[Array, tuple[dict[str, Any], Tree]]:
        """The losses of the critics (eq. 5), the actor (eq. 7) and the temperature (eq. 18).

        They share no gradient: each holds the others' parameters fixed.
        """
        steps, statistics = drawn.transitions, state.observations
        fixed: Any = jax.lax.stop_gradient(params)
        key, next_key, own_key = jax.random.split(self.round_key(state, round), 3)
        temperature = jnp.exp(fixed["log_temperature"])

        networks = fixed["actor"], state.targets["critics"], lambda values: self.least(values, key)
        value, entropy = self.expected(*networks, statistics, steps.last, next_key, drawn.slot)
        target = steps.reward + steps.discount * (value + temperature * entropy)
        values = self.values(params["critics"], statistics, steps.observation, steps.action)
        critic_loss = 0.5 * jnp.sum(jnp.square(values - target), axis=0)

        # With two critics the actor goes by the least value, with more by the mean (REDQ).
        joined = jnp.min if self.config.critics == 2 else jnp.mean
        networks = params["actor"], fixed["critics"], lambda values: joined(values, axis=0)
        value, entropy = self.expected(
            *networks, statistics, steps.observation, own_key, drawn.slot
        )
        actor_loss = -(value + temperature * entropy)

        surplus = jax.lax.stop_gradient(entropy) - self.target_entropy(steps.observation)
        temperature_loss = params["log_temperature"] * surplus
        metrics = {
            "critic_loss": critic_loss,
            "actor_loss": actor_loss,
            "q_value": jnp.mean(values, axis=0),
            "entropy": entropy,
            "temperature": jnp.broadcast_to(temperature, entropy.shape),
        }
        loss = critic_loss + actor_loss + temperature_loss
        return summed(loss, metrics, steps.valid)

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
        """Gives the expected value of what the actor does, and its entropy, [S] each.

        Args:
            actor: Parameters.
            critics: Parameters, [critics, ...].
            joined: Makes one value of those by all critics, [critics, S, ...] to [S, ...].
            statistics: Of observations.
            observation: [S, ...].
            key: To draw with.
            slot: int32 [S], which of the run's slots these are of.
        """
        raise NotImplementedError

    def target_entropy(self, observation: Tree) -> Array:
        """Gives the entropy that is aimed at, in nats, [S] or []."""
        raise NotImplementedError


@dataclass(frozen=True)
class SACInstance(SoftInstance, ContinuousInstance):
    """SAC for one trained policy."""

    @cached_property
    def actor(self) -> PolicyAndValue:
        """The functions of the actor, which gives means and deviations."""
        return self.config.network.build(self.specs.observation, 2 * self.size)

    def policy(self, state: CriticsState) -> Policy:
        """Gives the actor's parameters, and whether it acts yet."""
        params = {"actor": state.params["actor"], "acts": self.warm(state.n)}
        return Policy(params, state.observations)

    def act(
        self, policy: Policy, observation: Tree, memory: Tree, keys: Array, slot: Array
    ) -> Decision:
        """Draws an action for each slot with its own random key: keys [B]."""
        outputs = self.act_on(policy.params["actor"], policy.normalizer, observation)
        noise = jax.vmap(lambda key: jax.random.normal(key, (self.size,)))(keys)
        action, log_prob = squashed(outputs, noise)
        action = jnp.where(policy.params["acts"], action, self.evenly(keys))
        return Decision(self.shaped(action), log_prob, memory)

    def act_greedy(self, policy: Policy, observation: Tree, memory: Tree) -> Decision:
        """Takes the middle of the actor's distribution for each slot."""
        outputs = self.act_on(policy.params["actor"], policy.normalizer, observation)
        action, log_prob = squashed(outputs, jnp.zeros(()))
        return Decision(self.shaped(action), log_prob, memory)

    def action_outputs(self, policy: Policy, observation: Tree, memory: Tree) -> dict[str, Array]:
        """Gives `mean` and `log_std` of the numbers whose hyperbolic tangents are the actions."""
        outputs = self.act_on(policy.params["actor"], policy.normalizer, observation)
        mean, log_std = map(self.shaped, _mean_and_log_std(outputs))
        return {"mean": mean, "log_std": log_std}

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
        """Gives the value of one action that the actor draws, and its entropy's estimate."""
        outputs = self.act_on(actor, statistics, observation)
        action, log_prob = squashed(outputs, self.noise(key, slot))
        return joined(self.values(critics, statistics, observation, action)), -log_prob

    def target_entropy(self, observation: Tree) -> Array:
        """Gives the entropy that is aimed at, in nats."""
        return jnp.asarray(self.config.target_entropy * self.size)


def squashed(outputs: Array, noise: Array) -> tuple[Array, Array]:
    """Gives an action in [-1, 1] and its log-density (Haarnoja et al., 2018, appendix C).

    Args:
        outputs: Of the actor, [S, 2 * numbers]: means and logarithms of deviations, before the
            hyperbolic tangent.
        noise: Normal numbers, [S, numbers], or [] for all.
    """
    mean, log_std = _mean_and_log_std(outputs)
    raw = mean + jnp.exp(log_std) * noise
    density = -0.5 * jnp.square(noise) - log_std - 0.5 * math.log(2 * math.pi)
    # log(1 - tanh(x)^2), which is exact for large x, too.
    slope = 2 * (math.log(2) - raw - jax.nn.softplus(-2 * raw))
    return jnp.tanh(raw), jnp.sum(density - slope, axis=-1)


def _mean_and_log_std(outputs: Array) -> tuple[Array, Array]:
    """Means, and logarithms of deviations within their limits, [S, numbers] each."""
    mean, log_std = jnp.split(outputs, 2, axis=-1)
    low, high = _LOG_STD
    return mean, low + 0.5 * (high - low) * (jnp.tanh(log_std) + 1)
