"""Recurrent replay distributed DQN (R2D2; Kapturowski et al., 2019).

https://openreview.net/forum?id=r1lyTjAqYX: DQN by a network with memory, from sequences of a
prioritised replay. An unroll is divided into sequences, so that each step is learned from equally
often; if they do not fill it, the last one is shorter. The rows before a sequence bring the memory
up to date (burn-in), from the memory that acting had at the first of them. The sequences at an
unroll's start have a shorter burn-in: the first one has none, and begins with the memory that
acting had. Values are rescaled, so that rewards are learned from as they are, and slots explore
with shares of random actions of their own. Much is smaller than in the paper, the discount too, and
the target network follows slowly; docs/algorithms/r2d2.md lists what differs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, partial
from math import ceil
from typing import Annotated, Any, NamedTuple

from srl.algorithms.algorithm import Rewards, Total
from srl.algorithms.gradient_descent import annealed_rate, gradient_sums
from srl.algorithms.normalization import Statistics
from srl.algorithms.off_policy import OffPolicy, Sampling, TargetState, replay_for
from srl.algorithms.q_learning import QLearning
from srl.algorithms.q_network import QNetwork
from srl.algorithms.replay import Replay
from srl.algorithms.replay_ratio import ReplayRatio
from srl.algorithms.returns import n_step_returns
from srl.algorithms.sequences import after_burn_in, burnt_in
from srl.algorithms.teams import Mixer, TeamNetwork, expect_mixable, value_network
from srl.algorithms.uniform_replay import Sample, expect_n_step_fits
from srl.algorithms.value_heads import ValueHead
from srl.core.errors import UserError
from srl.core.lazy import jax, jnp
from srl.core.schedule import Adjustable
from srl.core.settings import AtLeastOne, NotNegative, Range, ZeroToOne
from srl.core.types import Array, Metrics, Tree, Unroll
from srl.networks import MLP, AutoNetwork, Network


@dataclass(frozen=True)
class R2D2(OffPolicy):
    """The settings of R2D2: the paper's exponents and 5-step returns, for smaller problems."""

    unroll_length: Annotated[int, Range(1, 2**31 - 1)] = 40
    """Steps of each unroll, all with one version of the network."""
    discount: ZeroToOne = 0.99
    """Weight of a reward one step later."""
    network: Network = field(
        default_factory=lambda: AutoNetwork(
            MLP(width=128, activation="relu"), memory=128, cell="lstm", after_memory=128
        )
    )
    """Network of the action values, with memory."""
    normalize_observations: bool = False
    """Standardise observations by running statistics, which changes the values of all actions."""
    rewards: Rewards = field(default="raw", kw_only=True)
    """The rewards to learn from: raw, their signs, or clipped at -1 and 1. usual is sign in
    atari:..., otherwise raw. Reported returns are of raw rewards."""
    epsilon_start: ZeroToOne = 0.4
    """The first share of random actions."""
    epsilon_end: ZeroToOne = 0.4
    """The share of random actions after exploration."""
    exploration: ZeroToOne = 0.5
    """The part of the run in which the share changes linearly."""
    epsilon_spread: NotNegative = 7.0
    """The difference between slots: slot i of N draws the share to the power of
    1 + epsilon_spread * i / (N - 1)."""
    replay: AtLeastOne = 100_000
    """The capacity of the replay, in steps of all environments."""
    warm_up: Annotated[int, Range(0)] = 2_000
    """Steps before learning begins."""
    batch_size: AtLeastOne = 16
    """Sequences of a gradient step, rounded to a multiple or a part of the slots."""
    samples_per_insert: Annotated[float, Range(0.001)] = 13.0
    """The mean number of times that each step is learned from, exact despite the batch's
    rounding."""
    chunk: AtLeastOne = 10
    """Steps between the memories that are stored."""
    burn_in: Annotated[int, Range(0)] = 10
    """Steps before a sequence that only bring the memory up to date, a multiple of `chunk`; fewer
    at the start of an unroll."""
    sequence: AtLeastOne = 20
    """Steps of a sequence, a multiple of `chunk`: an unroll is divided into sequences."""
    n_step: AtLeastOne = 5
    """Steps of rewards in a target; fewer at the end of a sequence."""
    rescale: bool = True
    """True if the network gives h(x) = sign(x) (sqrt(|x| + 1) - 1) + 0.001 x of values x."""
    target_rate: ZeroToOne = 0.005
    """The part of the way that the target network moves towards the network at a time."""
    target_period: AtLeastOne = 1
    """Gradient steps between moves of the target network. A `target_rate` of 1 copies the
    network."""
    double: bool = True
    """True if the network chooses the actions of targets, and not the target network."""
    dueling: bool = True
    """True if a state's value and the advantages of actions are separate outputs, each after a
    hidden layer as wide as what comes before."""
    priorities: ZeroToOne = 0.9
    """The exponent of priorities; 0 draws uniformly."""
    correction: ZeroToOne = 0.6
    """The exponent of the importance weights that correct for priorities; 1 corrects in full."""
    largest: ZeroToOne = 0.9
    """The weight of a sequence's largest error in its priority; the rest is that of the mean."""
    learning_rate: Annotated[Adjustable, Range(0.0)] = 5e-4
    """The step size of Adam."""
    anneal: bool = True
    """True if the learning rate falls linearly to 0 over a run of known length."""
    max_grad_norm: Annotated[Adjustable, Range(0.0)] = 10.0
    """The largest norm of a gradient; longer ones are scaled to it."""
    mixer: Mixer | None = None
    """The value of a team, which its agents' values are mixed to; by default each agent learns on
    its own."""

    def validate(self) -> None:
        """Raises UserError where settings are out of their limits or do not fit each other."""
        super().validate()
        expect_mixable(self)
        if self.hindsight or self.mirror:
            given = "hindsight" if self.hindsight else "mirror"
            raise UserError(
                f"R2D2 with {given}: memories that were stored are of the rows as they were; leave "
                "it out, or take DQN"
            )
        if not self.network.memory:
            raise UserError(
                "R2D2 learns from sequences, and the network has no memory: give it some, such as "
                "--algorithm.network.memory 128, or take DQN"
            )
        expect_n_step_fits(self)
        lengths = self.unroll_length, self.burn_in, self.sequence
        too_long = self.burn_in + self.sequence > self.unroll_length
        if too_long or any(length % self.chunk for length in lengths):
            raise UserError(
                f"R2D2 with burn_in={self.burn_in}, sequence={self.sequence}, chunk={self.chunk} "
                f"and unroll_length={self.unroll_length}: an unroll holds a burn-in and a "
                "sequence or more, and all three are multiples of chunk"
            )

    @property
    def instance(self) -> type[R2D2Instance]:
        """The functions of R2D2."""
        return R2D2Instance


