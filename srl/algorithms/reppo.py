"""Relative entropy pathwise policy optimisation (Voelcker et al., 2025, arXiv:2507.11019).

A critic of actions learns lambda returns with entropy bonus from fresh unrolls, which are computed
once for each batch; there is no replay and no target network. The actor follows the critic's
gradient while its KL divergence to the policy before the update is within a bound, and otherwise
returns towards that policy. All networks take their gradient steps at the same time, from the same
parameters. The divergence is exact, where the paper estimates it by drawn actions. The paper's
auxiliary loss, by which the critic's features predict the next ones, is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, ClassVar, NamedTuple, Self

from srl.algorithms.algorithm import Algorithm, Instance, Total
from srl.algorithms.bounded_actor import BoundedActor, expect_bounded
from srl.algorithms.critics import ActionCritics, expect_no_memory, step_key
from srl.algorithms.distributions import Gaussian
from srl.algorithms.gradient_descent import (
    Descent,
    annealed_rate,
    clipped,
    descend,
    gradient_sums,
)
from srl.algorithms.minibatches import Batch, Minibatches, fitting_minibatches
from srl.algorithms.normalization import Statistics
from srl.algorithms.returns import generalized_advantages, valid_rows, zero_unless
from srl.algorithms.sac import SquashedGaussian, squashed
from srl.algorithms.value_forms import HLGauss, expect_range_fits, range_remarks, value_range
from srl.core.lazy import jax, jnp, optax
from srl.core.schedule import Adjustable
from srl.core.settings import AtLeastOne, Range, ZeroToOne
from srl.core.types import Array, Metrics, Policy, Tree, Unroll
from srl.networks import MLP, AutoNetwork, Network

_MOST_LOG_STD = 5.0


@dataclass(frozen=True)
class REPPO(Algorithm):
    """The settings of REPPO.

    The defaults are those of the paper's code (config/reppo.yaml), but for sizes and the step size:
    its batches have 32,768 steps or more, and its networks 512 units.
    """

    unroll_length: Annotated[int, Range(1, 2**31 - 1)] = 32
    """Steps of each unroll, all with one version of the policy."""
    discount: ZeroToOne = 0.99
    """Weight of a reward one step later."""
    network: Network = field(
        default_factory=lambda: AutoNetwork(MLP(width=128, activation="silu"), layer_norm=True)
    )
    """Network of the actor and of the critic; the observation decides the default."""
    normalize_observations: bool = True
    """Standardise observations by running statistics."""
    epochs: AtLeastOne = 8
    """Passes of learning through each batch."""
    minibatches: Annotated[int, Range(0)] = 0
    """The number of parts of a batch, each for one gradient step. They divide the steps of each
    slot as far as possible, and then the slots. 0 chooses up to 32, of 128 steps or more each."""
    learning_rate: Annotated[Adjustable, Range(0.0)] = 1e-3
    """The step size of Adam; 3e-4 in the paper, for larger batches."""
    anneal: bool = False
    """True if the learning rate falls linearly to 0 over a run of known length."""
    max_grad_norm: Annotated[Adjustable, Range(0.0)] = 0.5
    """The largest norm of the actor's and of the critic's gradient; longer ones are scaled to
    it."""
    td_lambda: ZeroToOne = 0.95
    """Lambda of the returns: 0 gives one-step targets, 1 Monte Carlo ones with bootstrap."""
    atoms: Annotated[int, Range(2)] = 151
    """Atoms of the critic's distribution, which learns returns by HL-Gauss."""
    value_range: tuple[float, float] | None = None
    """The returns of the first and the last atom; returns beyond are clipped. By default those of
    rewards from -1 to 1: reward_scale / (1 - discount) either way."""
    temperature: Annotated[float, Range(1e-9)] = 0.01
    """The first weight of the entropy, which is learned."""
    target_entropy: Annotated[Adjustable, Range(-100.0, 100.0)] = -0.5
    """The target of the entropy, in nats for each number of an action."""
    kl_bound: Annotated[Adjustable, Range(0.0)] = 0.1
    """The largest KL divergence of an action's distribution from that before the update."""
    kl_cost: Annotated[float, Range(1e-9)] = 0.01
    """The first weight of divergences beyond the bound, which is learned."""

    values_see_more: ClassVar[bool] = True

    def validate(self) -> None:
        """Raises UserError where settings are out of their limits or do not fit each other."""
        super().validate()
        expect_no_memory(self)
        expect_range_fits(self)

    def settled(self, num_envs: int = 64) -> Self:
        """Gives the settings with the number of minibatches, where that is 0."""
        return replace(
            self, minibatches=self.minibatches or fitting_minibatches(self, num_envs, 128)
        )

    def remarks(self, report: Mapping[str, Any]) -> list[str]:
        """Tells that returns often lie beyond the atoms."""
        return range_remarks(self, report)

    @property
    def instance(self) -> type[REPPOInstance]:
        """The functions of REPPO."""
        return REPPOInstance


