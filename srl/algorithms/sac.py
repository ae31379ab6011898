"""Soft actor-critic (Haarnoja et al., 2018, https://arxiv.org/abs/1812.05905).

The critics learn from n-step transitions drawn from a replay, with targets by their slow copies;
the actor learns to draw actions of high value and entropy; the temperature keeps the entropy near
its target. The least of a random subset of the critics is the target (REDQ, Chen et al., 2021,
https://arxiv.org/abs/2101.05982); with two of two it is the usual SAC. All three take their
gradient steps at the same time, from the same parameters.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
from gymnasium import spaces

from srl.algorithms.algorithm import Algorithm, Instance
from srl.algorithms.normalization import ObservationNormalizer, Statistics
from srl.algorithms.replay import Replay, Transitions, draw, empty, insert, transitions
from srl.algorithms.returns import valid_rows
from srl.errors import UserError
from srl.lazy import jax, jnp, optax
from srl.networks import MLP, AutoNetwork, Network, PolicyAndValue
from srl.types import Array, Decision, Metrics, Policy, Tree, Unroll

_LOG_STD = -5.0, 2.0  # to which the logarithm of the actor's deviation is squashed


@dataclass(frozen=True)
class SAC(Algorithm):
    """The settings of soft actor-critic."""

    unroll_length: int = 8
    """Steps that are taken with one version of the policy before they are learned from."""
    network: Network = field(default_factory=lambda: AutoNetwork(MLP(width=256, activation="relu")))
    """Network of the actor and of the critics; by default chosen by what is observed."""
    normalize_observations: bool = False
    """Standardise observations by running statistics, as they are when they are drawn."""
    replay: int = 1_000_000
    """How many steps are remembered, of all environments."""
    warm_up: int = 5_000
    """Steps of actions drawn evenly, before learning begins."""
    batch_size: int = 256
    """Transitions of a gradient step."""
    samples_per_insert: float = 256.0
    """How often each step is learned from; with 256 in a batch of 256, a gradient step each."""
    n_step: int = 1
    """Steps of a transition."""
    critics: int = 2
    """How many critics there are."""
    subset: int = 2
    """How many of them, drawn anew for each gradient step, make a target."""
    learning_rate: float = 3e-4
    """The step size of the actor's Adam and of the temperature's."""
    critic_learning_rate: float = 1e-3
    """The step size of the critics' Adam."""
    target_rate: float = 0.005
    """The part by which the slow critics follow in each gradient step."""
    temperature: float = 1.0
    """The weight of the entropy in the beginning."""
    target_entropy: float = -1.0
    """The entropy that is aimed at, in nats for each number of an action."""

    limits: ClassVar[Mapping[str, tuple[float, ...]]] = {
        **Algorithm.limits,
        "replay": (1,),
        "warm_up": (0,),
        "batch_size": (1,),
        "samples_per_insert": (0.0,),
        "n_step": (1,),
        "critics": (1,),
        "subset": (1,),
        "learning_rate": (0.0,),
        "critic_learning_rate": (0.0,),
        "target_rate": (0.0, 1.0),
        "temperature": (0.0,),
        "target_entropy": (-100.0, 100.0),
    }

    def validate(self) -> None:
        """Raises UserError where settings are out of their limits or do not fit each other."""
        super().validate()
        if self.subset > self.critics:
            raise UserError(
                f"SAC with subset={self.subset} of critics={self.critics}: give a subset that is "
                "no larger"
            )
        if self.n_step > self.unroll_length:
            raise UserError(
                f"SAC with n_step={self.n_step} and unroll_length={self.unroll_length}: a "
                "transition lies within an unroll; give longer unrolls"
            )
        if self.network.memory:
            raise UserError(
                "SAC learns from single transitions, and the network has memory: take PPO or R2D2"
            )

    @property
    def instance(self) -> type[SACInstance]:
        """The functions of SAC."""
        return SACInstance


class SACState(NamedTuple):
    """What SAC's learning changes; see `State`."""

    params: Tree  # of the actor, of the critics [critics, ...], and the temperature's logarithm
    optimizer: Tree
    key: Array
    n: Array
    observations: dict[str, Statistics]
    targets: Tree  # the slow critics


