"""Soft actor-critic (Haarnoja et al., 2018, https://arxiv.org/abs/1812.05905).

The critics learn from n-step transitions drawn from a replay, with targets by target networks;
the actor learns to draw actions of high value and entropy; the temperature alpha keeps the entropy
near its target. All three take their gradient steps at the same time, from the same parameters.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, ClassVar, Self

from srl.algorithms.algorithm import Total
from srl.algorithms.bounded_actor import BoundedActor, UniformUntil, expect_bounded, noise_by_slot
from srl.algorithms.critics import ActionCritics, expect_critics_fit, step_key
from srl.algorithms.distributions import Distribution, only
from srl.algorithms.gradient_descent import Descent, adam, descend, gradient_sums, polyak, where
from srl.algorithms.normalization import of_task
from srl.algorithms.off_policy import OffPolicy, TargetState
from srl.algorithms.replay import Transitions
from srl.algorithms.replay_ratio import zeros_unless
from srl.algorithms.sequences import (
    Batch,
    NamedNetworks,
    StepsInstance,
    expect_steps_fit,
    with_memory_settled,
)
from srl.algorithms.value_forms import expect_range_fits, value_form
from srl.core.lazy import jax, jnp
from srl.core.schedule import Adjustable
from srl.core.settings import AtLeastOne, NotNegative, Range, ZeroToOne
from srl.core.types import Array, Metrics, Policy, Tree
from srl.networks import MLP, AutoNetwork, Network

_LOG_STD = -5.0, 2.0  # to which the logarithm of the actor's deviation is squashed


@dataclass(frozen=True)
class SAC(OffPolicy):
    """The settings of soft actor-critic."""

    unroll_length: Annotated[int, Range(0, 2**31 - 1)] = 0
    """Steps of each unroll, all with one version of the policy; 0 takes 8, or 32 with memory."""
    discount: ZeroToOne = 0.99
    """Weight of a reward one step later."""
    network: Network = field(default_factory=lambda: AutoNetwork(MLP(width=256, activation="relu")))
    """Network of the actor and of the critics; the observation decides the default."""
    normalize_observations: bool = False
    """Standardise observations by running statistics when they are drawn."""
    replay: AtLeastOne = 1_000_000
    """The capacity of the replay, in steps of all environments."""
    warm_up: Annotated[int, Range(0)] = 5_000
    """Steps before learning begins, with uniformly drawn actions."""
    batch_size: AtLeastOne = 256
    """Transitions of a gradient step, rounded to a multiple or a part of the slots."""
    samples_per_insert: Annotated[float, Range(0.001)] = 256.0
    """The mean number of times that each step is learned from, exact despite the batch's rounding.
    256 with batches of 256 is a gradient step for each env step."""
    n_step: AtLeastOne = 1
    """Steps of a transition, which stays within its unroll: fewer near the unroll's end."""
    sequence: AtLeastOne = 16
    """Steps that a network with memory learns from in sequence; see `burn_in`."""
    burn_in: Annotated[int, Range(0)] = 16
    """Steps before a sequence that only bring the memory up to date; fewer at the start of an
    unroll, and none without memory."""
    target_rate: ZeroToOne = 0.005
    """The part of the way that the target networks move towards the networks at a time."""
    target_period: AtLeastOne = 1
    """Gradient steps between moves of the target networks. A `target_rate` of 1 copies the
    networks."""
    critics: AtLeastOne = 2
    """The number of critics."""
    subset: AtLeastOne = 2
    """The number of critics in a target, redrawn for each gradient step."""
    atoms: AtLeastOne = 1
    """Atoms of the distributions of returns that critics learn: 1 learns the mean, 101 is
    FastTD3's."""
    value_range: tuple[float, float] | None = None
    """The returns of the first and the last atom; returns beyond are clipped. By default those of
    rewards from -1 to 1: reward_scale / (1 - discount) either way."""
    temperature: NotNegative = 1.0
    """The first weight of the entropy."""
    target_entropy: Annotated[Adjustable, Range(-100.0, 100.0)] = -1.0
    """The target of the entropy, in nats for each number of an action."""
    learning_rate: Annotated[Adjustable, Range(0.0)] = 3e-4
    """The step size of the actor's Adam."""
    critic_learning_rate: Annotated[Adjustable, Range(0.0)] = 1e-3
    """The step size of the critics' Adam."""
    weight_decay: NotNegative = 0.0
    """The decay of AdamW, of actor and critics; 0 is Adam. FastTD3 has 0.1."""
    temperature_learning_rate: Annotated[Adjustable, Range(0.0)] = 3e-4
    """The step size of the temperature's Adam."""

    values_see_more: ClassVar[bool] = True

    def validate(self) -> None:
        """Raises UserError where settings are out of their limits or do not fit each other."""
        super().validate()
        expect_steps_fit(self.settled())
        expect_critics_fit(self)
        expect_range_fits(self)

    def settled(self, num_envs: int = 64) -> Self:
        """Gives the settings with the length of unrolls and the layer after memory."""
        return with_memory_settled(self)

    @property
    def instance(self) -> type[SACInstance]:
        """The functions of SAC."""
        return SACInstance