class REPPOState(NamedTuple):
    """The state of REPPO's learning; see `State`."""

    params: dict[str, Tree]  # "critic", "actor": {"network", "log_temperature", "log_kl_cost"}
    optimizer: dict[str, Tree]  # an Adam for each of the two
    key: Array
    n: Array
    observations: dict[str, Statistics]


class Samples(NamedTuple):
    """Steps to learn from, [T, B, ...]."""

    observation: Tree
    action: Array
    target: Array  # of the critic
    mean: Array  # of the policy before the update, [T, B, numbers]
    log_std: Array  # of it, [T, B, numbers]
    key: Array  # the data of the step's random key
    valid: Array  # bool


class GaussianActor(BoundedActor):
    """An actor that gives means and deviations of numbers before the hyperbolic tangent."""

    def distribution(
        self, policy: Policy, observation: Tree, memory: Tree, slot: Array
    ) -> tuple[SquashedGaussian, Tree]:
        """Gives the distribution of actions."""
        mean, log_std = self.gaussian(policy.params["actor"], policy.normalizer, observation)
        mask = self.shaped_mask(observation)
        return SquashedGaussian(self.shaped(mean), self.shaped(log_std), mask), memory

    def gaussian(self, params: Tree, statistics: Any, observation: Tree) -> tuple[Array, Array]:
        """Gives the mean and the logarithm of the deviation, [..., numbers] each.

        Deviations begin near 1, and stay within exp(-5) and exp(5).
        """
        mean, log_std = jnp.split(self.outputs(params, statistics, observation), 2, axis=-1)
        return mean, _MOST_LOG_STD * jnp.tanh(log_std / _MOST_LOG_STD)


