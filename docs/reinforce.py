"""REINFORCE with a baseline (Williams, 1992): one gradient step along the returns of each batch.

An algorithm outside srl, which docs/write_an_algorithm.md explains.
"""

from dataclasses import dataclass

from srl.algorithms import ActorCritic, ActorCriticInstance
from srl.algorithms.returns import generalized_advantages, valid_rows
from srl.core.lazy import jax, jnp, optax
from srl.core.types import Policy


@dataclass(frozen=True)
class Reinforce(ActorCritic):
    """Settings; `--algorithm.learning-rate` and so on override them."""

    learning_rate: float = 1e-2
    """Step size of Adam."""

    @property
    def instance(self):
        """The functions of REINFORCE."""
        return ReinforceInstance


@dataclass(frozen=True)
class ReinforceInstance(ActorCriticInstance):
    """REINFORCE for one trained policy."""

    config: Reinforce

    @property
    def optimizer(self):
        """What takes the gradient steps."""
        return optax.adam(self.config.learning_rate)

    def gradient(self, state, batch, round):
        """Gives sums over the slots, to which those of other slots can be added."""
        gradient, metrics = jax.grad(self.loss, has_aux=True)(state.params, state, batch)
        count = jnp.sum(valid_rows(batch.terminated, batch.truncated), dtype=jnp.float32)
        return {"gradient": gradient, "metrics": metrics, "count": count}

    def update(self, state, sums):
        """Takes a step along the mean."""
        mean = jax.tree.map(lambda x: x / jnp.maximum(sums["count"], 1), sums)
        steps, optimizer = self.optimizer.update(mean["gradient"], state.optimizer)
        params = optax.apply_updates(state.params, steps)
        return state._replace(params=params, optimizer=optimizer), mean["metrics"]

    def loss(self, params, state, unroll):
        """Sums the losses of the policy and of the baseline over the steps that count."""
        ended = unroll.terminated | unroll.truncated
        inputs = (state.observations, unroll.observation, self.value_memory(unroll), ended)
        value, _ = self.value(params, *inputs)
        baseline = jax.lax.stop_gradient(value)
        rows = (unroll.reward, unroll.terminated, unroll.truncated, baseline)
        advantage = generalized_advantages(*rows, self.config.discount, gae_lambda=1.0)

        policy = Policy(params["policy"], state.observations)
        observation = jax.tree.map(lambda x: x[:-1], unroll.observation)
        memory = jax.tree.map(lambda x: x[0], unroll.memory)
        distribution = self.distribution(policy, observation, memory, ended[:-1])
        losses = {
            "policy_loss": -advantage * distribution.log_prob(unroll.action),
            "value_loss": jnp.square(value[:-1] - baseline[:-1] - advantage),
        }
        sums = {name: jnp.sum(jnp.where(ended[:-1], 0.0, x)) for name, x in losses.items()}
        return sums["policy_loss"] + 0.5 * sums["value_loss"], sums