@dataclass(frozen=True)
class SACInstance(Instance[SACState]):
    """SAC for one trained policy."""

    config: SAC

    def __post_init__(self) -> None:
        """Raises UserError for actions that are not bounded numbers."""
        space = self.specs.action
        if not isinstance(space, spaces.Box) or not np.isfinite([space.low, space.high]).all():
            raise UserError(
                f"SAC draws actions within bounds, and the action space is {space}; take PPO"
            )

    # The form of a batch.

    @property
    def share(self) -> float:
        """Transitions of each slot in a gradient step."""
        return self.config.batch_size / max(self.slots, 1)

    @property
    def rounds(self) -> int:
        """Gradient steps for the steps of an update."""
        steps = self.config.unroll_length * max(self.slots, 1)
        return max(1, round(steps * self.config.samples_per_insert / self.config.batch_size))

    @property
    def optimizer(self) -> optax.GradientTransformation:
        """Adam for all parameters; their step sizes come later."""
        return optax.flatten(optax.scale_by_adam())

    # Networks.

    @property
    def _action_space(self) -> spaces.Box:
        assert isinstance(self.specs.action, spaces.Box)
        return self.specs.action

    @cached_property
    def _size(self) -> int:
        return math.prod(self.specs.action.shape or ())

    @cached_property
    def actor(self) -> PolicyAndValue:
        """The functions of the actor, which gives means and deviations."""
        return self.config.network.build(self.specs.observation, 2 * self._size)

    @cached_property
    def critic(self) -> PolicyAndValue:
        """The functions of a critic, of an observation and an action."""
        action = spaces.Box(-1.0, 1.0, (self._size,), np.float32)
        both = spaces.Dict({"observation": self.specs.observation, "action": action})
        return self.config.network.build(both, 1)

    @cached_property
    def normalizer(self) -> ObservationNormalizer:
        """How observations become inputs."""
        running = self.config.normalize_observations
        return ObservationNormalizer(self.specs.observation, running=running)

    def init(self, key: Array) -> SACState:
        """Draws parameters."""
        actor_key, critic_key, learning_key = jax.random.split(key, 3)
        keys = jax.random.split(critic_key, self.config.critics)
        drawn = [self.critic.init(key)["value"] for key in keys]
        critics = jax.tree.map(lambda *x: jnp.stack(x), *drawn)
        params = {
            "actor": self.actor.init(actor_key)["policy"],
            "critics": critics,
            "log_temperature": jnp.log(jnp.asarray(self.config.temperature)),
        }
        return SACState(
            params=params,
            optimizer=self.optimizer.init(params),
            key=jax.random.key_data(learning_key),
            n=jnp.zeros((), jnp.int32),
            observations=self.normalizer.init(),
            targets=jax.tree.map(jnp.copy, critics),
        )

    # Acting.

    def warm(self, n: Array) -> Array:
        """Whether update n learns: enough steps were taken."""
        return (n + 1) * (self.config.unroll_length * max(self.slots, 1)) >= self.config.warm_up

    def policy(self, state: SACState) -> Policy:
        """Gives the actor's parameters, and whether it acts yet."""
        params = {"actor": state.params["actor"], "acts": self.warm(state.n)}
        return Policy(params, state.observations)

    def act(self, policy: Policy, observation: Tree, memory: Tree, keys: Array) -> Decision:
        """Draws an action for each slot with its own random key: keys [B]."""
        mean, log_std = self._actor(policy.params["actor"], policy.normalizer, observation)
        noise = jax.vmap(lambda key: jax.random.normal(key, (self._size,)))(keys)
        action, log_prob = squashed(mean, log_std, noise)
        even = jax.vmap(lambda key: jax.random.uniform(key, (self._size,), minval=-1.0))(keys)
        action = jnp.where(policy.params["acts"], action, even)
        return Decision(self._shaped(action), log_prob, memory)

    def act_greedy(self, policy: Policy, observation: Tree, memory: Tree) -> Decision:
        """Takes the middle of the actor's distribution for each slot."""
        mean, log_std = self._actor(policy.params["actor"], policy.normalizer, observation)
        action, log_prob = squashed(mean, log_std, jnp.zeros_like(mean))
        return Decision(self._shaped(action), log_prob, memory)

    def env_action(self, action: Array) -> Array:
        """Stretches actions from [-1, 1] to the bounds of the space; needs no JAX."""
        space = self._action_space
        middle, half = (space.high + space.low) / 2, (space.high - space.low) / 2
        return (middle + half * action).clip(space.low, space.high).astype(np.float32)

    def _shaped(self, action: Array) -> Array:
        return action.reshape(*action.shape[:-1], *(self.specs.action.shape or ()))

    def _actor(self, params: Tree, statistics: Any, observation: Tree) -> tuple[Array, Array]:
        inputs = self.normalizer.normalize(statistics, observation)
        mean, log_std = jnp.split(self.actor.policy_sequence(params, inputs), 2, axis=-1)
        low, high = _LOG_STD
        return mean, low + 0.5 * (high - low) * (jnp.tanh(log_std) + 1)

    def _critics(self, params: Tree, statistics: Any, observation: Tree, action: Array) -> Array:
        """The values by all critics, [critics, S]."""
        inputs = {
            "observation": self.normalizer.normalize(statistics, observation),
            "action": action.reshape(*action.shape[:1], -1),
        }
        return jax.vmap(lambda params: self.critic.value_sequence(params, inputs)[0])(params)

    # Learning.

    def empty_replay(self, unroll: Unroll) -> Replay:
        """Gives a replay for the steps that are to be remembered of the slots here."""
        steps = self.config.unroll_length * max(self.slots, 1)
        return empty(unroll, max(1, self.config.replay // steps))

    def remember(self, state: SACState, replay: Replay, unroll: Unroll) -> Replay:
        """Gives the replay with an unroll in it."""
        return insert(replay, unroll, state.n)

    def measure(self, state: SACState, unroll: Unroll) -> tuple[Array, dict[str, Any]]:
        """Gives the slots, and the moments of observations."""
        valid = valid_rows(unroll.terminated, unroll.truncated)
        observation = jax.tree.map(lambda x: x[:-1], unroll.observation)
        sums = self.normalizer.measure(state.observations, observation, valid)
        return unroll.slot, {"observations": sums}

    def recall(self, state: SACState, replay: Replay, batch: Array) -> tuple[Transitions, Array]:
        """Draws the transitions of all rounds, [rounds, S]; also gives their slots."""
        key = jax.random.wrap_key_data(state.key)
        length = self.config.n_step + 1
        draws = draw(key, replay, state.n, batch, self.rounds, self.share, length)
        window = draws.take(replay, length)
        return transitions(window, self.config.discount), draws.slot

    def gradient(
        self, state: SACState, batch: tuple[Transitions, Array], round: Array
    ) -> dict[str, Any]:
        """Gives the sums over a round's transitions: of the losses' gradients, and of metrics."""
        drawn, slot = jax.tree.map(lambda x: x[round], batch)
        key = jax.random.fold_in(jax.random.wrap_key_data(state.key), state.n)
        key = jax.random.fold_in(key, round)

        def compute() -> tuple[Tree, Metrics]:
            return jax.grad(self.loss, has_aux=True)(state.params, state, drawn, slot, key)

        shapes = jax.eval_shape(compute)
        gradient, metrics = jax.lax.cond(
            self.warm(state.n),
            compute,
            lambda: jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes),
        )
        count = jnp.sum(drawn.valid, dtype=jnp.float32)
        return {"gradient": gradient, "metrics": metrics, "count": count}

    def loss(
        self, params: Tree, state: SACState, drawn: Transitions, slot: Array, key: Array
    ) -> tuple[Array, Metrics]:
        """The losses of the critics (eq. 5), the actor (eq. 7) and the temperature (eq. 18).

        They share no gradient: each holds the others' parameters fixed.
        """
        config, fixed = self.config, jax.lax.stop_gradient(params)
        temperature = jnp.exp(fixed["log_temperature"])
        noise = self._noise(key, slot)

        mean, log_std = self._actor(fixed["actor"], state.observations, drawn.last)
        action, log_prob = squashed(mean, log_std, noise[0])
        following = self._critics(state.targets, state.observations, drawn.last, action)
        chosen = jax.random.permutation(key, config.critics)[: config.subset]
        least = jnp.min(following[chosen], axis=0)
        target = drawn.reward + drawn.discount * (least - temperature * log_prob)
        value = self._critics(
            params["critics"], state.observations, drawn.observation, drawn.action
        )
        critic_loss = 0.5 * jnp.sum(jnp.square(value - target), axis=0)

        mean, log_std = self._actor(params["actor"], state.observations, drawn.observation)
        action, log_prob = squashed(mean, log_std, noise[1])
        values = self._critics(fixed["critics"], state.observations, drawn.observation, action)
        worth = jnp.min(values, axis=0) if config.critics == 2 else jnp.mean(values, axis=0)
        actor_loss = temperature * log_prob - worth

        surplus = -jax.lax.stop_gradient(log_prob) - config.target_entropy * self._size
        temperature_loss = params["log_temperature"] * surplus
        metrics = {
            "critic_loss": critic_loss,
            "actor_loss": actor_loss,
            "q_value": jnp.mean(value, axis=0),
            "entropy": -log_prob,
            "temperature": jnp.broadcast_to(temperature, log_prob.shape),
        }
        sums = {name: jnp.sum(jnp.where(drawn.valid, x, 0.0)) for name, x in metrics.items()}
        loss = jnp.sum(jnp.where(drawn.valid, critic_loss + actor_loss + temperature_loss, 0.0))
        return loss, sums

    def _noise(self, key: Array, slot: Array) -> Array:
        """Normal numbers for each transition, [2, S, numbers], that follow from its slot.

        The transitions of a slot are numbered by how many come before them.
        """
        earlier = jnp.sum(jnp.tril(slot[:, None] == slot[None], -1), axis=1)

        def of_one(slot: Array, place: Array) -> Array:
            own = jax.random.fold_in(jax.random.fold_in(key, slot), place)
            return jax.random.normal(own, (2, self._size))

        return jax.vmap(of_one, out_axes=1)(slot, earlier)

    def update(self, state: SACState, sums: Any) -> tuple[SACState, Metrics]:
        """Takes one step of Adam for each of the three, and moves the slow critics."""
        mean = jax.tree.map(lambda x: x / jnp.maximum(sums["count"], 1), sums)
        steps, optimizer = self.optimizer.update(mean["gradient"], state.optimizer, state.params)
        moves: Any = steps
        rates = dict.fromkeys(state.params, self.config.learning_rate)
        rates["critics"] = self.config.critic_learning_rate
        params = {
            name: jax.tree.map(lambda p, step, rate=rates[name]: p - rate * step, own, moves[name])
            for name, own in state.params.items()
        }
        rate = self.config.target_rate
        targets = jax.tree.map(lambda t, p: t + rate * (p - t), state.targets, params["critics"])
        moved = state._replace(params=params, optimizer=optimizer, targets=targets)
        warm = self.warm(state.n)
        state = jax.tree.map(lambda new, old: jnp.where(warm, new, old), moved, state)
        return state, mean["metrics"]

    def finish(self, state: SACState, sums: Any) -> tuple[SACState, Metrics]:
        """Adds the batch to the statistics of observations and counts the update."""
        observations = self.normalizer.update(state.observations, sums["observations"])
        return super().finish(state._replace(observations=observations), sums)


def squashed(mean: Array, log_std: Array, noise: Array) -> tuple[Array, Array]:
    """Gives an action in [-1, 1] and its log-density (Haarnoja et al., 2018, appendix C).

    Args:
        mean: [S, numbers], before the hyperbolic tangent.
        log_std: [S, numbers], likewise.
        noise: Normal numbers, [S, numbers].
    """
    raw = mean + jnp.exp(log_std) * noise
    density = -0.5 * jnp.square(noise) - log_std - 0.5 * math.log(2 * math.pi)
    # log(1 - tanh(x)^2), which is exact for large x, too.
    slope = 2 * (math.log(2) - raw - jax.nn.softplus(-2 * raw))
    return jnp.tanh(raw), jnp.sum(density - slope, axis=-1)
