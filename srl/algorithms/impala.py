"""IMPALA: importance-weighted actor-learners (Espeholt et al., 2018, arXiv:1802.01561).

Each batch of unrolls is learned from once, by one gradient step. V-trace corrects the targets of
the value and the advantages of the policy for actions that an older policy took.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, ClassVar, NamedTuple

from srl.algorithms.actor_critic import ActorCritic, log_probs, with_last_row
from srl.algorithms.algorithm import Total
from srl.algorithms.carried_memory import memory_after
from srl.algorithms.gradient_descent import Descent, annealed_rate, clipped, gradient_sums
from srl.algorithms.imitation import Imitating, ImitatingInstance
from srl.algorithms.normalization import Statistics
from srl.algorithms.returns import valid_rows, vtrace
from srl.core.lazy import jax, jnp, optax
from srl.core.schedule import Adjustable
from srl.core.settings import NotNegative, Range, ZeroToOne
from srl.core.types import Array, Metrics, Policy, Tree, Unroll
from srl.networks import MLP, AutoNetwork, Network


@dataclass(frozen=True)
class IMPALA(Imitating):
    """The settings of IMPALA.

    Unroll length, importance weights and entropy cost are of the size of the paper's (appendix D).
    The paper sums losses over a batch and takes RMSProp; here they are means, for Adam.
    """

    unroll_length: Annotated[int, Range(1, 2**31 - 1)] = 20
    """Steps of each unroll, with one version of the policy or, with stale data, with several."""
    discount: ZeroToOne = 0.99
    """Weight of a reward one step later."""
    network: Network = field(default_factory=lambda: AutoNetwork(MLP(activation="tanh")))
    """Network of the policy and of the value; the observation decides the default. Values that are
    not standardised are learned sooner by tanh units."""
    normalize_observations: bool = True
    """Standardise observations by running statistics."""
    initial_log_std: Annotated[float, Range(-10.0, 10.0)] = -0.5
    """The first logarithm of the standard deviation of Box actions, scaled to bounds of -1 and 1.
    With 0, a third of the first actions would be out of bounds."""
    learning_rate: Annotated[Adjustable, Range(0.0)] = 3e-3
    """The step size of Adam, which replaces the paper's RMSProp."""
    anneal: bool = True
    """True if the learning rate falls linearly to 0 over a run of known length."""
    max_grad_norm: Annotated[Adjustable, Range(0.0)] = 40.0
    """The largest norm of the mean loss's gradient, rarely reached at 40. If it is small, large
    value errors hold the policy back, and returns fall again."""
    clip_rho: NotNegative = 1.0
    """Rho-bar: the largest importance weight of the policy's and of the values' errors."""
    clip_c: NotNegative = 1.0
    """C-bar: the largest factor that an importance weight has on the errors after it."""
    vtrace_lambda: ZeroToOne = 1.0
    """Lambda: 1 is the original V-trace, 0 the one-step temporal difference."""
    value_cost: Annotated[Adjustable, Range(0.0)] = 0.5
    """The weight of the value's squared error; the paper's is 0.5 of half the squared error."""
    entropy_cost: Annotated[Adjustable, Range(0.0)] = 0.01
    """The weight of the reward for entropy."""

    learns_state_value: ClassVar[bool] = True
    values_see_more: ClassVar[bool] = True

    @property
    def instance(self) -> type[IMPALAInstance]:
        """The functions of IMPALA."""
        return IMPALAInstance


class IMPALAState(NamedTuple):
    """The state of IMPALA's learning; see `State`."""

    params: Tree
    optimizer: Tree
    key: Array
    n: Array
    observations: dict[str, Statistics]


class Batch(NamedTuple):
    """An unroll, and the statistics of observations with it."""

    unroll: Unroll
    value_memory: Tree  # [B, ...], before the first row
    observations: dict[str, Statistics]