@dataclass(frozen=True)
class SquashedGaussian(Distribution):
    """Hyperbolic tangents of normally distributed numbers, [B, *shape]."""

    mean: Array
    log_std: Array
    mask: Array | None = None  # bool, the numbers that there are; None for all

    def sample_and_log_prob(self, keys: Array) -> tuple[Array, Array]:
        """Draws an action for each slot with the slot's own key: keys [B]."""
        shape = self.mean.shape[1:]
        noise = jax.vmap(lambda key: jax.random.normal(key, shape))(keys)
        return squashed(self.mean, self.log_std, noise, self.mask)

    def sample(self, keys: Array) -> Array:
        """Draws an action for each slot."""
        return self.sample_and_log_prob(keys)[0]

    def mode(self) -> Array:
        """Gives the middle of the distribution."""
        return only(self.mask, jnp.tanh(self.mean))

    def log_prob(self, action: Array) -> Array:
        """Gives the log-density; actions within 1e-6 of the bounds count as at that distance."""
        number = jnp.arctanh(jnp.clip(action, -1 + 1e-6, 1 - 1e-6))
        noise = (number - self.mean) * jnp.exp(-self.log_std)
        return squashed(self.mean, self.log_std, noise, self.mask)[1]

    def parameters(self) -> dict[str, Array]:
        """Gives `mean` and `log_std` of the numbers whose hyperbolic tangents are the actions."""
        return {"mean": self.mean, "log_std": self.log_std}


class SquashedActor(BoundedActor):
    """An actor that gives means and deviations."""

    def distribution(
        self, policy: Policy, observation: Tree, memory: Tree, slot: Array
    ) -> tuple[UniformUntil, Tree]:
        """Gives the distribution of actions, which is uniform during warm-up."""
        given = policy.params["actor"], policy.normalizer, observation, memory
        outputs, memory = self.step(*given)
        mean, log_std = map(self.shaped, mean_and_log_std(outputs))
        begun, shape = policy.params["acts"], mean.shape[1:]
        mask = self.shaped_mask(observation)
        return UniformUntil(begun, SquashedGaussian(mean, log_std, mask), shape, mask), memory


