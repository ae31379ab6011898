"""Deep Q-networks (Mnih et al., 2015, https://doi.org/10.1038/nature14236), and what improved them.

Double targets (van Hasselt et al., 2016, https://arxiv.org/abs/1509.06461), dueling outputs (Wang
et al., 2016, https://arxiv.org/abs/1511.06581), n-step returns, prioritised replay (Schaul et al.,
2016, https://arxiv.org/abs/1511.05952) and distributions of returns (C51, Bellemare et al., 2017,
https://arxiv.org/abs/1707.06887) can each be switched on and off. Rainbow (Hessel et al., 2018,
https://arxiv.org/abs/1710.02298) has all of them, and noisy layers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Annotated, Any, NamedTuple

from srl.algorithms.algorithm import Total
from srl.algorithms.critics import expect_no_memory
from srl.algorithms.gradient_descent import gradient_sums
from srl.algorithms.normalization import Statistics
from srl.algorithms.off_policy import OffPolicy, Sampling, TargetState, replay_for
from srl.algorithms.q_learning import QLearning
from srl.algorithms.q_network import QNetwork
from srl.algorithms.replay import Replay, Transitions, transitions
from srl.algorithms.replay_ratio import ReplayRatio
from srl.algorithms.teams import Mixer, TeamNetwork, expect_mixable, value_network
from srl.algorithms.uniform_replay import Sample, expect_n_step_fits
from srl.algorithms.value_forms import expect_range_fits, value_form
from srl.algorithms.value_heads import ValueHead
from srl.core.lazy import jax, jnp
from srl.core.schedule import Adjustable
from srl.core.settings import AtLeastOne, NotNegative, Range, ZeroToOne
from srl.core.types import Array, Metrics, Tree, Unroll
from srl.networks import MLP, AutoNetwork, Network


@dataclass(frozen=True)
class DQN(OffPolicy):
    """The settings of DQN."""

    unroll_length: Annotated[int, Range(1, 2**31 - 1)] = 8
    """Steps of each unroll, all with one version of the network."""
    discount: ZeroToOne = 0.99
    """Weight of a reward one step later."""
    network: Network = field(default_factory=lambda: AutoNetwork(MLP(width=128, activation="relu")))
    """Network of the action values; the observation decides the default."""
    normalize_observations: bool = False
    """Standardise observations by running statistics, which changes the values of all actions."""
    epsilon_start: ZeroToOne = 1.0
    """The first share of random actions."""
    epsilon_end: ZeroToOne = 0.05
    """The share of random actions after exploration, or always if the run's length is not known."""
    exploration: ZeroToOne = 0.5
    """The part of the run in which the share falls linearly."""
    epsilon_spread: NotNegative = 0.0
    """The difference between slots: slot i of N draws the share to the power of
    1 + epsilon_spread * i / (N - 1) (Ape-X, Horgan et al., 2018, with 7 and a share of 0.4)."""
    replay: AtLeastOne = 100_000
    """The capacity of the replay, in steps of all environments."""
    warm_up: Annotated[int, Range(0)] = 2_000
    """Steps before learning begins."""
    batch_size: AtLeastOne = 128
    """Transitions of a gradient step, rounded to a multiple or a part of the slots."""
    samples_per_insert: Annotated[float, Range(0.001)] = 13.0
    """The mean number of times that each step is learned from, exact despite the batch's
    rounding."""
    n_step: AtLeastOne = 3
    """Steps of a transition, which stays within its unroll: fewer near the unroll's end. Rainbow
    has 3."""
    target_rate: ZeroToOne = 0.005
    """The part of the way that the target network moves towards the network at a time."""
    target_period: AtLeastOne = 1
    """Gradient steps between moves of the target network. A `target_rate` of 1 copies the network,
    in DQN's paper at every 10,000th."""
    double: bool = True
    """True if the network chooses the actions of targets, and not the target network."""
    dueling: bool = False
    """True if a state's value and the advantages of actions are separate outputs, each after a
    hidden layer as wide as the features."""
    priorities: ZeroToOne = 0.0
    """The exponent of priorities: 0 draws uniformly, 0.6 is usual."""
    correction: ZeroToOne = 0.4
    """The exponent of the importance weights that correct for priorities; 1 corrects in full. It is
    constant, as in Ape-X; Schaul et al. raise it to 1 over the run."""
    atoms: AtLeastOne = 1
    """Atoms of the distribution of returns: 1 learns the mean, 51 is C51."""
    value_range: tuple[float, float] | None = None
    """The returns of the first and the last atom; returns beyond are clipped. By default those of
    rewards from -1 to 1: reward_scale / (1 - discount) either way."""
    learning_rate: Annotated[Adjustable, Range(0.0)] = 2.5e-4
    """The step size of Adam."""
    max_grad_norm: Annotated[Adjustable, Range(0.0)] = 10.0
    """The largest norm of a gradient; longer ones are scaled to it."""
    mixer: Mixer | None = None
    """The value of a team, which its agents' values are mixed to; by default each agent learns on
    its own."""

    def validate(self) -> None:
        """Raises UserError where settings are out of their limits or do not fit each other."""
        super().validate()
        expect_mixable(self)
        expect_n_step_fits(self)
        expect_no_memory(self)
        expect_range_fits(self)

    @property
    def instance(self) -> type[DQNInstance]:
        """The functions of DQN."""
        return DQNInstance


