"""Proximal policy optimisation (Schulman et al., 2017, https://arxiv.org/abs/1707.06347).

One batch is T steps of B slots. Its values and advantages are computed once, under the parameters
it arrives at; then every epoch goes through it in minibatches. A minibatch takes one step of every
`minibatches` neighbouring ones from each slot, drawn anew in each epoch: which one depends on the
random key, the update, the epoch, the slot and the step alone, however slots are spread.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, NamedTuple

from srl.algorithms.algorithm import Algorithm, Instance, State
from srl.algorithms.distributions import (
    ActionSpace,
    Distribution,
    action_distribution,
    action_mask,
)
from srl.algorithms.normalization import (
    ObservationNormalizer,
    merge,
    no_statistics,
    standardize,
    unstandardize,
)
from srl.algorithms.returns import generalized_advantages, valid_rows
from srl.errors import UserError
from srl.lazy import jax, jnp, optax
from srl.networks import AutoNetwork, Network, PolicyAndValue
from srl.types import Array, Decision, Metrics, Policy, Specs, Tree, Unroll


@dataclass(frozen=True)
class PPO(Algorithm):
    """Settings of proximal policy optimisation."""

    network: Network = field(default_factory=AutoNetwork)
    """Network of the policy and of the value; by default chosen by what is observed."""
    epochs: int = 4
    """How often each batch is gone through."""
    minibatches: int = 4
    """Parts of a batch, each of which makes one gradient step; divides the unroll length."""
    learning_rate: float = 1e-3
    """Step size of Adam."""
    anneal: bool = True
    """Let the learning rate fall linearly to 0 over the run, where its length is known."""
    adam_epsilon: float = 1e-5
    """Added to Adam's denominator."""
    max_grad_norm: float = 0.5
    """Longer gradients are shortened to this norm."""
    gae_lambda: float = 0.95
    """Between 0, one-step advantages, and 1, Monte Carlo ones."""
    clip: float = 0.2
    """How far the probability ratio may leave 1 before it earns nothing more."""
    value_cost: float = 0.5
    """Weight of the value loss."""
    entropy_cost: float = 0.01
    """Weight of the entropy, which is rewarded."""
    normalize_observations: bool = True
    """Standardise observations by running statistics."""
    normalize_values: bool = True
    """Let the value network predict returns standardised by running statistics."""
    normalize_advantages: bool = True
    """Standardise the advantages of each batch."""

    limits: ClassVar[Mapping[str, tuple[float, ...]]] = {
        **Algorithm.limits,
        "epochs": (1,),
        "minibatches": (1,),
        "learning_rate": (0.0,),
        "adam_epsilon": (0.0,),
        "max_grad_norm": (0.0,),
        "gae_lambda": (0.0, 1.0),
        "clip": (0.0,),
        "value_cost": (0.0,),
        "entropy_cost": (0.0,),
    }

    def bind(self, specs: Specs, updates: int | None = None) -> PPOInstance:
        """Gives the functions for one trained policy; see the base class."""
        self.validate()
        return PPOInstance(self, specs, updates)

    def validate(self) -> None:
        """Raises UserError where settings are out of their limits or do not fit each other."""
        super().validate()
        if self.unroll_length % self.minibatches:
            raise UserError(
                f"PPO with unroll_length={self.unroll_length}, minibatches={self.minibatches}: "
                "minibatches must divide the unroll length; change --algorithm.minibatches"
            )


class Batch(NamedTuple):
    """Samples to learn from, [T, B, ...]; numbers at rows that are not valid are 0."""

    observation: Tree
    action: Array
    log_prob: Array  # of the policy that acted
    advantage: Array
    target: Array  # of the value network, in its own scale
    valid: Array  # bool