@dataclass(frozen=True)
class SACInstance(StepsInstance):
    """SAC for one trained policy."""

    config: SAC

    def __post_init__(self) -> None:
        """Raises UserError for actions that are not bounded numbers."""
        expect_bounded(self.config, self.specs)

    @cached_property
    def actor(self) -> SquashedActor:
        """The actor."""
        return SquashedActor(self.config.network, self.specs, self.normalizer, 2)

    @cached_property
    def critics(self) -> ActionCritics:
        """The critics, each of which has a target network."""
        config = self.config
        inputs = config.network, self.specs, self.normalizer
        return ActionCritics(*inputs, config.critics, config.subset, value_form(config))

    @property
    def descents(self) -> dict[str, Descent]:
        """The optimizers of the networks, and of the temperature, which does not decay."""
        networks = adam(self.config.weight_decay)
        return {"critics": networks, "actor": networks, "log_temperature": adam()}

    def init(self, key: Array) -> TargetState:
        """Draws parameters, which the target networks start from, too."""
        params_key, learning_key = jax.random.split(key)
        actor_key, critic_key = jax.random.split(params_key)
        params = {
            "actor": self.actor.init(actor_key),
            "critics": self.critics.init(critic_key),
            "log_temperature": jnp.full(
                self.normalizer.by_task, jnp.log(jnp.float32(self.config.temperature))
            ),
        }
        optimizer = {name: self.descents[name].init(x) for name, x in params.items()}
        return TargetState.first(self, learning_key, params, optimizer, targets=params["critics"])

    def policy(self, state: TargetState) -> Policy:
        """Gives the actor's parameters, and whether it acts yet."""
        params = {"actor": state.params["actor"], "acts": self.ratio.past_warm_up(state.n)}
        return Policy(params, self.normalizer.policy_statistics(state.observations))

    def targets(self, state: TargetState) -> NamedNetworks:
        """Gives the target networks; see `StepsInstance`."""
        return {"targets": ("critics", self.critics, state.targets)}

    def draw(
        self,
        actor: Tree,
        state: TargetState,
        observation: Tree,
        memory: Tree,
        key: Array,
        slot: Array,
    ) -> tuple[Array, Array]:
        """Draws the actor's actions, [S, numbers]; gives their log-probabilities, too, [S]."""
        outputs = self.actor.outputs(actor, state.observations, observation, memory)
        numbers = self.ratio.share, self.actor.size, self.sequence
        noise = noise_by_slot(key, slot, *numbers)
        return squashed(*mean_and_log_std(outputs), noise, self.actor.mask(observation))

    def temperature(self, log_temperature: Array, observation: Tree) -> Array:
        """Gives the weight of the entropy, [S], or [] without tasks: each has its own."""
        return of_task(jnp.exp(log_temperature), self.normalizer.task(observation))

    def critic_loss(
        self, critics: Tree, state: TargetState, steps: Transitions, keys: Array, slot: Array
    ) -> tuple[Array, Metrics]:
        """Half the squared soft Bellman residuals (eq. 5), or C51's cross-entropies, [S]: keys [2].

        The entropy of the next action counts as reward.
        """
        params, statistics, form = state.params, state.observations, self.critics.form
        last = state, steps.last, steps.last_memory("actor"), keys[1], slot
        next_action, log_prob = self.draw(params["actor"], *last)
        last = statistics, steps.last, next_action, steps.last_memory("targets")
        following = self.critics.outputs(state.targets, *last)
        alpha = self.temperature(params["log_temperature"], steps.last)
        reward = steps.reward - steps.discount * alpha * log_prob
        inputs = reward, steps.discount, self.critics.least(following, keys[0])
        taken = steps.observation, steps.action, steps.memory("critics")
        outputs = self.critics.outputs(critics, statistics, *taken)
        loss = jnp.sum(form.loss(outputs, form.target(*inputs))[1], axis=0)
        value = jnp.mean(form.value(outputs), axis=0)
        return loss, {"critic_loss": loss, "q_value": value, **form.metrics(*inputs)}

    def actor_loss(
        self, actor: Tree, state: TargetState, steps: Transitions, key: Array, slot: Array
    ) -> tuple[Array, Metrics]:
        """The value and the entropy of drawn actions, negative (eq. 7), [S]."""
        observation = steps.observation
        action, log_prob = self.draw(actor, state, observation, steps.memory("actor"), key, slot)
        inputs = state.observations, observation, action, steps.memory("critics")
        values = self.critics.values(state.params["critics"], *inputs)
        # With two critics the actor goes by the least value, with more by the mean (REDQ).
        joined = jnp.min if self.config.critics == 2 else jnp.mean
        alpha = self.temperature(state.params["log_temperature"], observation)
        loss = alpha * log_prob - joined(values, axis=0)
        return loss, {"actor_loss": loss, "entropy": -log_prob}

    def alpha_loss(
        self, log_alpha: Array, entropy: Array, observation: Tree
    ) -> tuple[Array, Metrics]:
        """The entropy's difference to its target, times log alpha (eq. 18), [S]."""
        target = self.config.target_entropy * self.actor.count(observation)
        alpha = jnp.broadcast_to(self.temperature(log_alpha, observation), entropy.shape)
        log_alpha = jnp.where(jnp.isfinite(log_alpha), log_alpha, 0.0)  # of a temperature of 0
        log_alpha = of_task(log_alpha, self.normalizer.task(observation))
        return log_alpha * (entropy - target), {"temperature": alpha}

    def gradient_step(
        self, state: TargetState, batch: Batch, step: Array, total: Total
    ) -> tuple[TargetState, Metrics]:
        """Takes a step of Adam for each network and for alpha; the target networks follow."""
        params = state.params
        drawn, slot = jax.tree.map(lambda x: x[step], (batch.transitions, batch.slot))
        keys = jax.random.split(step_key(state, step), 3)

        def critic_loss(critics: Tree) -> tuple[Array, Metrics]:
            steps = self.transitions_of(drawn, state, critics=critics)
            return self.critic_loss(critics, state, steps, keys[:2], slot)

        def actor_loss(actor: Tree) -> tuple[Array, Metrics]:
            steps = self.transitions_of(drawn, state, actor=actor)
            return self.actor_loss(actor, state, steps, keys[2], slot)

        def gradients() -> Any:
            taken = self.transitions_of(drawn, state)
            valid = taken.valid
            critics, _ = gradient_sums(critic_loss, params["critics"], valid)
            actor, by_sample = gradient_sums(actor_loss, params["actor"], valid)
            loss = lambda x: self.alpha_loss(x, by_sample["entropy"], taken.observation)  # noqa: E731
            alpha, _ = gradient_sums(loss, params["log_temperature"], valid)
            return {"critics": critics, "actor": actor, "log_temperature": alpha}

        return soft_step(self, state, step, gradients, total)