@dataclass(frozen=True)
class REPPOInstance(Instance):
    """REPPO for one trained policy."""

    config: REPPO

    def __post_init__(self) -> None:
        """Raises UserError for actions that are not bounded numbers."""
        expect_bounded(self.config, self.specs)

    @cached_property
    def actor(self) -> GaussianActor:
        """The actor."""
        return GaussianActor(self.config.network, self.specs, self.normalizer, 2)

    @cached_property
    def critic(self) -> ActionCritics:
        """The critic, an ensemble of one."""
        inputs = self.config.network, self.specs, self.normalizer
        return ActionCritics(*inputs, number=1, subset=1, form=self.form)

    @property
    def form(self) -> HLGauss:
        """The form of the critic's values."""
        return HLGauss(self.config.atoms, value_range(self.config))

    @property
    def descents(self) -> dict[str, Descent]:
        """Adam with the gradient's norm bounded, for the critic and for all of the actor."""
        adam = clipped(self.config.max_grad_norm, optax.scale_by_adam())
        return {"critic": adam, "actor": adam}

    @property
    def division(self) -> Minibatches:
        """The division of batches."""
        return Minibatches(self.config.epochs, self.config.minibatches, chunk=None)

    def init(self, key: Array) -> REPPOState:
        """Draws parameters; nothing is normalised yet."""
        actor_key, critic_key, learning_key = jax.random.split(key, 3)
        actor = {
            "network": self.actor.init(actor_key),
            "log_temperature": jnp.log(jnp.float32(self.config.temperature)),
            "log_kl_cost": jnp.log(jnp.float32(self.config.kl_cost)),
        }
        params = {"critic": self.critic.init(critic_key), "actor": actor}
        return REPPOState(
            params=params,
            optimizer={name: self.descents[name].init(part) for name, part in params.items()},
            key=jax.random.key_data(learning_key),
            n=jnp.zeros((), jnp.int32),
            observations=self.normalizer.init(),
        )

    def policy(self, state: REPPOState) -> Policy:
        """Gives the actor's parameters and the statistics of observations."""
        statistics = self.normalizer.policy_statistics(state.observations)
        return Policy({"actor": state.params["actor"]["network"]}, statistics)

    def prepare(
        self, state: REPPOState, replay: Tree, unroll: Unroll, total: Total
    ) -> tuple[REPPOState, Tree, Batch]:
        """Computes the targets, lambda returns in which entropy counts as reward."""
        actor, statistics = state.params["actor"], state.observations
        valid = valid_rows(unroll.terminated, unroll.truncated)
        # A random key for each row of each slot, whatever slots are here.
        rows, first = jnp.arange(len(valid) + 1), step_key(state, self.gradient_steps)
        keys = jax.vmap(jax.vmap(jax.random.fold_in, (0, None)), (None, 0))(
            jax.vmap(jax.random.fold_in, (None, 0))(first, unroll.slot), rows
        )
        mean, log_std = self.actor.gaussian(actor["network"], statistics, unroll.observation)
        flat = lambda x: x.reshape(-1, *x.shape[2:])  # noqa: E731
        noise = self.noise(flat(keys), self.gradient_steps)
        observation = jax.tree.map(flat, unroll.observation)
        mask = self.actor.mask(observation)
        action, log_prob = squashed(flat(mean), flat(log_std), noise, mask)
        values = self.critic.values(state.params["critic"], statistics, observation, action)[0]
        log_prob, values = (x.reshape(unroll.reward.shape) for x in (log_prob, values))

        bonus = -self.config.discount * jnp.exp(actor["log_temperature"]) * log_prob
        reward = unroll.reward + jnp.where(unroll.terminated, 0.0, bonus)
        ends = unroll.terminated, unroll.truncated
        discounts = self.config.discount, self.config.td_lambda
        # The lambda return is the value of a row and the lambda-weighted errors from there on.
        target = values[:-1] + generalized_advantages(reward, *ends, values, *discounts)
        samples = Samples(
            observation=jax.tree.map(lambda x: x[:-1], unroll.observation),
            action=zero_unless(valid, unroll.action),
            target=zero_unless(valid, target),
            mean=mean[:-1],
            log_std=log_std[:-1],
            key=jax.random.key_data(keys)[:-1],
            valid=valid,
        )
        seen = self.normalizer.seen(statistics, unroll, total)
        return state, replay, Batch(samples, unroll.memory, unroll.slot, seen)

    def noise(self, keys: Array, step: Any) -> Array:
        """Draws normal numbers of a gradient step by the keys of rows: [S] to [S, numbers]."""
        draw = lambda key: jax.random.normal(jax.random.fold_in(key, step), (self.actor.size,))  # noqa: E731
        return jax.vmap(draw)(keys)

    def critic_loss(
        self, critic: Tree, state: REPPOState, samples: Samples
    ) -> tuple[Array, Metrics]:
        """The cross-entropies to the targets' probabilities, [S]."""
        inputs = state.observations, samples.observation, samples.action
        outputs = self.critic.outputs(critic, *inputs)[0]
        error, loss = self.form.loss(outputs, self.form.probabilities(samples.target))
        value = self.form.value(outputs)
        clipped_targets = self.form.beyond(samples.target)
        return loss, {"critic_loss": error, "q_value": value, **clipped_targets}

    def actor_loss(
        self, actor: Tree, state: REPPOState, samples: Samples, noise: Array
    ) -> tuple[Array, Metrics]:
        """The value and the entropy, negative, or the divergence where that is too large.

        The gradients of the two weights are the entropy's and the divergence's differences to their
        bounds, [S].
        """
        config, statistics, fixed = self.config, state.observations, jax.lax.stop_gradient
        mean, log_std = self.actor.gaussian(actor["network"], statistics, samples.observation)
        critic, observation = state.params["critic"], samples.observation
        mask = self.actor.mask(observation)
        action, log_prob = squashed(mean, log_std, noise, mask)
        value = self.critic.values(critic, statistics, observation, action)[0]
        # Of normal distributions: those of their hyperbolic tangents are the same.
        before = {"mean": samples.mean, "log_std": samples.log_std}
        kl = Gaussian(mean, log_std, 1, mask).divergence(before)
        within = kl < config.kl_bound
        temperature, cost = jnp.exp(actor["log_temperature"]), jnp.exp(actor["log_kl_cost"])
        loss = jnp.where(within, fixed(temperature) * log_prob - value, fixed(cost) * kl)
        surplus = -log_prob - config.target_entropy * self.actor.count(observation)
        weights = temperature * fixed(surplus) + cost * fixed(config.kl_bound - kl)
        return loss + weights, {
            "actor_loss": loss,
            "entropy": -log_prob,
            "kl": kl,
            "beyond_kl_bound": ~within,
            "temperature": jnp.broadcast_to(temperature, kl.shape),
            "kl_cost": jnp.broadcast_to(cost, kl.shape),
        }

    def gradient_step(
        self, state: REPPOState, batch: Batch, step: Array, total: Total
    ) -> tuple[REPPOState, Metrics]:
        """Takes a step of Adam for each network on one minibatch."""
        samples, _ = self.division.draw(batch, state, step)
        noise, params = self.noise(jax.random.wrap_key_data(samples.key), step), state.params
        loss = lambda x: self.critic_loss(x, state, samples)  # noqa: E731
        critic, _ = gradient_sums(loss, params["critic"], samples.valid)
        loss = lambda x: self.actor_loss(x, state, samples, noise)  # noqa: E731
        actor, _ = gradient_sums(loss, params["actor"], samples.valid)
        sums = total({"critic": critic, "actor": actor})
        rates = dict.fromkeys(sums, annealed_rate(self.config, state.n, self.updates))
        moved, optimizer, metrics = descend(self.descents, state, sums, rates)
        return state._replace(params=moved, optimizer=optimizer), metrics

    def finish(
        self, state: REPPOState, replay: Tree, batch: Batch, metrics: Metrics
    ) -> tuple[REPPOState, Tree, Metrics]:
        """Takes in the statistics of observations, and counts the update."""
        learned = state._replace(n=state.n + 1, observations=batch.results)
        return learned, replay, jax.tree.map(jnp.mean, metrics)
