"""Parallelised Q-network (Gallici et al., 2025, https://arxiv.org/abs/2407.04811).

Q-learning on fresh unrolls of many environments: Q(lambda) returns under the parameters that a
batch arrives at, then some epochs of minibatches. There is no replay and no target network; layer
normalisation keeps the values from diverging. A network with memory is learned from in chunks.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, NamedTuple, Self

from srl.algorithms.algorithm import Algorithm, Instance, Total
from srl.algorithms.gradient_descent import Descent, annealed_rate, clipped, gradient_sums
from srl.algorithms.minibatches import (
    Batch,
    Minibatches,
    expect_chunks_fit,
    fitting_minibatches,
)
from srl.algorithms.normalization import Statistics
from srl.algorithms.q_network import QNetwork, epsilon, exploring_policy
from srl.algorithms.returns import generalized_advantages, valid_rows, zero_unless
from srl.algorithms.teams import Mixer, TeamNetwork, expect_mixable, value_network
from srl.algorithms.value_heads import ValueHead
from srl.core.lazy import jax, jnp, optax
from srl.core.schedule import Adjustable
from srl.core.settings import AtLeastOne, NotNegative, Range, ZeroToOne
from srl.core.types import Array, Metrics, Policy, Tree, Unroll
from srl.networks import MLP, AutoNetwork, Network


@dataclass(frozen=True)
class PQN(Algorithm):
    """The settings of PQN."""

    unroll_length: Annotated[int, Range(0, 2**31 - 1)] = 0
    """Steps of each unroll, all with one version of the network; 0 takes 16, or 32 with memory."""
    discount: ZeroToOne = 0.99
    """Weight of a reward one step later."""
    network: Network = field(
        default_factory=lambda: AutoNetwork(
            MLP(width=128, activation="relu"), layer_norm=True, cell="lstm"
        )
    )
    """Network of the action values; the observation decides the default. With memory it is an LSTM,
    the outputs of which are normalised, too."""
    normalize_observations: bool = False
    """Standardise observations by running statistics, which changes the values of all actions."""
    epsilon_start: ZeroToOne = 1.0
    """The first share of random actions."""
    epsilon_end: ZeroToOne = 0.05
    """The share of random actions after exploration, or always if the run's length is not known."""
    exploration: ZeroToOne = 0.2
    """The part of the run in which the share falls linearly."""
    epsilon_spread: NotNegative = 0.0
    """The difference between slots: slot i of N draws the share to the power of
    1 + epsilon_spread * i / (N - 1) (Ape-X, Horgan et al., 2018, with 7 and a share of 0.4)."""
    epochs: AtLeastOne = 4
    """Passes of learning through each batch."""
    minibatches: Annotated[int, Range(0)] = 0
    """The number of parts of a batch, each for one gradient step. They divide the steps of each
    slot as far as chunks allow, and then the slots. 0 chooses up to 32, of 64 steps or more each,
    with memory of 8 chunks or more."""
    chunk: Annotated[int, Range(0)] = 0
    """Steps that a network with memory learns from in sequence; 0 takes the whole unroll."""
    learning_rate: Annotated[Adjustable, Range(0.0)] = 1e-3
    """The step size of RAdam."""
    anneal: bool = True
    """True if the learning rate falls linearly to 0 over a run of known length."""
    max_grad_norm: Annotated[Adjustable, Range(0.0)] = 10.0
    """The largest norm of a gradient; longer ones are scaled to it."""
    q_lambda: ZeroToOne = 0.65
    """Lambda of the returns: 0 gives one-step targets, 1 Monte Carlo ones with bootstrap."""
    mixer: Mixer | None = None
    """The value of a team, which its agents' values are mixed to; by default each agent learns on
    its own."""

    def validate(self) -> None:
        """Raises UserError where settings are out of their limits or do not fit each other."""
        super().validate()
        expect_mixable(self)
        expect_chunks_fit(self.settled())

    def settled(self, num_envs: int = 64) -> Self:
        """Gives the settings with the length of unrolls and number of minibatches, where 0."""
        usual = 32 if self.network.memory else 16
        config = replace(self, unroll_length=self.unroll_length or usual)
        fitting = self.minibatches or fitting_minibatches(config, num_envs, 64)
        return replace(config, minibatches=fitting)

    @property
    def instance(self) -> type[PQNInstance]:
        """The functions of PQN."""
        return PQNInstance


class PQNState(NamedTuple):
    """The state of PQN's learning; see `State`."""

    params: Tree
    optimizer: Tree
    key: Array
    n: Array
    observations: dict[str, Statistics]