class Batch(NamedTuple):
    """The sequences for all gradient steps."""

    sample: Sample
    observations: dict[str, Statistics]


@dataclass(frozen=True)
class R2D2Instance(QLearning):
    """R2D2 for one trained policy."""

    config: R2D2

    @cached_property
    def actor(self) -> QNetwork | TeamNetwork:
        """The network of action values."""
        head = partial(ValueHead, dueling=self.config.dueling)
        return value_network(self.config, self.specs, self.normalizer, head)

    @cached_property
    def ratio(self) -> ReplayRatio:
        """The gradient steps of each update."""
        steps = self.config.unroll_length
        return ReplayRatio.of(self.config, self.slots, steps / ceil(steps / self.config.sequence))

    @cached_property
    def replay(self) -> Sampling:
        """The replay: of sequences with their burn-in, and the row to bootstrap from."""
        config = self.config
        return replay_for(self, config.sequence + 1, config.sequence, config.burn_in)

    @property
    def chunk(self) -> int:
        """Steps between the memories that are stored."""
        return self.config.chunk

    def prepare(
        self, state: TargetState, replay: Any, unroll: Unroll, total: Total
    ) -> tuple[TargetState, Any, Batch]:
        """Inserts the unroll, and draws the sequences of all gradient steps."""

        def priority(rows: Replay) -> Array:
            rows = jax.tree.map(lambda x: x[0], rows)
            _, metrics = self.loss(state.params, state, rows)
            return self.priority(metrics["td_error"], self.learned_rows(rows))

        replay = self.replay.insert(replay, unroll, state.n, priority)
        key = jax.random.wrap_key_data(state.key)
        sample = self.replay.sample(key, replay, state.n, unroll.slot, total)
        observations = self.actor.seen(state.observations, unroll, total)
        return state, replay, Batch(sample, observations)

    def after_burn_in(self, rows: Tree, window: Replay) -> Tree:
        """Gives a sequence and the row to bootstrap from, of a window: to [sequence + 1, S, ...].

        Args:
            rows: [burn_in + sequence + 1, S, ...]; of actions, one row less.
            window: Of which `begin` is used.
        """
        return after_burn_in(rows, window.begin, self.config.sequence + 1)

    def learned_rows(self, rows: Replay) -> Array:
        """Marks the steps of a sequence that do not end an episode, bool [sequence, S]."""
        ended = self.after_burn_in(jnp.logical_or(rows.terminated, rows.truncated), rows)
        return jnp.logical_not(ended)[:-1]

    def priority(self, error: Array, valid: Array) -> Array:
        """Mixes the largest and the mean error of sequences: [sequence, S] to [S] (section 2.3).

        It is 0 where there is nothing to learn.
        """
        size, eta = jnp.where(valid, jnp.abs(error), 0.0), self.config.largest
        mean = jnp.sum(size, axis=0) / jnp.maximum(jnp.sum(valid, axis=0), 1)
        mixed = eta * jnp.max(size, axis=0) + (1 - eta) * mean
        return jnp.where(jnp.any(valid, axis=0), (mixed + 1e-3) ** self.config.priorities, 0.0)

    def loss(self, params: Tree, state: TargetState, rows: Replay) -> tuple[Array, Metrics]:
        """Half the squared errors of rescaled n-step returns (section 2.3), [sequence, S].

        Args:
            params: Of the network.
            state: The target network and the statistics of observations are used.
            rows: Windows, [burn_in + sequence + 1, S, ...], with the memory before the first row.
        """
        config, actor, form = self.config, self.actor, self.actor.head.form
        outputs = self.sequence_outputs(params, state, rows)
        targets = self.sequence_outputs(state.targets, state, rows)
        reward, terminated, truncated, observation, action = self.after_burn_in(
            (rows.reward, rows.terminated, rows.truncated, rows.observation, rows.action), rows
        )
        observed = state.observations, observation
        best = actor.best(observation, outputs if config.double else targets)
        following = form.value(actor.joint(state.targets, *observed, targets, best))
        following = unrescaled(following) if config.rescale else following
        ends = reward, terminated, truncated
        target = n_step_returns(*ends, following, config.discount, config.n_step)
        target = rescaled(target) if config.rescale else target
        value = form.value(actor.joint(params, *observed, outputs, action))[:-1]
        error = jax.lax.stop_gradient(target) - value
        loss = 0.5 * jnp.square(error)
        return loss, {"q_loss": loss, "q_value": value, "td_error": error}

    def sequence_outputs(self, params: Tree, state: TargetState, rows: Replay) -> Array:
        """Gives the network's outputs after the burn-in, [sequence + 1, S, outputs].

        No gradient reaches the burn-in.
        """

        def memories(earlier: Replay, memory: Tree) -> Array:
            ended = earlier.terminated | earlier.truncated
            inputs = state.observations, earlier.observation, memory, ended
            return self.actor.memories(params, *inputs)

        memory = burnt_in(rows, self.config.burn_in, rows.memory, memories)
        seen = rows.observation, rows.terminated | rows.truncated
        observation, ended = self.after_burn_in(seen, rows)
        return self.actor.outputs(params, state.observations, observation, memory, ended)

    def gradient_step(
        self, state: TargetState, batch: Batch, step: Array, total: Total
    ) -> tuple[TargetState, Metrics]:
        """Takes a step of Adam on the sequences of this step; the target network follows."""
        rows, weight, ready = jax.tree.map(
            lambda x: x[step], (batch.sample.rows, batch.sample.weight, batch.sample.ready)
        )
        valid = self.learned_rows(rows)

        def weighted_loss(params: Tree) -> tuple[Array, Metrics]:
            loss, metrics = self.loss(params, state, rows)
            weights = jnp.broadcast_to(weight, loss.shape)
            return weights * loss, {**metrics, "q_loss": weights * loss, "weight": weights}

        def gradients() -> Any:
            sums, each = gradient_sums(weighted_loss, state.params, valid & ready)
            return sums, self.priority(each["td_error"], valid)

        rate = annealed_rate(self.config, state.n, self.updates)
        return self.descend(state, step, gradients, rate, total)


_SLOPE = 1e-3


def rescaled(x: Array) -> Array:
    """Gives h(x) = sign(x) (sqrt(|x| + 1) - 1) + 0.001 x (Pohlen et al., 2018).

    See https://arxiv.org/abs/1805.11593, proposition A.2.
    """
    # sqrt(|x| + 1) - 1, without a difference of nearly equal numbers.
    return x / (jnp.sqrt(jnp.abs(x) + 1) + 1) + _SLOPE * x


def unrescaled(x: Array) -> Array:
    """Gives the number of which x is `rescaled`, to the precision of float32.

    With w = sqrt(|y| + 1) - 1, which the quadratic equation 0.001 w^2 + 1.002 w = |x| gives, the
    number is w (w + 2).
    """
    root = jnp.sqrt(1 + 4 * _SLOPE * (jnp.abs(x) + 1 + _SLOPE))
    w = 2 * jnp.abs(x) / (root + 1 + 2 * _SLOPE)
    return jnp.sign(x) * w * (w + 2)