@dataclass(frozen=True)
class PPOInstance(Instance):
    """PPO for one trained policy."""

    config: PPO
    specs: Specs
    updates: int | None = None

    @cached_property
    def actions(self) -> ActionSpace:
        """The distributions over actions."""
        return action_distribution(self.specs.action)

    @cached_property
    def network(self) -> PolicyAndValue:
        """The network's functions."""
        return self.config.network.build(self.specs.observation, self.actions.num_outputs)

    @cached_property
    def normalizer(self) -> ObservationNormalizer:
        """How observations become inputs."""
        running = self.config.normalize_observations
        return ObservationNormalizer(self.specs.observation, running=running)

    def init(self, key: Array) -> State:
        """Draws parameters; nothing is normalised yet."""
        network_key, minibatch_key = jax.random.split(key)
        params = self.network.init(network_key)
        params["policy"] = {"network": params["policy"], "actions": self.actions.init()}
        return State(
            params=params,
            optimizer=self._optimizer().init(params),
            observations=self.normalizer.init(),
            values=no_statistics() if self.config.normalize_values else (),
            key=jax.random.key_data(minibatch_key),
            n=jnp.zeros((), jnp.int32),
        )

    # Acting.

    def policy(self, state: State) -> Policy:
        """Gives the policy's parameters and the statistics of observations.

        These are the state's own arrays: copy them before the state is donated.
        """
        return Policy(state.params["policy"], state.observations)

    def initial_memory(self, batch: int) -> Tree:
        """Gives no memory."""
        return ()

    def act(self, policy: Policy, observation: Tree, memory: Tree, keys: Array) -> Decision:
        """Draws an action for each slot with its own random key: keys [B]."""
        distribution, memory = self._distribution(policy, observation, memory)
        action = distribution.sample(keys)
        return Decision(action, distribution.log_prob(action), memory)

    def act_greedy(self, policy: Policy, observation: Tree, memory: Tree) -> Decision:
        """Takes the most probable action for each slot."""
        distribution, memory = self._distribution(policy, observation, memory)
        action = distribution.mode()
        return Decision(action, distribution.log_prob(action), memory)

    def env_action(self, action: Array) -> Array:
        """Gives what the simulator takes for the actions of a decision; needs no JAX."""
        return self.actions.to_env(action)

    def _distribution(
        self, policy: Policy, observation: Tree, memory: Tree
    ) -> tuple[Distribution, Tree]:
        inputs = self.normalizer.normalize(policy.normalizer, observation)
        outputs, memory = self.network.policy(policy.params["network"], inputs, memory)
        mask = action_mask(observation)
        return self.actions(policy.params["actions"], outputs, mask), memory

    # Learning.

    def learn(self, state: State, unroll: Unroll) -> tuple[State, Metrics]:
        """Goes through one batch in epochs of minibatches, a gradient step for each of these."""
        state, batch, batch_metrics = self.prepare(state, unroll)

        def step(state: State, minibatch: Batch) -> tuple[State, Metrics]:
            gradients, metrics = self.gradient(state, minibatch)
            return self.update(state, gradients), metrics

        def epoch(state: State, number: Array) -> tuple[State, Metrics]:
            return jax.lax.scan(step, state, self.shuffle(state, batch, number))

        state, metrics = jax.lax.scan(epoch, state, jnp.arange(self.config.epochs))
        means = {name: jnp.mean(value) for name, value in metrics.items()}
        rate = {"learning_rate": self._learning_rate(state)}
        return self.finish(state, unroll), {**means, **batch_metrics, **rate}

    def prepare(self, state: State, unroll: Unroll) -> tuple[State, Batch, Metrics]:
        """Computes advantages and value targets, and adds these to the statistics of values."""
        config = self.config
        valid = valid_rows(unroll.terminated, unroll.truncated)
        inputs = self.normalizer.normalize(state.observations, unroll.observation)
        value = self.network.value(state.params["value"], inputs)
        if config.normalize_values:
            value = unstandardize(state.values, value)
        advantage = generalized_advantages(
            unroll.reward,
            unroll.terminated,
            unroll.truncated,
            value,
            config.discount,
            config.gae_lambda,
        )
        target = advantage + value[:-1]
        metrics = {"explained_variance": _explained_variance(value[:-1], target, valid)}
        if config.normalize_values:
            state = state._replace(values=merge(state.values, target, valid))
            target = standardize(state.values, target)
        if config.normalize_advantages:
            mean, variance = _moments(advantage, valid)
            advantage = (advantage - mean) / (jnp.sqrt(variance) + 1e-8)
        batch = Batch(
            observation=jax.tree.map(lambda x: x[:-1], unroll.observation),
            action=_zero_unless(valid, unroll.action),
            log_prob=_zero_unless(valid, unroll.log_prob),
            advantage=_zero_unless(valid, advantage),
            target=_zero_unless(valid, target),
            valid=valid,
        )
        return state, batch, metrics

    def shuffle(self, state: State, batch: Batch, epoch: Array) -> Batch:
        """Divides a batch [T, B, ...] into minibatches [minibatches, T B / minibatches, ...].

        Every `minibatches` neighbouring steps of a slot form a block, and each goes to another
        minibatch: the block's order is rotated by a random number.
        """
        parts = self.config.minibatches
        steps, slots = batch.valid.shape
        key = jax.random.wrap_key_data(state.key)
        key = jax.random.fold_in(key, state.n * self.config.epochs + epoch)
        # JAX counts random numbers by their place, so a slot's do not depend on how many follow.
        bits = jax.random.bits(key, (slots, steps // parts))
        rotations = (bits % parts).astype(jnp.int32).T
        place = jnp.arange(parts)[:, None, None]
        step = (place + rotations) % parts + parts * jnp.arange(steps // parts)[:, None]
        row = (step * slots + jnp.arange(slots)).reshape(parts, -1)
        return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[row], batch)

    def loss(self, params: Tree, state: State, batch: Batch) -> tuple[Array, Metrics]:
        """Clipped surrogate, value and entropy terms (Schulman et al., 2017, eq. 9)."""
        config = self.config
        policy = Policy(params["policy"], state.observations)
        distribution, _ = self._distribution(policy, batch.observation, ())
        log_ratio = jnp.where(batch.valid, distribution.log_prob(batch.action) - batch.log_prob, 0)
        ratio = jnp.exp(log_ratio)
        clipped = jnp.clip(ratio, 1 - config.clip, 1 + config.clip)
        surrogate = jnp.minimum(ratio * batch.advantage, clipped * batch.advantage)
        policy_loss = -_mean(surrogate, batch.valid)

        inputs = self.normalizer.normalize(state.observations, batch.observation)
        value = self.network.value(params["value"], inputs)
        value_loss = _mean(jnp.square(value - batch.target), batch.valid)

        entropy = _mean(distribution.entropy(), batch.valid)
        total = policy_loss + config.value_cost * value_loss - config.entropy_cost * entropy
        return total, {
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": entropy,
            "approx_kl": _mean(ratio - 1 - log_ratio, batch.valid),
            "clipfrac": _mean(jnp.abs(ratio - 1) > config.clip, batch.valid),
        }

    def gradient(self, state: State, batch: Batch) -> tuple[Tree, Metrics]:
        """Gives the gradient of the loss of a minibatch."""
        gradients, metrics = jax.grad(self.loss, has_aux=True)(state.params, state, batch)
        return gradients, {**metrics, "grad_norm": optax.tree.norm(gradients)}

    def update(self, state: State, gradients: Tree) -> State:
        """Takes one step of Adam, with the gradient's norm bounded."""
        steps, optimizer = self._optimizer().update(gradients, state.optimizer)
        rate = self._learning_rate(state)
        params = jax.tree.map(lambda p, step: p - rate * step, state.params, steps)
        return state._replace(params=params, optimizer=optimizer)

    def finish(self, state: State, unroll: Unroll) -> State:
        """Adds the batch to the statistics of observations and counts the update.

        The statistics that acted serve the whole of `learn`: the ratio starts at 1.
        """
        valid = valid_rows(unroll.terminated, unroll.truncated)
        observation = jax.tree.map(lambda x: x[:-1], unroll.observation)
        observations = self.normalizer.update(state.observations, observation, valid)
        return state._replace(observations=observations, n=state.n + 1)

    def _optimizer(self) -> optax.GradientTransformation:
        steps = optax.chain(
            optax.clip_by_global_norm(self.config.max_grad_norm),
            optax.scale_by_adam(eps=self.config.adam_epsilon),
        )
        return optax.flatten(steps)  # one vector compiles, and runs, faster than many arrays

    def _learning_rate(self, state: State) -> Array:
        rate = jnp.asarray(self.config.learning_rate)
        if self.config.anneal and self.updates:
            rate = rate * jnp.maximum(1 - state.n / self.updates, 0.0)
        return rate


def _mean(x: Array, valid: Array) -> Array:
    """Mean over the valid rows; 0 where there are none."""
    return jnp.sum(jnp.where(valid, x, 0.0)) / jnp.maximum(jnp.sum(valid), 1)


def _zero_unless(valid: Array, x: Array) -> Array:
    valid = valid.reshape(*valid.shape, *[1] * (x.ndim - valid.ndim))
    return jnp.where(valid, x, jnp.zeros_like(x))


def _moments(x: Array, valid: Array) -> tuple[Array, Array]:
    """Mean and variance over the valid rows."""
    mean = _mean(x, valid)
    return mean, _mean(jnp.square(x - mean), valid)


def _explained_variance(value: Array, target: Array, valid: Array) -> Array:
    """Share of the targets' variance that the values explain; 1 is perfect."""
    _, variance = _moments(target, valid)
    _, residual = _moments(target - value, valid)
    return 1 - residual / jnp.maximum(variance, 1e-8)
