"""Q-learning from a replay (Mnih et al., 2015): the smallest algorithm with a replay.

An algorithm outside srl, which docs/write_an_algorithm.md explains. `srl.algorithms.DQN` has what
improves on it.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, NamedTuple

from srl.algorithms import Algorithm, Instance
from srl.algorithms.gradient_descent import Descent, gradient_sums, polyak
from srl.algorithms.q_network import q_network
from srl.algorithms.replay import empty, insert, transitions
from srl.algorithms.replay_sampling import draw
from srl.algorithms.value_heads import ValueHead, chosen
from srl.core.lazy import jax, jnp, optax
from srl.core.settings import AtLeastOne, Range, ZeroToOne
from srl.core.types import Policy


@dataclass(frozen=True)
class ReplayedQ(Algorithm):
    """Settings; `--algorithm.learning-rate` and so on override them."""

    unroll_length: AtLeastOne = 8
    """Steps that are taken with one version of the network before they are learned from."""
    normalize_observations: bool = False
    """Standardise observations: no statistics are kept here, so leave it off."""
    blocks: AtLeastOne = 200
    """The number of unrolls of each slot that are kept."""
    batch: AtLeastOne = 4
    """Transitions of each slot in a gradient step."""
    steps: AtLeastOne = 16
    """Gradient steps for each unroll."""
    epsilon: ZeroToOne = 0.1
    """The share of random actions."""
    learning_rate: Annotated[float, Range(0.0)] = 1e-3
    """Step size of Adam."""
    target_rate: ZeroToOne = 0.03
    """The part by which the target network follows in each gradient step."""

    @property
    def instance(self):
        """The functions of Q-learning from a replay."""
        return ReplayedQInstance


class ReplayedQState(NamedTuple):
    """All that learning changes: the fields that every state has, and the target network."""

    params: Any
    optimizer: Any
    key: Any
    n: Any
    targets: Any


@dataclass(frozen=True)
class ReplayedQInstance(Instance):
    """Q-learning from a replay for one trained policy."""

    config: ReplayedQ

    @property
    def adam(self):
        """Adam; optax loads here, and not in workers that only step simulators."""
        return Descent(optax.scale_by_adam())

    @cached_property
    def actor(self):
        """The network of action values, which acts epsilon-greedily."""
        return q_network(self.config, self.specs, self.normalizer, ValueHead)

    @property
    def gradient_steps(self):
        """Gradient steps of one call of `learn`."""
        return self.config.steps

    def init(self, key):
        """Draws parameters, which the target network starts from, too."""
        params = self.actor.init(key)
        zero, key = jnp.zeros((), jnp.int32), jax.random.key_data(key)
        targets = jax.tree.map(jnp.copy, params)
        return ReplayedQState(params, self.adam.init(params), key, zero, targets)

    def policy(self, state):
        """Gives what acting needs."""
        return Policy({"network": state.params, "epsilon": jnp.full(1, self.config.epsilon)}, {})

    def empty_replay(self, unroll):
        """Gives a replay of nothing for the slots of this unroll."""
        return empty(unroll, self.config.blocks, self.stack)

    def prepare(self, state, replay, unroll, total):
        """Puts the unroll in place of the oldest; draws the transitions of all gradient steps."""
        config, key = self.config, jax.random.wrap_key_data(state.key)
        replay = insert(replay, unroll, state.n, self.stack)
        # A transition is a window of two rows, and may begin at all rows but the last.
        sizes = config.steps, config.batch, config.unroll_length
        windows = draw(key, replay, state.n, unroll.slot, *sizes).take(replay, 2, self.stack)
        return state, replay, transitions(windows, config.discount)

    def loss(self, params, state, steps):
        """Gives the squared errors of transitions [S]."""
        last = self.actor.outputs(state.targets, {}, steps.last)
        best = self.actor.best(steps.last, last)
        target = steps.reward + steps.discount * chosen(last, best)
        value = chosen(self.actor.values(params, {}, steps.observation), steps.action)
        loss = jnp.square(value - target)
        return loss, {"q_loss": loss}

    def gradient_step(self, state, batch, step, total):
        """Takes a step of Adam; the target network follows."""
        steps = jax.tree.map(lambda x: x[step], batch)
        sums, _ = gradient_sums(lambda x: self.loss(x, state, steps), state.params, steps.valid)
        gradient, metrics = total(sums).mean()
        rate = self.config.learning_rate
        params, optimizer = self.adam.step(state.params, state.optimizer, gradient, rate)
        targets = polyak(params, state.targets, self.config.target_rate)
        return state._replace(params=params, optimizer=optimizer, targets=targets), metrics