@dataclass(frozen=True)
class IMPALAInstance(ImitatingInstance):
    """IMPALA for one trained policy."""

    config: IMPALA

    @cached_property
    def actor(self) -> ActorCritic:
        """The policy and the value network."""
        config = self.config
        return ActorCritic(config.network, self.specs, self.normalizer, config.initial_log_std)

    @property
    def adam(self) -> Descent:
        """Adam with the gradient's norm bounded."""
        return clipped(self.config.max_grad_norm, optax.scale_by_adam(eps=1e-5))

    def init(self, key: Array) -> IMPALAState:
        """Draws parameters; nothing is normalised yet."""
        params_key, learning_key = jax.random.split(key)
        params = self.actor.init(params_key)
        return IMPALAState(
            params=params,
            optimizer=self.adam.init(params),
            key=jax.random.key_data(learning_key),
            n=jnp.zeros((), jnp.int32),
            observations=self.normalizer.init(),
        )

    def policy(self, state: IMPALAState) -> Policy:
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
        self, state: IMPALAState, replay: Tree, unroll: Unroll, total: Total
    ) -> tuple[IMPALAState, Tree, Batch]:
        """Adds the unroll to the statistics of observations, and to the value's memory."""
        observations = self.normalizer.seen(state.observations, unroll, total)
        memory = self.actor.value_memory(unroll, replay)
        if replay:
            inputs = unroll.observation, memory, unroll.terminated | unroll.truncated
            _, memories = self.actor.values(state.params, state.observations, *inputs)
            replay = memory_after(unroll, memories, replay)
        return state, replay, Batch(unroll, memory, observations)

    def loss(
        self, params: Tree, state: IMPALAState, unroll: Unroll, value_memory: Tree
    ) -> tuple[Array, Metrics]:
        """Policy gradient, value and entropy terms (Espeholt et al., 2018, section 4.2), [T, B].

        Args:
            params: Of the policy and of the value.
            state: Its statistics are used.
            unroll: Rows [T + 1, B, ...].
            value_memory: [B, ...], that values are computed with from the first row on.
        """
        config = self.config
        valid = valid_rows(unroll.terminated, unroll.truncated)
        ended = jnp.logical_or(unroll.terminated, unroll.truncated)
        memory = {
            "policy": jax.tree.map(lambda x: x[0], unroll.memory),
            "value": value_memory,
        }
        inputs = unroll.observation, memory, ended
        policy, value = self.actor.distributions_and_values(params, state.observations, *inputs)
        log_prob = log_probs(policy, unroll.action, valid)
        log_ratio = jax.lax.stop_gradient(jnp.where(valid, log_prob - unroll.log_prob, 0.0))

        rows = unroll.reward, unroll.terminated, unroll.truncated, jax.lax.stop_gradient(value)
        lambda_and_clips = config.vtrace_lambda, config.clip_rho, config.clip_c
        advantage, correction = vtrace(*rows, log_ratio, config.discount, *lambda_and_clips)
        rho = jnp.minimum(jnp.exp(log_ratio), config.clip_rho)
        policy_loss = -rho * advantage * log_prob
        value_target = jax.lax.stop_gradient(value[:-1]) + correction
        value_loss = jnp.square(value[:-1] - value_target)
        entropy = policy.entropy()[:-1]

        from_rewards = policy_loss - config.entropy_cost * entropy
        divergence = self.divergence(policy, with_last_row(unroll.advice, valid))
        imitating, metrics = self.policy_loss(state.n, from_rewards, divergence[:-1])
        return imitating + config.value_cost * value_loss, {
            **metrics,
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": entropy,
            "importance": rho,
        }

    def gradient_step(
        self, state: IMPALAState, batch: Batch, step: Array, total: Total
    ) -> tuple[IMPALAState, Metrics]:
        """Takes a step of Adam on the whole batch."""
        valid = valid_rows(batch.unroll.terminated, batch.unroll.truncated)
        given = state, batch.unroll, batch.value_memory
        loss = lambda params: self.loss(params, *given)  # noqa: E731
        sums, _ = gradient_sums(loss, state.params, valid)
        gradient, metrics = total(sums).mean()
        rate = annealed_rate(self.config, state.n, self.updates)
        optimizer = self.optimizer_before(state, step, self.adam)
        params, optimizer = self.adam.step(state.params, optimizer, gradient, rate)
        metrics["grad_norm"] = jnp.linalg.norm(gradient)
        params = self.with_policy_frozen(state.n, state.params, params)
        return state._replace(params=params, optimizer=optimizer), metrics

    def finish(
        self, state: IMPALAState, replay: Tree, batch: Batch, metrics: Metrics
    ) -> tuple[IMPALAState, Tree, Metrics]:
        """Takes in the statistics of observations, and counts the update."""
        learned = state._replace(observations=batch.observations)
        return super().finish(learned, replay, batch, metrics)
