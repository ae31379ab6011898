"""Deep Q-networks (Mnih et al., 2015, https://doi.org/10.1038/nature14236), and what improved them.

Double targets (van Hasselt et al., 2016, https://arxiv.org/abs/1509.06461), dueling outputs (Wang
et al., 2016, https://arxiv.org/abs/1511.06581), n-step returns, prioritised replay (Schaul et al.,
2016, https://arxiv.org/abs/1511.05952) and distributions of returns (C51, Bellemare et al., 2017,
https://arxiv.org/abs/1707.06887) can each be switched on and off. Rainbow (Hessel et al., 2018,
https://arxiv.org/abs/1710.02298) has all of them, noisy layers, and hidden layers of their own for
dueling outputs; here those are one linear layer of the same features.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from srl.algorithms.normalization import Statistics
from srl.algorithms.off_policy import OffPolicy, OffPolicyInstance, summed
from srl.algorithms.q_learning import QInstance, QLearning, chosen
from srl.algorithms.replay import (
    Draws,
    Replay,
    Transitions,
    draw,
    draw_by_priority,
    transitions,
    windows,
    write,
)
from srl.core.errors import UserError
from srl.core.lazy import jax, jnp, optax
from srl.core.schedule import Adjustable
from srl.core.types import Array, Tree, Unroll
from srl.networks import MLP, AutoNetwork, Network


@dataclass(frozen=True)
class DQN(QLearning, OffPolicy):
    """The settings of DQN."""

    network: Network = field(default_factory=lambda: AutoNetwork(MLP(width=128, activation="relu")))
    """Network of the action values; by default chosen by what is observed."""
    unroll_length: int = 8
    """Steps that are taken with one version of the network before they are learned from."""
    replay: int = 100_000
    """The capacity of the replay, in steps of all environments."""
    warm_up: int = 2_000
    """Steps before learning begins."""
    batch_size: int = 128
    """Transitions of a gradient step."""
    samples_per_insert: float = 13.0
    """The number of times that each step is learned from."""
    n_step: int = 3
    """Steps of a transition; 3 are Rainbow's."""
    exploration: float = 0.5
    """The part of the run in which the share of random actions falls."""
    double: bool = True
    """True if the network, and not the target network, chooses the actions of targets."""
    dueling: bool = False
    """True if a state's value and the advantages of actions are separate outputs: of one linear
    layer, where Wang et al. and Rainbow give each a hidden layer, too."""
    priorities: float = 0.0
    """The exponent of priorities: 0 draws evenly, 0.6 is usual."""
    correction: float = 0.4
    """The exponent of the importance weights that correct for priorities; 1 corrects in full. It
    stays as it is, as in Ape-X; Schaul et al. raise it to 1 over the run."""
    atoms: int = 1
    """Atoms of the distribution of returns; 1 learns its mean, 51 is usual otherwise."""
    value_range: tuple[float, float] = (-10.0, 10.0)
    """The returns of the least and of the last atom; those beyond count as the nearest of them."""
    learning_rate: Adjustable = 2.5e-4
    """The step size of Adam."""
    max_grad_norm: Adjustable = 10.0
    """The norm to which longer gradients are shortened."""

    limits: ClassVar[Mapping[str, tuple[float, ...]]] = {
        **QLearning.limits,
        **OffPolicy.limits,
        "priorities": (0.0, 1.0),
        "correction": (0.0, 1.0),
        "atoms": (1,),
        "learning_rate": (0.0,),
        "max_grad_norm": (0.0,),
    }

    adjustable = ("learning_rate", "max_grad_norm")

    def validate(self) -> None:
        """Raises UserError where settings are out of their limits or do not fit each other."""
        super().validate()
        if len(self.value_range) != 2 or self.value_range[0] >= self.value_range[1]:
            raise UserError(f"DQN with value_range={self.value_range}; expected (least, greatest)")

    @property
    def instance(self) -> type[DQNInstance]:
        """The functions of DQN."""
        return DQNInstance