class Batch(NamedTuple):
    """The transitions for all gradient steps, [gradient_steps, S, ...]."""

    transitions: Transitions
    sample: Sample
    observations: dict[str, Statistics]


@dataclass(frozen=True)
class DQNInstance(QLearning):
    """DQN for one trained policy."""

    config: DQN

    @cached_property
    def actor(self) -> QNetwork | TeamNetwork:
        """The network of action values."""
        config = self.config
        head = partial(ValueHead, form=value_form(config), dueling=config.dueling)
        return value_network(config, self.specs, self.normalizer, head)

    @cached_property
    def ratio(self) -> ReplayRatio:
        """The gradient steps of each update."""
        return ReplayRatio.of(self.config, self.slots)

    @cached_property
    def replay(self) -> Sampling:
        """The replay: of transitions, which are windows of n_step + 1 rows."""
        return replay_for(self, self.config.n_step + 1)

    def prepare(
        self, state: TargetState, replay: Any, unroll: Unroll, total: Total
    ) -> tuple[TargetState, Any, Batch]:
        """Inserts the unroll, and draws the transitions of all gradient steps."""

        def priority(rows: Replay) -> Array:
            steps = transitions(rows, self.config.discount)
            _, metrics = self.loss(state.params, state, jax.tree.map(lambda x: x[0], steps))
            return self.priority(metrics["td_error"], steps.valid[0])

        replay = self.replay.insert(replay, unroll, state.n, priority)
        key = jax.random.wrap_key_data(state.key)
        sample = self.replay.sample(key, replay, state.n, unroll.slot, total)
        observations = self.actor.seen(state.observations, unroll, total)
        return state, replay, Batch(sample.transitions(self.config.discount), sample, observations)

    def priority(self, error: Array, valid: Array) -> Array:
        """Gives the priorities of windows by their errors; 0 where there is nothing to learn."""
        return jnp.where(valid, (jnp.abs(error) + 1e-3) ** self.config.priorities, 0.0)

    def loss(self, params: Tree, state: TargetState, steps: Transitions) -> tuple[Array, Metrics]:
        """Half the squared errors (Mnih et al., 2015), or the cross-entropies of C51, [S].

        Args:
            params: Of the network.
            state: The target network and the statistics of observations are used.
            steps: [S, ...].
        """
        actor, form, statistics = self.actor, self.actor.head.form, state.observations
        last = actor.outputs(state.targets, statistics, steps.last)
        chooser = last
        if self.config.double:
            chooser = actor.outputs(jax.lax.stop_gradient(params), statistics, steps.last)
        best = actor.best(steps.last, chooser)
        following = actor.joint(state.targets, statistics, steps.last, last, best)
        outputs = actor.outputs(params, statistics, steps.observation)
        taken = actor.joint(params, statistics, steps.observation, outputs, steps.action)
        target = steps.reward, steps.discount, following
        error, loss = form.loss(taken, form.target(*target))
        value, metrics = form.value(taken), form.metrics(*target)
        return loss, {"q_loss": loss, "q_value": value, "td_error": error, **metrics}

    def gradient_step(
        self, state: TargetState, batch: Batch, step: Array, total: Total
    ) -> tuple[TargetState, Metrics]:
        """Takes a step of Adam on the transitions of this step; the target network follows."""
        steps, weight = jax.tree.map(lambda x: x[step], (batch.transitions, batch.sample.weight))

        def weighted_loss(params: Tree) -> tuple[Array, Metrics]:
            loss, metrics = self.loss(params, state, steps)
            return weight * loss, {**metrics, "q_loss": weight * loss, "weight": weight}

        def gradients() -> Any:
            sums, each = gradient_sums(weighted_loss, state.params, steps.valid)
            return sums, self.priority(each["td_error"], steps.valid)

        return self.descend(state, step, gradients, self.config.learning_rate, total)