def soft_step(
    instance: Any, state: TargetState, step: Array, gradients: Callable[[], Any], total: Total
) -> tuple[TargetState, Metrics]:
    """Takes a gradient step of SAC or DiscreteSAC, where one is due; the target networks follow.

    Args:
        instance: Of the algorithm.
        state: After the step before.
        step: int32 [], which of the `gradient_steps` this is.
        gradients: Gives the gradient sums of `critics`, `actor` and `log_temperature`.
        total: Adds sums to those of the slots that are elsewhere.
    """
    config, ratio = instance.config, instance.ratio
    sums = total(zeros_unless(ratio.due(state.n, step), gradients))
    rates = {
        "critics": config.critic_learning_rate,
        "actor": config.learning_rate,
        "log_temperature": config.temperature_learning_rate,
    }
    moved, optimizer, metrics = descend(instance.descents, state, sums, rates)
    moves = ratio.every(config.target_period, state.n, step)
    tau = jnp.where(moves, config.target_rate, 0.0)
    targets = polyak(moved["critics"], state.targets, tau)
    learned = state._replace(params=moved, optimizer=optimizer, targets=targets)
    return where(sums["critics"].count > 0, learned, state), metrics


def squashed(
    mean: Array, log_std: Array, noise: Array, mask: Array | None = None
) -> tuple[Array, Array]:
    """Gives actions in [-1, 1] and their log-densities (Haarnoja et al., 2018, appendix C).

    Args:
        mean: Of the numbers before the hyperbolic tangent, [S, ...].
        log_std: The logarithm of their deviation, [S, ...].
        noise: Normal numbers, [S, ...].
        mask: The numbers that there are, bool [S, ...]; the others are 0. None for all.
    """
    number = mean + jnp.exp(log_std) * noise
    density = -0.5 * jnp.square(noise) - log_std - 0.5 * math.log(2 * math.pi)
    # log(1 - tanh(x)^2), which is exact for large x, too.
    slope = 2 * (math.log(2) - number - jax.nn.softplus(-2 * number))
    axes = tuple(range(1, mean.ndim))
    return only(mask, jnp.tanh(number)), jnp.sum(only(mask, density - slope), axis=axes)


def mean_and_log_std(outputs: Array) -> tuple[Array, Array]:
    """Means, and logarithms of deviations within their limits, [S, numbers] each."""
    mean, log_std = jnp.split(outputs, 2, axis=-1)
    low, high = _LOG_STD
    return mean, low + 0.5 * (high - low) * (jnp.tanh(log_std) + 1)
