"""Proximal policy optimisation (Schulman et al., 2017, https://arxiv.org/abs/1707.06347).

One batch is T steps of B slots. Its values and advantages are computed once, under the parameters
it arrives at; then every epoch goes through it in minibatches. A policy with memory is learned from
in chunks of `chunk` steps, each from the memory that acting had at its first step.

Where the policies that acted are older than the one that learns, `advantages="vtrace"` corrects
the values, and `objective="decoupled"` (Hilton et al., 2022, https://arxiv.org/abs/2110.00641)
keeps the policy near the one at the start of the update and not near those that acted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

from srl.algorithms.actor_critic import ActorCritic, ActorCriticInstance
from srl.algorithms.minibatches import draw
from srl.algorithms.normalization import (
    Statistics,
    merge,
    moments,
    no_statistics,
    spread,
    standardize,
    unstandardize,
)
from srl.algorithms.returns import generalized_advantages, valid_rows, vtrace
from srl.dataflow.trace import trace
from srl.errors import UserError
from srl.lazy import jax, jnp, optax
from srl.types import Array, Metrics, Policy, Specs, Tree, Unroll


@dataclass(frozen=True)
class PPO(ActorCritic):
    """Settings of proximal policy optimisation."""

    epochs: int = 4
    """How often each batch is gone through."""
    minibatches: int = 4
    """Parts of a batch, each of which makes one gradient step; divides the unroll length."""
    chunk: int = 8
    """Steps that a policy with memory is learned from in sequence; not used without memory."""
    learning_rate: float = 1e-3
    """Step size of Adam."""
    anneal: bool = True
    """Let the learning rate fall linearly to 0 over the run, where its length is known."""
    adam_epsilon: float = 1e-5
    """Added to Adam's denominator."""
    max_grad_norm: float = 0.5
    """Longer gradients are shortened to this norm."""
    weight_decay: float = 0.0
    """Share of the parameters that is added to the gradient, after its norm is bounded."""
    gae_lambda: float = 0.95
    """Between 0, one-step advantages, and 1, Monte Carlo ones."""
    advantages: Literal["gae", "vtrace"] = "gae"
    """vtrace corrects values for policies that acted and are not the present one."""
    objective: Literal["ppo", "decoupled"] = "ppo"
    """What the probability ratio is to: the policy that acted, or the present one (decoupled)."""
    max_weight: float = 10.0
    """Of a sample in the decoupled objective: how much more probable the proximal policy may have
    found its action than the policy that acted did."""
    clip: float = 0.2
    """How far the probability ratio may leave 1 before it earns nothing more."""
    value_cost: float = 0.5
    """Weight of the value loss."""
    entropy_cost: float = 0.01
    """Weight of the entropy, which is rewarded."""
    normalize_values: bool = True
    """Let the value network predict returns standardised by running statistics."""
    normalize_advantages: bool = True
    """Standardise the advantages of each batch."""

    limits: ClassVar[Mapping[str, tuple[float, ...]]] = {
        **ActorCritic.limits,
        "epochs": (1,),
        "minibatches": (1,),
        "chunk": (1,),
        "learning_rate": (0.0,),
        "adam_epsilon": (0.0,),
        "max_grad_norm": (0.0,),
        "weight_decay": (0.0,),
        "gae_lambda": (0.0, 1.0),
        "clip": (0.0,),
        "max_weight": (1.0,),
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
        for name, words in (("advantages", ("gae", "vtrace")), ("objective", ("ppo", "decoupled"))):
            if (given := getattr(self, name)) not in words:
                raise UserError(f"algorithm.{name}={given!r}: expected {' or '.join(words)}")
        remembers = bool(self.network.memory)
        unit = self.minibatches * (self.chunk if remembers else 1)
        for length in (unrolled.length for unrolled in trace(self).unrolls):
            if length % unit == 0:
                continue
            chunks = f", chunk={self.chunk}, and a network with memory" if remembers else ""
            raise UserError(
                f"PPO with unroll_length={length}, minibatches={self.minibatches}"
                f"{chunks}: minibatches{' * chunk' if remembers else ''} must divide the unroll "
                f"length; make --algorithm.unroll-length a multiple of {unit}, or change the others"
            )

    @property
    def corrects(self) -> bool:
        """Whether learning looks at how far the policy is from those that acted."""
        return self.advantages == "vtrace" or self.objective == "decoupled"


class Samples(NamedTuple):
    """Steps to learn from, [T, B, ...]; numbers at rows that are not valid are 0."""

    observation: Tree
    action: Array
    log_prob: Array  # of the proximal policy, which the probability ratio is to
    weight: (
        Array  # of the sample: the proximal policy's probability over that of the one that acted
    )
    advantage: Array
    target: Array  # of the value network, in the reward's scale
    valid: Array  # bool


class Batch(NamedTuple):
    """What `measure` makes of an unroll."""

    samples: Samples
    memory: dict[str, Tree]  # [T / chunk, B, ...] of the policy and of the value
    slot: Array  # int32 [B]


class PPOState(NamedTuple):
    """What PPO's learning changes; see `State`."""

    params: Tree
    optimizer: Tree
    key: Array
    n: Array
    observations: dict[str, Statistics]
    values: Statistics  # of value targets
    advantages: Statistics  # of the present batch


@dataclass(frozen=True)
class PPOInstance(ActorCriticInstance[PPOState]):
    """PPO for one trained policy."""

    config: PPO

    @property
    def chunk(self) -> int:
        """Steps of a recurrent policy that are learned from in sequence."""
        return self.config.chunk if self.network.memory else 0

    @property
    def rounds(self) -> int:
        """One for each minibatch of each epoch."""
        return self.config.epochs * self.config.minibatches

    @property
    def optimizer(self) -> optax.GradientTransformation:
        """Adam with the gradient's norm bounded; the learning rate comes later."""
        decay = self.config.weight_decay
        steps = [
            optax.clip_by_global_norm(self.config.max_grad_norm),
            *([optax.add_decayed_weights(decay)] if decay else []),
            optax.scale_by_adam(eps=self.config.adam_epsilon),
        ]
        return optax.flatten(
            optax.chain(*steps)
        )  # one vector compiles, and runs, faster than many arrays

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
        action = _zero_unless(valid, unroll.action)
        acted = proximal = _zero_unless(valid, unroll.log_prob)
        if self.config.corrects:
            memory = jax.tree.map(lambda x: x[0], unroll.memory)
            distribution = self.distribution(self.policy(state), observation, memory, ~valid)
            proximal = _zero_unless(valid, distribution.log_prob(action))
        advantage, correction = self._advantages(unroll, value, proximal - acted)
        target = correction + value[:-1]
        decoupled = self.config.objective == "decoupled"
        batch = Batch(
            samples=Samples(
                observation=observation,
                action=action,
                log_prob=proximal if decoupled else acted,
                weight=self._weight(proximal - acted) if decoupled else jnp.ones_like(acted),
                advantage=_zero_unless(valid, advantage),
                target=_zero_unless(valid, target),
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

    def adapt(self, state: PPOState, sums: Any) -> PPOState:
        """Adds the targets to the statistics of values; notes those of the advantages."""
        return state._replace(
            values=merge(state.values, sums["values"]),
            advantages=merge(state.advantages._replace(count=jnp.zeros(())), sums["advantages"]),
        )

    def gradient(self, state: PPOState, batch: Batch, round: Array) -> dict[str, Any]:
        """Gives the sums over a minibatch: of the loss's gradient, and of metrics."""
        config = self.config
        epoch, number = round // config.minibatches, round % config.minibatches
        key = jax.random.wrap_key_data(state.key)
        key = jax.random.fold_in(key, state.n * config.epochs + epoch)
        length = self.chunk if self.network.memory else 1
        steps, parts = len(batch.samples.log_prob), config.minibatches
        minibatch = draw(key, batch.slot, steps, parts, length, number)
        samples, memory = minibatch.steps(batch.samples), minibatch.starts(batch.memory)
        gradient, metrics = jax.grad(self.loss, has_aux=True)(state.params, state, samples, memory)
        count = jnp.sum(samples.valid, dtype=jnp.float32)
        return {"gradient": gradient, "metrics": metrics, "count": count}

    def loss(
        self, params: Tree, state: PPOState, samples: Samples, memory: dict[str, Tree]
    ) -> tuple[Array, Metrics]:
        """Clipped surrogate, value and entropy terms (Schulman et al., 2017, eq. 9), summed.

        Args:
            params: Of the policy and of the value.
            state: Its statistics are looked at.
            samples: [L, B, ...]
            memory: [B, ...] of the policy and of the value, before the first row.
        """
        config, ended = self.config, ~samples.valid
        policy = Policy(params["policy"], state.observations)
        distribution = self.distribution(policy, samples.observation, memory["policy"], ended)
        log_prob = distribution.log_prob(samples.action)
        log_ratio = jnp.where(samples.valid, log_prob - samples.log_prob, 0)
        ratio = jnp.exp(log_ratio)
        clipped = jnp.clip(ratio, 1 - config.clip, 1 + config.clip)
        advantage = samples.advantage
        if config.normalize_advantages:
            mean, variance = state.advantages.mean, state.advantages.variance
            advantage = (advantage - mean) / (jnp.sqrt(variance) + 1e-8)
        advantage = advantage * samples.weight
        surrogate = jnp.minimum(ratio * advantage, clipped * advantage)

        inputs = (state.observations, samples.observation, memory["value"], ended)
        value, _ = self.value(params["value"], *inputs)
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
        sums = {name: jnp.sum(jnp.where(samples.valid, x, 0.0)) for name, x in metrics.items()}
        value_loss = config.value_cost * sums["value_loss"]
        return sums["policy_loss"] + value_loss - config.entropy_cost * sums["entropy"], sums

    def update(self, state: PPOState, sums: Any) -> tuple[PPOState, Metrics]:
        """Takes one step of Adam, with the gradient's norm bounded."""
        share = 1 / jnp.maximum(sums["count"], 1)
        gradient = jax.tree.map(lambda x: x * share, sums["gradient"])
        steps, optimizer = self.optimizer.update(gradient, state.optimizer, state.params)
        rate = self._learning_rate(state)
        params = jax.tree.map(lambda p, step: p - rate * step, state.params, steps)
        metrics = {name: x * share for name, x in sums["metrics"].items()}
        metrics["grad_norm"] = optax.tree.norm(gradient)
        return state._replace(params=params, optimizer=optimizer), metrics

    def finish(self, state: PPOState, sums: Any) -> tuple[PPOState, Metrics]:
        """Adds the batch to the statistics of observations and counts the update."""
        _, variance = spread(sums["values"])
        _, unexplained = spread(sums["errors"])
        metrics = {
            "explained_variance": 1 - unexplained / jnp.maximum(variance, 1e-8),
            "learning_rate": self._learning_rate(state),
        }
        return super().finish(state, sums)[0], metrics

    def _values(self, state: PPOState, unroll: Unroll) -> tuple[Array, Tree]:
        """Gives the value of every row, and the value network's memory at chunk starts.

        Only learning knows that memory. It starts from zeros at each unroll.
        """
        memory = self.network.initial_memory(unroll.reward.shape[1])
        inputs = (unroll.observation, memory, unroll.terminated | unroll.truncated)
        value, memories = self.value(state.params["value"], state.observations, *inputs)
        if self.config.normalize_values:
            value = unstandardize(state.values, value)
        return value, jax.tree.map(lambda x: x[:-1][:: self.chunk], memories)

    def _weight(self, log_ratio: Array) -> Array:
        return jnp.exp(jnp.minimum(log_ratio, jnp.log(self.config.max_weight)))

    def _advantages(self, unroll: Unroll, value: Array, log_ratio: Array) -> tuple[Array, Array]:
        """Gives the advantages, and the value targets' differences to the values."""
        config = self.config
        rows = (unroll.reward, unroll.terminated, unroll.truncated, value)
        if config.advantages == "vtrace":
            return vtrace(*rows, log_ratio, config.discount, config.gae_lambda)
        advantage = generalized_advantages(*rows, config.discount, config.gae_lambda)
        return advantage, advantage

    def _learning_rate(self, state: PPOState) -> Array:
        rate = jnp.asarray(self.config.learning_rate)
        if self.config.anneal and self.updates:
            rate = rate * jnp.maximum(1 - state.n / self.updates, 0.0)
        return rate


def _zero_unless(valid: Array, x: Array) -> Array:
    valid = valid.reshape(*valid.shape, *[1] * (x.ndim - valid.ndim))
    return jnp.where(valid, x, jnp.zeros_like(x))
