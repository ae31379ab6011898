"""Proximal policy optimisation (Schulman et al., 2017, https://arxiv.org/abs/1707.06347).

One batch is T steps of B slots. Its values and advantages are computed once, under the parameters
it arrives at; then every epoch goes through it in minibatches. A policy with memory is learned from
in chunks of `chunk` steps, each from the memory that acting had at its first step. The value
network's memory goes on from unroll to unroll.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, ClassVar, NamedTuple, Self

from srl.algorithms.actor_critic import ActorCritic
from srl.algorithms.algorithm import Instance, Total
from srl.algorithms.carried_memory import memory_after
from srl.algorithms.gradient_descent import Descent, annealed_rate, clipped, gradient_sums
from srl.algorithms.imitation import Imitating, ImitatingInstance
from srl.algorithms.minibatches import (
    Batch,
    Minibatches,
    expect_chunks_fit,
    fitting_minibatches,
)
from srl.algorithms.mirror import Mirror
from srl.algorithms.normalization import (
    Statistics,
    merge,
    no_statistics,
    of_task,
    spread,
    standardize,
    task_moments,
    unstandardize,
)
from srl.algorithms.returns import generalized_advantages, valid_rows, zero_unless
from srl.core.errors import expect_apart
from srl.core.lazy import jax, jnp, optax
from srl.core.schedule import Adjustable
from srl.core.settings import AtLeastOne, NotNegative, Range, ZeroToOne
from srl.core.types import Array, Metrics, Policy, Specs, Tree, Unroll
from srl.networks import AutoNetwork, Network


@dataclass(frozen=True)
class PPO(Imitating):
    """The settings of proximal policy optimisation.

    The defaults are published ones for continuous actions (docs/results/ppo.md), and serve discrete
    ones as well.
    """

    unroll_length: Annotated[int, Range(1, 2**31 - 1)] = 32
    """Steps of each unroll, with one version of the policy or, with stale data, with several."""
    discount: ZeroToOne = 0.99
    """Weight of a reward one step later."""
    network: Network = field(default_factory=AutoNetwork)
    """Network of the policy and of the value; the observation decides the default."""
    normalize_observations: bool = True
    """Standardise observations by running statistics."""
    initial_log_std: Annotated[float, Range(-10.0, 10.0)] = -0.5
    """The first logarithm of the standard deviation of Box actions, scaled to bounds of -1 and 1.
    With 0, a third of the first actions would be out of bounds."""
    epochs: AtLeastOne = 10
    """Passes of learning through each batch."""
    minibatches: Annotated[int, Range(0)] = 0
    """The number of parts of a batch, each for one gradient step. They divide the steps of each
    slot as far as chunks allow, and then the slots. 0 chooses up to 32, of 128 steps or more each,
    with memory of 8 chunks or more."""
    chunk: Annotated[int, Range(0)] = 0
    """Steps that a network with memory learns from in sequence; 0 takes the whole unroll."""
    learning_rate: Annotated[Adjustable, Range(0.0)] = 3e-4
    """The step size of Adam."""
    anneal: bool = True
    """True if the learning rate falls linearly to 0 over a run of known length."""
    desired_kl: NotNegative = 0.0
    """The KL divergence that an update should reach, such as 0.01: the step size grows by half
    after an update with less than half of it, and shrinks by a third after one with twice as much.
    0 leaves the step size as it is."""
    adam_epsilon: NotNegative = 1e-5
    """The number added to Adam's denominator."""
    max_grad_norm: Annotated[Adjustable, Range(0.0)] = 0.5
    """The largest norm of a gradient; longer ones are scaled to it."""
    weight_decay: NotNegative = 0.0
    """The share of the parameters added to the gradient, after its norm is bounded."""
    gae_lambda: ZeroToOne = 0.95
    """Lambda of the advantages: 0 gives one-step ones, 1 Monte Carlo ones."""
    clip: Annotated[Adjustable, Range(0.0)] = 0.2
    """The distance from 1 at which the probability ratio is clipped."""
    value_cost: Annotated[Adjustable, Range(0.0)] = 0.5
    """The weight of the value loss."""
    entropy_cost: Annotated[Adjustable, Range(0.0)] = 0.0
    """The weight of the reward for entropy."""
    normalize_values: bool = True
    """True if the value network predicts returns standardised by running statistics, of each task
    of a mixture."""
    normalize_advantages: bool = True
    """True if the advantages of each batch are standardised, by task in a mixture."""
    mirror: Mirror | None = field(default=None, kw_only=True)
    """A symmetry of the environment: each minibatch is followed by its mirror image; by default
    none."""

    learns_state_value: ClassVar[bool] = True
    values_see_more: ClassVar[bool] = True

    def validate(self) -> None:
        """Raises UserError where settings are out of their limits or do not fit each other."""
        super().validate()
        expect_chunks_fit(self)
        if self.mirror is not None:
            why = "memories are of the rows as they were"
            expect_apart(self, "mirror and a network with memory", why, self.network.memory)
            why = "the divergence of mirrored rows is from the probabilities of other actions"
            expect_apart(self, "mirror and desired_kl", why, self.desired_kl)
            why = "advice is about the rows as they were"
            expect_apart(self, "mirror and a teacher", why, self.imitates)

    def bind(self, specs: Specs, updates: int | None = None, slots: int = 0) -> Instance:
        """Gives the functions for one trained policy; see `Algorithm.bind`."""
        if self.mirror is not None:
            self.mirror.expect_fit(specs)
        return super().bind(specs, updates, slots)

    def settled(self, num_envs: int = 64) -> Self:
        """Gives the settings with the number of minibatches, where that is 0."""
        return replace(
            self, minibatches=self.minibatches or fitting_minibatches(self, num_envs, 128)
        )

    @property
    def instance(self) -> type[PPOInstance]:
        """The functions of PPO."""
        return PPOInstance