class Samples(NamedTuple):
    """Steps to learn from, [T, B, ...]."""

    observation: Tree
    action: Array
    target: Array
    valid: Array  # bool


@dataclass(frozen=True)
class PQNInstance(Instance):
    """PQN for one trained policy."""

    config: PQN

    def __post_init__(self) -> None:
        """Raises UserError for actions that are not one choice."""
        _ = self.actor

    @cached_property
    def actor(self) -> QNetwork | TeamNetwork:
        """The network of action values."""
        return value_network(self.config, self.specs, self.normalizer, ValueHead)

    @property
    def radam(self) -> Descent:
        """RAdam with the gradient's norm bounded."""
        return clipped(self.config.max_grad_norm, optax.scale_by_radam())

    @property
    def division(self) -> Minibatches:
        """The division of batches."""
        config = self.config
        chunk = config.chunk if self.actor.network.memory else None
        return Minibatches(config.epochs, config.minibatches, chunk)

    def init(self, key: Array) -> PQNState:
        """Draws parameters; nothing is normalised yet."""
        params_key, learning_key = jax.random.split(key)
        params = self.actor.init(params_key)
        return PQNState(
            params=params,
            optimizer=self.radam.init(params),
            key=jax.random.key_data(learning_key),
            n=jnp.zeros((), jnp.int32),
            observations=self.normalizer.init(),
        )

    def policy(self, state: PQNState) -> Policy:
        """Gives the network's parameters, epsilon, and the statistics of observations."""
        return exploring_policy(self, state)

    def prepare(
        self, state: PQNState, replay: Tree, unroll: Unroll, total: Total
    ) -> tuple[PQNState, Tree, Batch]:
        """Computes the targets, Q(lambda) returns by the best actions (Gallici et al., eq. 8)."""
        valid = valid_rows(unroll.terminated, unroll.truncated)
        ended = unroll.terminated | unroll.truncated
        memory = jax.tree.map(lambda x: x[0], unroll.memory)
        observed = state.params, state.observations, unroll.observation
        outputs = self.actor.outputs(*observed, memory, ended)
        action = self.actor.best(unroll.observation, outputs)
        best = self.actor.head.form.value(self.actor.joint(*observed, outputs, action))
        rows = unroll.reward, unroll.terminated, unroll.truncated, best
        # The lambda return is the value of a row and the lambda-weighted errors from there on.
        discounts = self.config.discount, self.config.q_lambda
        target = best[:-1] + generalized_advantages(*rows, *discounts)
        samples = Samples(
            observation=jax.tree.map(lambda x: x[:-1], unroll.observation),
            action=unroll.action,
            target=zero_unless(valid, target),
            valid=valid,
        )
        observations = self.actor.seen(state.observations, unroll, total)
        return state, replay, Batch(samples, unroll.memory, unroll.slot, observations)

    def loss(
        self, params: Tree, state: PQNState, samples: Samples, memory: Tree
    ) -> tuple[Array, Metrics]:
        """Half the squared errors, [L, S].

        Args:
            params: Of the network.
            state: Its statistics are used.
            samples: [L, S, ...]
            memory: [S, ...], before the first row.
        """
        observed = params, state.observations, samples.observation
        outputs = self.actor.outputs(*observed, memory, ~samples.valid)
        value = self.actor.head.form.value(self.actor.joint(*observed, outputs, samples.action))
        loss = 0.5 * jnp.square(value - samples.target)
        return loss, {"q_loss": loss, "q_value": value}

    def gradient_step(
        self, state: PQNState, batch: Batch, step: Array, total: Total
    ) -> tuple[PQNState, Metrics]:
        """Takes a step of RAdam on one minibatch."""
        samples, memory = self.division.draw(batch, state, step)
        loss = lambda params: self.loss(params, state, samples, memory)  # noqa: E731
        sums, _ = gradient_sums(loss, state.params, samples.valid)
        gradient, metrics = total(sums).mean()
        rate = annealed_rate(self.config, state.n, self.updates)
        params, optimizer = self.radam.step(state.params, state.optimizer, gradient, rate)
        metrics["grad_norm"] = jnp.linalg.norm(gradient)
        return state._replace(params=params, optimizer=optimizer), metrics

    def finish(
        self, state: PQNState, replay: Tree, batch: Batch, metrics: Metrics
    ) -> tuple[PQNState, Tree, Metrics]:
        """Takes in the statistics of observations, and counts the update."""
        share = jnp.mean(epsilon(self.config, state.n, self.updates, self.slots))
        learned = state._replace(n=state.n + 1, observations=batch.results)
        return learned, replay, {**jax.tree.map(jnp.mean, metrics), "epsilon": share}
