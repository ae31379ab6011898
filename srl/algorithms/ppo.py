"""Proximal policy optimisation (Schulman et al., 2017, https://arxiv.org/abs/1707.06347).

One batch is T steps of B slots. Its values and advantages are computed once, under the parameters
it arrives at; then every epoch goes through it in minibatches. A policy with memory is learned from
in chunks of `chunk` steps, each from the memory that acting had at its first step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from srl.algorithms.actor_critic import ActorCritic, ActorCriticInstance
from srl.algorithms.minibatches import Batch, Minibatched, MinibatchedInstance
from srl.algorithms.normalization import (
    Statistics,
    merge,
    moments,
    no_statistics,
    spread,
    standardize,
    unstandardize,
)
from srl.algorithms.optimizer_step import annealed_step, learning_rate
from srl.algorithms.returns import generalized_advantages, sums_over, valid_rows, zero_unless
from srl.core.lazy import jax, jnp, optax
from srl.core.schedule import Adjustable
from srl.core.types import Array, Metrics, Tree, Unroll


@dataclass(frozen=True)
class PPO(ActorCritic, Minibatched):
    """The settings of proximal policy optimisation.

    The defaults are published ones for continuous actions (docs/results/ppo.md), and serve discrete
    ones as well.
    """

    epochs: int = 10
    """Passes of learning through each batch."""
    learning_rate: Adjustable = 3e-4
    """The step size of Adam."""
    anneal: bool = True
    """True if the learning rate falls linearly to 0 over the run, where its length is known."""
    adam_epsilon: float = 1e-5
    """A number that is added to Adam's denominator."""
    max_grad_norm: Adjustable = 0.5
    """The norm to which longer gradients are shortened."""
    weight_decay: float = 0.0
    """The share of the parameters that is added to the gradient, after its norm is bounded."""
    gae_lambda: float = 0.95
    """Lambda of the advantages: 0 gives one-step ones, 1 Monte Carlo ones."""
    clip: Adjustable = 0.2
    """The distance of the probability ratio from 1 beyond which it earns nothing more."""
    value_cost: Adjustable = 0.5
    """The weight of the value loss."""
    entropy_cost: Adjustable = 0.0
    """The weight of the entropy, which is rewarded."""
    normalize_values: bool = True
    """True if the value network predicts returns standardised by running statistics."""
    normalize_advantages: bool = True
    """True if the advantages of each batch are standardised."""

    limits: ClassVar[Mapping[str, tuple[float, ...]]] = {
        **ActorCritic.limits,
        **Minibatched.limits,
        "learning_rate": (0.0,),
        "adam_epsilon": (0.0,),
        "max_grad_norm": (0.0,),
        "weight_decay": (0.0,),
        "gae_lambda": (0.0, 1.0),
        "clip": (0.0,),
        "value_cost": (0.0,),
        "entropy_cost": (0.0,),
    }

    adjustable = ("learning_rate", "clip", "value_cost", "entropy_cost", "max_grad_norm")

    @property
    def instance(self) -> type[PPOInstance]:
        """The functions of PPO."""
        return PPOInstance


class Estimates(NamedTuple):
    """The estimates for each step of an unroll, [T, B], computed once, before any gradient step."""

    advantage: Array
    correction: Array  # the value target's difference to the value
    log_prob: Array  # of the policy that the probability ratio is to
    weight: Tree = ()  # of the sample, where an algorithm weights them


class Samples(NamedTuple):
    """Steps to learn from, [T, B, ...]; numbers at rows that are not valid are 0."""

    observation: Tree
    action: Tree
    log_prob: Array  # of the policy that the probability ratio is to
    weight: Tree  # of the sample, where an algorithm weights them; else ()
    advantage: Array
    target: Array  # of the value network, in the reward's scale
    valid: Array  # bool


class PPOState(NamedTuple):
    """The state of PPO's learning; see `State`."""

    params: Tree
    optimizer: Tree
    key: Array
    n: Array
    observations: dict[str, Statistics]
    values: Statistics  # of value targets
    advantages: Statistics  # of the present batch