class DQNState(NamedTuple):
    """The state of DQN's learning; see `State`."""

    params: Tree
    optimizer: Tree
    key: Array
    n: Array
    observations: dict[str, Statistics]
    targets: Tree  # the target network's parameters
    mass: Array  # of the priorities of a slot, the mean over all


class Prioritized(NamedTuple):
    """A replay, and the priority of the windows of rows that are drawn from it."""

    unrolls: Replay
    priority: Tree  # float32 [K, W, B], of the W windows of an unroll; 0: nothing to learn from;
    # () where all are drawn alike


class DrawnWindows(NamedTuple):
    """The batches for the rounds to learn from, [rounds, S, ...]."""

    window: Any  # what `window_of` makes of the rows: of DQN, transitions
    ready: Array  # bool, whether its slot is learned from
    draws: Draws
    priority: Tree = ()  # of each, over the sum of its slot's; () where all are drawn alike
    slot_mass: Tree = ()  # the sum of the slot's priorities
    windows: Tree = ()  # how many there are of the slot


@dataclass(frozen=True)
class DQNInstance(QInstance[DQNState], OffPolicyInstance[DQNState]):
    """DQN for one trained policy."""

    config: DQN

    @property
    def optimizer(self) -> optax.GradientTransformation:
        """Adam with the gradient's norm bounded."""
        clip = optax.clip_by_global_norm(self.config.max_grad_norm)
        return optax.flatten(optax.chain(clip, optax.adam(self.config.learning_rate)))

    def slow(self, params: Tree) -> Tree:
        """Gives all parameters."""
        return params

    @property
    def num_outputs(self) -> int:
        """So many atoms for each action, and for the state where it is dueling."""
        return (self.num_actions + self.config.dueling) * self.config.atoms

    @cached_property
    def _returns(self) -> np.ndarray:
        """The return that each atom stands for."""
        return np.linspace(*self.config.value_range, self.config.atoms, dtype=np.float32)

    def init(self, key: Array) -> DQNState:
        """Draws parameters."""
        fields = super().init(key)._asdict()
        targets = jax.tree.map(jnp.copy, fields["params"])
        return DQNState(**fields, targets=targets, mass=jnp.ones(()))

    # Values of actions.

    def atoms_of(self, outputs: Array) -> Array:
        """Gives each action's part of the outputs: values, or logits [..., actions, atoms]."""
        parts = outputs.reshape(*outputs.shape[:-1], -1, self.config.atoms)
        if self.config.dueling:
            value, advantage = parts[..., :1, :], parts[..., 1:, :]
            parts = value + advantage - jnp.mean(advantage, axis=-2, keepdims=True)
        return parts

    def values_of(self, outputs: Array) -> Array:
        """Gives the values of actions, [..., actions]."""
        parts = self.atoms_of(outputs)
        if self.config.atoms == 1:
            return parts[..., 0]
        return jnp.sum(jax.nn.softmax(parts) * self._returns, axis=-1)

    # The replay.

    @property
    def length(self) -> int:
        """Rows of a window."""
        return self.config.n_step + 1

    @property
    def stride(self) -> int:
        """Rows from one window's first to the next one's."""
        return 1

    @property
    def starts(self) -> int:
        """Windows of an unroll."""
        return (self.config.unroll_length + 1 - self.length) // self.stride + 1

    def window_of(self, rows: Replay) -> Any:
        """Makes what is learned from of windows of rows, [rounds, length, S, ...]."""
        return transitions(rows, self.config.discount)

    def empty_replay(self, unroll: Unroll) -> Prioritized:
        """Gives a replay for the steps that are to be remembered of the slots here."""
        unrolls = super().empty_replay(unroll)
        if not self.config.priorities:
            return Prioritized(unrolls, ())
        return Prioritized(unrolls, jnp.zeros((self.blocks, self.starts, len(unroll.slot))))

    def remember(self, state: DQNState, replay: Prioritized, unroll: Unroll) -> Prioritized:
        """Gives the replay with an unroll in it, whose priorities are its errors (Ape-X)."""
        unrolls = super().remember(state, replay.unrolls, unroll)
        if not self.config.priorities:
            return Prioritized(unrolls, ())
        window = self.window_of(windows(unroll, self.length, self.stride))
        window = jax.tree.map(lambda x: x[0], window)
        error = self.errors(state.params, state, window)[0]
        priority = self.priority(error, window.valid).reshape(self.starts, -1)
        priority = write(replay.priority, priority, state.n)
        return Prioritized(unrolls, jnp.where(_there(unrolls, state.n), priority, 0.0))

    def look(
        self, state: DQNState, replay: Prioritized, unroll: Unroll
    ) -> tuple[Prioritized, DrawnWindows, dict[str, Any]]:
        """Draws the windows of all rounds; also measures the priorities of the slots."""
        replay, drawn, sums = super().look(state, replay, unroll)
        if not self.config.priorities:
            return replay, drawn, sums
        return replay, drawn, {**sums, "mass": jnp.sum(_masses(replay))}

    def recall(self, state: DQNState, replay: Prioritized, batch: Unroll) -> DrawnWindows:
        """Draws the windows of all rounds."""
        key, slot = jax.random.wrap_key_data(state.key), batch.slot
        ready = self.ready(replay.unrolls, state.n)
        drawn_for = slot, self.rounds, self.share
        turn = self.rounds_before(state.n)
        if not self.config.priorities:
            draws = draw(key, replay.unrolls, state.n, *drawn_for, self.starts, turn)
            return DrawnWindows(self._taken(replay, draws), ready[draws.column], draws)

        draws = draw_by_priority(key, replay.priority, state.n, *drawn_for, turn)
        slot_mass = _masses(replay)[draws.column]
        unrolls = jnp.sum(_there(replay.unrolls, state.n)[:, 0], axis=0)
        return DrawnWindows(
            self._taken(replay, draws),
            ready[draws.column],
            draws,
            priority=draws.of(replay.priority) / jnp.maximum(slot_mass, 1e-12),
            slot_mass=slot_mass,
            windows=self.starts * unrolls[draws.column],
        )

    def _taken(self, replay: Prioritized, draws: Draws) -> Any:
        """Gives what is learned from of the drawn windows."""
        first = draws._replace(row=draws.row * self.stride)
        return self.window_of(first.take(replay.unrolls, self.length, self.stack))

    def adapt(self, state: DQNState, sums: Any) -> DQNState:
        """Notes the mean of the slots' priorities."""
        if not self.config.priorities:
            return state
        return state._replace(mass=sums["mass"] / max(self.slots, 1))

    def revise(
        self, state: DQNState, replay: Prioritized, batch: DrawnWindows, notes: Any
    ) -> Prioritized:
        """Gives the replay with the priorities that the rounds noted, the last of each window."""
        if not self.config.priorities:
            return replay
        noted = self.due(state.n, jnp.arange(self.rounds))[:, None] & batch.ready

        def of_round(held: Array, row: tuple[Draws, Array, Array]) -> tuple[Array, None]:
            draws, noted, values = row
            place = draws.block, draws.row, draws.column
            known = held[place]
            return held.at[place].set(jnp.where(noted & (known > 0), values, known)), None

        held, _ = jax.lax.scan(of_round, replay.priority, (batch.draws, noted, notes))
        return replay._replace(priority=held)

    def priority(self, error: Array, valid: Array) -> Array:
        """Gives the priorities of windows by their errors; 0 where there is nothing to learn."""
        return jnp.where(valid, (jnp.abs(error) + 1e-3) ** self.config.priorities, 0.0)

    # Learning.

    def loss(
        self, params: Tree, state: DQNState, drawn: DrawnWindows, round: Array
    ) -> tuple[Array, tuple[dict[str, Any], Array]]:
        """Half the squared errors, or the cross-entropies of C51, each with its weight, summed."""
        del round
        error, loss, value = self.errors(params, state, drawn.window)
        weight = self._weight(state, drawn) if self.config.priorities else 1.0
        weight = jnp.broadcast_to(weight, loss.shape)
        metrics = {"q_loss": weight * loss, "q_value": value, "weight": weight}
        valid = drawn.window.valid
        priority = jax.lax.stop_gradient(self.priority(error, valid))
        return summed(weight * loss, metrics, valid & drawn.ready, priority)

    def _weight(self, state: DQNState, drawn: DrawnWindows) -> Array:
        """Importance weights (Schaul et al., 2016, section 3.4).

        A slot draws as much as any other, whatever its priorities; the first factor makes up for
        that, so that the expectation is that of one replay of all slots.
        """
        share = drawn.slot_mass / jnp.maximum(state.mass, 1e-12)
        odds = jnp.maximum(drawn.windows * drawn.priority * share, 1e-12)
        weight = share * odds**-self.config.correction
        return jnp.where(drawn.priority > 0, weight, 0.0)

    def errors(
        self, params: Tree, state: DQNState, drawn: Transitions
    ) -> tuple[Array, Array, Array]:
        """Gives the errors of transitions, their losses, and the values of their actions."""
        statistics = state.observations
        discount = jnp.where(self.possible(drawn.last), drawn.discount, 0.0)
        last = self.outputs(state.targets, statistics, drawn.last)
        chooser = last
        if self.config.double:
            chooser = self.outputs(jax.lax.stop_gradient(params), statistics, drawn.last)
        best = jnp.argmax(self.mask(drawn.last, self.values_of(chooser)), axis=-1)
        outputs = self.outputs(params, statistics, drawn.observation)
        value = chosen(self.values_of(outputs), drawn.action)
        if self.config.atoms == 1:
            target = drawn.reward + discount * chosen(self.values_of(last), best)
            error = target - value
            return error, 0.5 * jnp.square(error), value
        drawn = drawn._replace(discount=discount)
        target = self._projected(drawn, _of_action(self.atoms_of(last), best))
        log_probs = jax.nn.log_softmax(_of_action(self.atoms_of(outputs), drawn.action))
        loss = -jnp.sum(target * log_probs, axis=-1)
        # The divergence, which is what the loss can still fall by, is the error (Rainbow).
        divergence = loss + jnp.sum(jax.scipy.special.xlogy(target, target), axis=-1)
        return divergence, loss, value

    def _projected(self, drawn: Transitions, logits: Array) -> Array:
        """The distribution of targets over the atoms (Bellemare et al., 2017, algorithm 1)."""
        low, high = self.config.value_range
        returns, step = self._returns, (high - low) / (self.config.atoms - 1)
        moved = drawn.reward[..., None] + drawn.discount[..., None] * returns
        distance = jnp.abs(moved.clip(low, high)[..., None] - returns) / step
        share = jnp.clip(1 - distance, 0.0, 1.0)  # of each atom's mass, to each atom
        return jnp.einsum("...i,...ij->...j", jax.nn.softmax(logits), share)


def _there(unrolls: Replay, n: Array) -> Array:
    """Marks the unrolls of a replay that are known at update n, bool [K, 1, B]."""
    return (unrolls.update >= 0) & (unrolls.update <= n)  # a later one was undone by a restart


def _masses(replay: Prioritized) -> Array:
    """Sums the priorities of each slot, [B]."""
    return jnp.sum(replay.priority, axis=(0, 1))


def _of_action(logits: Array, action: Array) -> Array:
    """The logits of the action taken: [..., actions, atoms] and [...] to [..., atoms]."""
    one_hot = action[..., None] == jnp.arange(logits.shape[-2])
    return jnp.sum(jnp.where(one_hot[..., None], logits, 0.0), axis=-2)
