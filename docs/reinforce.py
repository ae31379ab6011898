"""REINFORCE with a baseline (Williams, 1992): one gradient step along the returns of each batch.

An algorithm outside srl, which docs/write_an_algorithm.md explains.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, NamedTuple

from srl.algorithms import ActorCritic, Algorithm, Instance
from srl.algorithms.actor_critic import log_probs
from srl.algorithms.gradient_descent import Descent, gradient_sums
from srl.algorithms.returns import generalized_advantages, valid_rows
from srl.core.lazy import jax, jnp, optax
from srl.core.settings import Range
from srl.core.types import Policy
from srl.networks import MLP, AutoNetwork, Network


@dataclass(frozen=True)
class Reinforce(Algorithm):
    """Settings; `--algorithm.learning-rate` and so on override them."""

    learning_rate: Annotated[float, Range(0.0)] = 1e-2
    """Step size of Adam."""
    network: Network = field(default_factory=lambda: AutoNetwork(MLP(activation="tanh")))
    """Networks of the policy and of the baseline; tanh units learn large returns sooner."""

    @property
    def instance(self):
        """The functions of REINFORCE."""
        return ReinforceInstance


class ReinforceState(NamedTuple):
    """All that learning changes."""

    params: Any
    optimizer: Any
    key: Any  # to draw with
    n: Any  # calls of `learn`
    observations: Any  # their statistics


@dataclass(frozen=True)
class ReinforceInstance(Instance):
    """REINFORCE for one trained policy."""

    config: Reinforce

    @property
    def adam(self):
        """Adam; optax loads here, and not in workers that only step simulators."""
        return Descent(optax.scale_by_adam())

    @cached_property
    def actor(self):
        """The policy and the baseline: two networks, with which it also acts."""
        return ActorCritic(self.config.network, self.specs, self.normalizer)

    def init(self, key):
        """Draws parameters."""
        params = self.actor.init(key)
        zero, observations = jnp.zeros((), jnp.int32), self.normalizer.init()
        key = jax.random.key_data(key)
        return ReinforceState(params, self.adam.init(params), key, zero, observations)

    def policy(self, state):
        """Gives what acting needs: all that leaves the learner."""
        return Policy(state.params["policy"], state.observations)

    def loss(self, params, state, unroll):
        """Gives the losses of the policy and of the baseline, of each step [T, B]."""
        ended = unroll.terminated | unroll.truncated
        memory = {
            "policy": jax.tree.map(lambda x: x[0], unroll.memory),
            "value": self.actor.value_memory(unroll),
        }
        inputs = state.observations, unroll.observation, memory, ended
        policy, value = self.actor.distributions_and_values(params, *inputs)
        baseline = jax.lax.stop_gradient(value)
        rows = unroll.reward, unroll.terminated, unroll.truncated, baseline
        advantage = generalized_advantages(*rows, self.config.discount, gae_lambda=1.0)
        policy_loss = -advantage * log_probs(policy, unroll.action, ~ended[:-1])
        value_loss = jnp.square(value[:-1] - baseline[:-1] - advantage)
        metrics = {"policy_loss": policy_loss, "value_loss": value_loss}
        return policy_loss + 0.5 * value_loss, metrics

    def prepare(self, state, replay, unroll, total):
        """Adds the observations to the statistics, which the next update uses."""
        observations = self.normalizer.seen(state.observations, unroll, total)
        return state, replay, (unroll, observations)

    def gradient_step(self, state, batch, step, total):
        """Takes a step of Adam along the mean gradient of all replicas."""
        unroll, _ = batch
        valid = valid_rows(unroll.terminated, unroll.truncated)
        sums, _ = gradient_sums(lambda x: self.loss(x, state, unroll), state.params, valid)
        gradient, metrics = total(sums).mean()
        rate = self.config.learning_rate
        params, optimizer = self.adam.step(state.params, state.optimizer, gradient, rate)
        return state._replace(params=params, optimizer=optimizer), metrics

    def finish(self, state, replay, batch, metrics):
        """Keeps the statistics, and counts the update."""
        return super().finish(state._replace(observations=batch[1]), replay, batch, metrics)