class PPOState(NamedTuple):
    """The state of PPO's learning; see `State`."""

    params: Tree
    optimizer: Tree
    key: Array
    n: Array
    observations: dict[str, Statistics]
    values: Statistics  # of value targets; by task, where there are tasks
    step_scale: Array  # float32 [], a factor on the learning rate, by `desired_kl`


class Samples(NamedTuple):
    """Steps to learn from, [T, B, ...]; numbers at rows that are not valid are 0."""

    observation: Tree
    action: Tree
    log_prob: Array  # of the policy that the probability ratio is to; inf of a teacher's actions
    advantage: Array
    target: Array  # of the value network
    valid: Array  # bool
    advice: Tree = ()  # of a teacher where there is one


class Estimates(NamedTuple):
    """Estimates for each step, float32 [T, B]; APPO's differ from PPO's."""

    advantage: Array
    correction: Array  # the value target less the value
    log_prob: Array  # that the probability ratio is to
    weight: Array  # of the sample, or [] for all


class BatchResults(NamedTuple):
    """Results for a whole batch."""

    observations: dict[str, Statistics]  # with those of the batch
    explained_variance: Array  # of the value targets, by the values


@dataclass(frozen=True)
class PPOInstance(ImitatingInstance):
    """PPO for one trained policy."""

    config: PPO

    @cached_property
    def actor(self) -> ActorCritic:
        """The policy and the value network."""
        config = self.config
        return ActorCritic(config.network, self.specs, self.normalizer, config.initial_log_std)

    @property
    def adam(self) -> Descent:
        """Adam with the gradient's norm bounded."""
        config = self.config
        decay = optax.add_decayed_weights(config.weight_decay)
        adam = optax.scale_by_adam(eps=config.adam_epsilon)
        steps = (decay, adam) if config.weight_decay else (adam,)
        return clipped(config.max_grad_norm, *steps)

    @property
    def division(self) -> Minibatches:
        """The division of batches."""
        config = self.config
        chunk = config.chunk if self.actor.network.memory else None
        return Minibatches(config.epochs, config.minibatches, chunk)

    def init(self, key: Array) -> PPOState:
        """Draws parameters; nothing is normalised yet."""
        params_key, learning_key = jax.random.split(key)
        params = self.actor.init(params_key)
        return PPOState(
            params=params,
            optimizer=self.adam.init(params),
            key=jax.random.key_data(learning_key),
            n=jnp.zeros((), jnp.int32),
            observations=self.normalizer.init(),
            values=no_statistics(tasks=self.normalizer.by_task),
            step_scale=jnp.ones(()),
        )

    def policy(self, state: PPOState) -> Policy:
        """Gives the policy's parameters and the statistics of observations."""
        return self.acting_policy(state.params["policy"], state.observations)

    @classmethod
    def has_replay(cls) -> bool:
        """False: the value's memory does not depend on the lengths of unrolls."""
        return False

    def empty_replay(self, unroll: Unroll) -> Tree:
        """Gives the value network's memory of nothing, where it has one."""
        return self.actor.empty_value_memory(unroll)

    def prepare(
        self, state: PPOState, replay: Tree, unroll: Unroll, total: Total
    ) -> tuple[PPOState, Tree, Batch]:
        """Computes advantages and value targets, and takes in their moments.

        PPO has no replay: `replay` is the value network's memory, which it carries from update to
        update. Observations keep the statistics that acting had until `finish`, or the first
        probability ratios would not be 1.
        """
        valid = valid_rows(unroll.terminated, unroll.truncated)
        value, memories = self.values(state, unroll, replay)
        replay = memory_after(unroll, memories, replay)
        advantage, correction, log_prob, weight = self.estimates(state, unroll, value)
        target, own = correction + value[:-1], self.not_by_teacher(unroll.log_prob)
        observation = jax.tree.map(lambda x: x[:-1], unroll.observation)
        task, zero = self.normalizer.task(observation), jnp.zeros(self.normalizer.by_task)

        sums = total(
            {
                "observations": self.normalizer.measure(state.observations, observation, valid),
                "values": task_moments(target, valid, state.values.mean, task),
                "advantages": task_moments(advantage, valid & own, zero, task),
                "errors": task_moments(correction, valid, zero, task),
            }
        )
        values = merge(state.values, sums["values"])
        if self.config.normalize_values:
            target = standardize(of_task(values, task), target)
        if self.config.normalize_advantages:
            mean, variance = of_task(spread(sums["advantages"]), task)
            advantage = (advantage - mean) / (jnp.sqrt(variance) + 1e-8)

        samples = Samples(
            observation=observation,
            action=zero_unless(valid, unroll.action),
            log_prob=zero_unless(valid, log_prob),
            advantage=zero_unless(valid & own, advantage * weight),
            target=zero_unless(valid, target),
            valid=valid,
            advice=zero_unless(valid, unroll.advice),
        )
        errors, variance = (spread(sums[name])[1] for name in ("errors", "values"))
        unexplained = errors / jnp.maximum(variance, 1e-8)
        results = BatchResults(
            observations=self.normalizer.update(state.observations, sums["observations"]),
            explained_variance=jnp.mean(1 - unexplained),
        )
        value_memories = () if self.actor.network.shared else memories
        starts = self.division.starts(value_memories, len(valid))
        memory = {"policy": unroll.memory, "value": starts}
        return state._replace(values=values), replay, Batch(samples, memory, unroll.slot, results)

    def values(self, state: PPOState, unroll: Unroll, replay: Tree = ()) -> tuple[Array, Tree]:
        """Gives the value of every row, and the memory before each that it is computed with."""
        ended = unroll.terminated | unroll.truncated
        inputs = unroll.observation, self.actor.value_memory(unroll, replay), ended
        value, memories = self.actor.values(state.params, state.observations, *inputs)
        if self.config.normalize_values:
            task = self.normalizer.task(unroll.observation)
            value = unstandardize(of_task(state.values, task), value)
        return value, memories

    def estimates(self, state: PPOState, unroll: Unroll, value: Array) -> Estimates:
        """Gives generalized advantages; the values' corrections are the same, all weights are 1.

        Args:
            state: The state before the update.
            unroll: The slots of the batch that are here.
            value: float32 [T + 1, B], of every row.
        """
        rows = unroll.reward, unroll.terminated, unroll.truncated, value
        advantage = generalized_advantages(*rows, self.config.discount, self.config.gae_lambda)
        return Estimates(advantage, advantage, unroll.log_prob, jnp.ones(()))

    def loss(
        self, params: Tree, state: PPOState, samples: Samples, memory: dict[str, Tree]
    ) -> tuple[Array, Metrics]:
        """Clipped surrogate, value and entropy terms (Schulman et al., 2017, eq. 9), [L, S].

        Args:
            params: Of the policy and of the value.
            state: Its statistics are used.
            samples: [L, S, ...]
            memory: [S, ...] of the policy and of the value, before the first row.
        """
        config = self.config
        inputs = samples.observation, memory, ~samples.valid
        policy, value = self.actor.distributions_and_values(params, state.observations, *inputs)
        own = samples.valid & self.not_by_teacher(samples.log_prob)
        log_ratio = jnp.where(own, policy.log_prob(samples.action) - samples.log_prob, 0)
        ratio = jnp.exp(log_ratio)
        clipped_ratio = jnp.clip(ratio, 1 - config.clip, 1 + config.clip)
        surrogate = jnp.minimum(ratio * samples.advantage, clipped_ratio * samples.advantage)
        value_loss = jnp.square(value - samples.target)
        entropy = policy.entropy()

        from_rewards = -surrogate - config.entropy_cost * entropy
        divergence = self.divergence(policy, samples.advice)
        imitating, metrics = self.policy_loss(state.n, from_rewards, divergence)
        shares = {"own_actions": own} if self.mixes else {}
        return imitating + config.value_cost * value_loss, {
            **metrics,
            **shares,
            "policy_loss": -surrogate,
            "value_loss": value_loss,
            "entropy": entropy,
            "approx_kl": ratio - 1 - log_ratio,
            "clipfrac": jnp.abs(ratio - 1) > config.clip,
        }

    def gradient_step(
        self, state: PPOState, batch: Batch, step: Array, total: Total
    ) -> tuple[PPOState, Metrics]:
        """Takes a step of Adam on one minibatch."""
        samples, memory = self.division.draw(batch, state, step)
        if self.config.mirror is not None:
            samples = self.config.mirror.doubled(samples)
        loss = lambda params: self.loss(params, state, samples, memory)  # noqa: E731
        sums, _ = gradient_sums(loss, state.params, samples.valid)
        gradient, metrics = total(sums).mean()
        optimizer = self.optimizer_before(state, step, self.adam)
        rate = self.learning_rate(state)
        params, optimizer = self.adam.step(state.params, optimizer, gradient, rate)
        metrics["grad_norm"] = jnp.linalg.norm(gradient)
        params = self.with_policy_frozen(state.n, state.params, params)
        return state._replace(params=params, optimizer=optimizer), metrics

    def finish(
        self, state: PPOState, replay: Tree, batch: Batch, metrics: Metrics
    ) -> tuple[PPOState, Tree, Metrics]:
        """Takes in the statistics of observations, adapts the step size, counts the update."""
        scale = state.step_scale
        if self.config.desired_kl:
            last_epoch = -self.division.per_epoch
            kl = jnp.mean(metrics["approx_kl"][last_epoch:])
            if self.mixes:  # the teacher's actions count as 0 in it
                kl /= jnp.maximum(jnp.mean(metrics["own_actions"][last_epoch:]), 1e-6)
            stays = self.only_value_learns(state.n)
            scale = jnp.where(stays, scale, adapted(scale, kl, self.config.desired_kl))
        learned = state._replace(
            n=state.n + 1, observations=batch.results.observations, step_scale=scale
        )
        return (
            learned,
            replay,
            {
                **jax.tree.map(jnp.mean, metrics),
                "explained_variance": batch.results.explained_variance,
                "learning_rate": self.learning_rate(state),
            },
        )

    def learning_rate(self, state: PPOState) -> Array:
        """Gives the step size of the state's next update, float32 []."""
        return state.step_scale * annealed_rate(self.config, state.n, self.updates)


def adapted(scale: Array, kl: Array, desired: float) -> Array:
    """Gives the factor on the learning rate after an update with this KL divergence, float32 [].

    The rule of robot simulators' PPO (Rudin et al., 2021, https://arxiv.org/abs/2109.11978), once
    an update: it keeps within a thirtieth and thirty times the setting.
    """
    factor = jnp.where(kl > 2 * desired, 1 / 1.5, jnp.where(kl < desired / 2, 1.5, 1.0))
    return jnp.clip(scale * factor, 1 / 30, 30.0)