@dataclass(frozen=True)
class PPOInstance(MinibatchedInstance, ActorCriticInstance[PPOState]):
    """PPO for one trained policy."""

    config: PPO

    @property
    def optimizer(self) -> optax.GradientTransformation:
        """Adam with the gradient's norm bounded; the learning rate comes later."""
        decay = self.config.weight_decay
        steps = [
            optax.clip_by_global_norm(self.config.max_grad_norm),
            *([optax.add_decayed_weights(decay)] if decay else []),
            optax.scale_by_adam(eps=self.config.adam_epsilon),
        ]
        # One vector compiles, and runs, faster than many arrays.
        return optax.flatten(optax.chain(*steps))

    def init(self, key: Array) -> PPOState:
        """Draws parameters; nothing is normalised yet."""
        fields = super().init(key)._asdict()
        return PPOState(**fields, values=no_statistics(), advantages=no_statistics())

    def measure(self, state: PPOState, unroll: Unroll) -> tuple[Batch, dict[str, Any]]:
        """Computes advantages and value targets, and their moments and those of observations."""
        _, sums = super().measure(state, unroll)
        valid = valid_rows(unroll.terminated, unroll.truncated)
        value, value_memory = self._values(state, unroll)
        observation = jax.tree.map(lambda x: x[:-1], unroll.observation)
        advantage, correction, log_prob, weight = self.estimate(state, unroll, value)
        target = correction + value[:-1]
        batch = Batch(
            samples=Samples(
                observation=observation,
                action=zero_unless(valid, unroll.action),
                log_prob=zero_unless(valid, log_prob),
                weight=weight,
                advantage=zero_unless(valid, advantage),
                target=zero_unless(valid, target),
                valid=valid,
            ),
            memory={"policy": unroll.memory, "value": value_memory},
            slot=unroll.slot,
        )
        return batch, {
            **sums,
            "values": moments(target, valid, state.values.mean),
            "advantages": moments(advantage, valid, state.advantages.mean),
            "errors": moments(correction, valid, jnp.zeros(())),
        }

    def estimate(self, state: PPOState, unroll: Unroll, value: Array) -> Estimates:
        """Gives the generalized advantages, and the probabilities with which actions were drawn.

        Args:
            state: What was learned before.
            unroll: The slots of the batch that are here.
            value: float32 [T + 1, B], of every row.
        """
        rows = (unroll.reward, unroll.terminated, unroll.truncated, value)
        advantage = generalized_advantages(*rows, self.config.discount, self.config.gae_lambda)
        return Estimates(advantage, advantage, unroll.log_prob)

    def adapt(self, state: PPOState, sums: Any) -> PPOState:
        """Adds the targets to the statistics of values; notes those of the advantages."""
        return state._replace(
            values=merge(state.values, sums["values"]),
            advantages=merge(state.advantages._replace(count=jnp.zeros(())), sums["advantages"]),
        )

    def loss(
        self, params: Tree, state: PPOState, samples: Samples, memory: dict[str, Tree]
    ) -> tuple[Array, Metrics]:
        """Clipped surrogate, value and entropy terms (Schulman et al., 2017, eq. 9), summed.

        Args:
            params: Of the policy and of the value.
            state: Its statistics are used.
            samples: [L, B, ...]
            memory: [B, ...] of the policy and of the value, before the first row.
        """
        config, ended = self.config, ~samples.valid
        inputs = params, state.observations, samples.observation, memory, ended
        distribution, value = self.evaluate(*inputs)
        log_prob = distribution.log_prob(samples.action)
        log_ratio = jnp.where(samples.valid, log_prob - samples.log_prob, 0)
        ratio = jnp.exp(log_ratio)
        clipped = jnp.clip(ratio, 1 - config.clip, 1 + config.clip)
        advantage = self.advantage(state, samples)
        surrogate = jnp.minimum(ratio * advantage, clipped * advantage)

        target = samples.target
        if config.normalize_values:
            target = standardize(state.values, target)

        metrics = {
            "policy_loss": -surrogate,
            "value_loss": jnp.square(value - target),
            "entropy": distribution.entropy(),
            "approx_kl": ratio - 1 - log_ratio,
            "clipfrac": jnp.abs(ratio - 1) > config.clip,
        }
        sums = sums_over(samples.valid, metrics)
        value_loss = config.value_cost * sums["value_loss"]
        return sums["policy_loss"] + value_loss - config.entropy_cost * sums["entropy"], sums

    def advantage(self, state: PPOState, samples: Samples) -> Array:
        """Gives the advantages that the surrogate is computed with, standardised as configured."""
        if not self.config.normalize_advantages:
            return samples.advantage
        mean, variance = state.advantages.mean, state.advantages.variance
        return (samples.advantage - mean) / (jnp.sqrt(variance) + 1e-8)

    def update(self, state: PPOState, sums: Any) -> tuple[PPOState, Metrics]:
        """Takes one step of Adam, with the gradient's norm bounded."""
        return annealed_step(self, state, sums)

    def finish(self, state: PPOState, sums: Any) -> tuple[PPOState, Metrics]:
        """Adds the batch to the statistics of observations and counts the update."""
        _, variance = spread(sums["values"])
        _, unexplained = spread(sums["errors"])
        metrics = {
            "explained_variance": 1 - unexplained / jnp.maximum(variance, 1e-8),
            "learning_rate": learning_rate(self.config, state.n, self.updates),
        }
        return super().finish(state, sums)[0], metrics

    def _values(self, state: PPOState, unroll: Unroll) -> tuple[Array, Tree]:
        """Gives the value of every row, and the value network's own memory at chunk starts."""
        ended = unroll.terminated | unroll.truncated
        inputs = (unroll.observation, self.value_memory(unroll), ended)
        value, memories = self.value(state.params, state.observations, *inputs)
        if self.config.normalize_values:
            value = unstandardize(state.values, value)
        own = () if self.network.shared else memories
        return value, jax.tree.map(lambda x: x[:-1][:: self.chunk], own)
