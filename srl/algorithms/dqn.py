"""Deep Q-networks (Mnih et al., 2015, https://doi.org/10.1038/nature14236), and what improved them.

Double targets (van Hasselt et al., 2016, https://arxiv.org/abs/1509.06461), dueling outputs (Wang
et al., 2016, https://arxiv.org/abs/1511.06581), n-step returns, prioritised replay (Schaul et al.,
2016, https://arxiv.org/abs/1511.05952) and distributions of returns (C51, Bellemare et al., 2017,
https://arxiv.org/abs/1707.06887) can each be switched on and off; all of them but the noise are
Rainbow (Hessel et al., 2018, https://arxiv.org/abs/1710.02298).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from srl.algorithms.normalization import Statistics
from srl.algorithms.q_learning import QInstance, QLearning, chosen
from srl.algorithms.replay import (
    Draws,
    Replay,
    Transitions,
    draw_by_priority,
    empty,
    insert,
    transitions,
    windows,
    write,
)
from srl.algorithms.returns import valid_rows
from srl.errors import UserError
from srl.lazy import jax, jnp, optax
from srl.types import Array, Metrics, Tree, Unroll


@dataclass(frozen=True)
class DQN(QLearning):
    """The settings of DQN."""

    unroll_length: int = 8
    """Steps that are taken with one version of the network before they are learned from."""
    replay: int = 100_000
    """How many steps are remembered, of all environments."""
    warm_up: int = 2_000
    """Steps before learning begins."""
    batch_size: int = 128
    """Transitions of a gradient step."""
    samples_per_insert: float = 13.0
    """How often each step is learned from."""
    n_step: int = 1
    """Steps of a transition."""
    double: bool = True
    """Whether the network, and not its slow copy, chooses the actions of targets."""
    dueling: bool = False
    """Whether a state's value and the advantages of actions are outputs of their own."""
    priorities: float = 0.0
    """The exponent of priorities: 0 draws evenly, 0.6 is usual."""
    correction: float = 0.4
    """The exponent of the importance weights that correct for priorities; 1 corrects in full."""
    atoms: int = 1
    """Atoms of the distribution of returns; 1 learns its mean, 51 is usual otherwise."""
    value_range: tuple[float, float] = (-10.0, 10.0)
    """The returns of the least and of the last atom."""
    learning_rate: float = 1e-3
    """The step size of Adam."""
    max_grad_norm: float = 10.0
    """The norm to which longer gradients are shortened."""
    target_rate: float = 0.005
    """The part by which the slow network follows in each gradient step."""

    limits: ClassVar[Mapping[str, tuple[float, ...]]] = {
        **QLearning.limits,
        "replay": (1,),
        "warm_up": (0,),
        "batch_size": (1,),
        "samples_per_insert": (0.0,),
        "n_step": (1,),
        "priorities": (0.0, 1.0),
        "correction": (0.0, 1.0),
        "atoms": (1,),
        "learning_rate": (0.0,),
        "max_grad_norm": (0.0,),
        "target_rate": (0.0, 1.0),
    }

    def validate(self) -> None:
        """Raises UserError where settings are out of their limits or do not fit each other."""
        super().validate()
        low, high = self.value_range
        if low >= high:
            raise UserError(f"DQN with value_range={self.value_range}; expected (least, greatest)")
        if self.n_step > self.unroll_length:
            raise UserError(
                f"DQN with n_step={self.n_step} and unroll_length={self.unroll_length}: a "
                "transition lies within an unroll; give longer unrolls"
            )
        if self.network.memory:
            raise UserError(
                "DQN learns from single transitions, and the network has memory: take PQN or R2D2"
            )

    @property
    def instance(self) -> type[DQNInstance]:
        """The functions of DQN."""
        return DQNInstance


class DQNState(NamedTuple):
    """What DQN's learning changes; see `State`."""

    params: Tree
    optimizer: Tree
    key: Array
    n: Array
    observations: dict[str, Statistics]
    targets: Tree  # the slow network
    mass: Array  # of the priorities of a slot, the mean over all


class Prioritized(NamedTuple):
    """A replay, and the priority of the windows that begin at each of its rows."""

    unrolls: Replay
    priority: Array  # float32 [K, T, B]; 0 where there is no window to learn from


class Drawn(NamedTuple):
    """What the rounds learn from, [rounds, S, ...]."""

    transitions: Transitions
    draws: Draws
    priority: Array  # of each, over the sum of its slot's
    slot_mass: Array  # the sum of the slot's priorities


@dataclass(frozen=True)
class DQNInstance(QInstance[DQNState]):
    """DQN for one trained policy."""

    config: DQN

    @property
    def rounds(self) -> int:
        """Gradient steps for the steps of an update."""
        steps = self.config.unroll_length * max(self.slots, 1)
        return max(1, round(steps * self.config.samples_per_insert / self.config.batch_size))

    @property
    def optimizer(self) -> optax.GradientTransformation:
        """Adam with the gradient's norm bounded; the learning rate comes later."""
        clip = optax.clip_by_global_norm(self.config.max_grad_norm)
        return optax.flatten(optax.chain(clip, optax.scale_by_adam()))

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

    def _outputs(self, params: Tree, state: DQNState, observation: Tree) -> Array:
        inputs = self.normalizer.normalize(state.observations, observation)
        return self.network.policy_sequence(params, inputs)

    # The replay.

    def warm(self, n: Array) -> Array:
        """Whether update n learns: enough steps were taken."""
        return (n + 1) * (self.config.unroll_length * max(self.slots, 1)) >= self.config.warm_up

    @property
    def _blocks(self) -> int:
        """Unrolls that are remembered of each slot."""
        return max(1, self.config.replay // (self.config.unroll_length * max(self.slots, 1)))

    def empty_replay(self, unroll: Unroll) -> Prioritized:
        """Gives a replay for the steps that are to be remembered of the slots here."""
        unrolls = empty(unroll, self._blocks)
        return Prioritized(unrolls, jnp.zeros((*unrolls.action.shape[:2], len(unroll.slot))))

    def remember(self, state: DQNState, replay: Prioritized, unroll: Unroll) -> Prioritized:
        """Gives the replay with an unroll in it, whose priorities are its errors (Ape-X)."""
        unrolls = insert(replay.unrolls, unroll, state.n)
        steps, slots = unroll.reward.shape[0] - 1, unroll.reward.shape[1]
        starts = steps - self.config.n_step + 1
        error = jnp.ones((starts, slots))
        if self.config.priorities:
            window = windows(unroll, self.config.n_step + 1)
            drawn = transitions(window, self.config.discount)
            error = self._errors(state.params, state, drawn)[0].reshape(starts, slots)
        valid = valid_rows(unroll.terminated, unroll.truncated)[:starts]
        priority = jnp.zeros((steps, slots))
        priority = priority.at[:starts].set(jnp.where(valid, self._priority(error), 0.0))
        return Prioritized(unrolls, write(replay.priority, priority, state.n))

    def look(
        self, state: DQNState, replay: Prioritized, unroll: Unroll
    ) -> tuple[Prioritized, Drawn, dict[str, Any]]:
        """Draws the transitions of all rounds; also measures the priorities of the slots."""
        replay = self.remember(state, replay, unroll)
        _, sums = self.measure(state, unroll)
        masses = jnp.sum(replay.priority, axis=(0, 1))
        sums["mass"] = jnp.sum(masses)
        key = jax.random.wrap_key_data(state.key)
        share = self.config.batch_size / max(self.slots, 1)
        draws = draw_by_priority(key, replay.priority, state.n, unroll.slot, self.rounds, share)
        window = draws.take(replay.unrolls, self.config.n_step + 1)
        slot_mass = masses[draws.column]
        drawn = Drawn(
            transitions(window, self.config.discount),
            draws,
            priority=draws.of(replay.priority) / jnp.maximum(slot_mass, 1e-12),
            slot_mass=slot_mass,
        )
        return replay, drawn, sums

    def adapt(self, state: DQNState, sums: Any) -> DQNState:
        """Notes the mean of the slots' priorities."""
        return state._replace(mass=sums["mass"] / max(self.slots, 1))

    def revise(self, state: DQNState, replay: Prioritized, batch: Drawn, notes: Any) -> Prioritized:
        """Gives the replay with the errors of the rounds as priorities, the last of each window."""
        if not self.config.priorities:
            return replay
        valid = batch.transitions.valid & self.warm(state.n)
        known = batch.draws.of(replay.priority)
        priority = jnp.where(valid, self._priority(notes), known)

        def of_round(held: Array, row: tuple[Draws, Array]) -> tuple[Array, None]:
            draws, values = row
            return held.at[draws.block, draws.row, draws.column].set(values), None

        held, _ = jax.lax.scan(of_round, replay.priority, (batch.draws, priority))
        return replay._replace(priority=held)

    def _priority(self, error: Array) -> Array:
        return (jnp.abs(error) + 1e-3) ** self.config.priorities

    # Learning.

    def noted_gradient(
        self, state: DQNState, batch: Drawn, round: Array
    ) -> tuple[dict[str, Any], Array]:
        """Gives the sums of a round, and the errors of its transitions."""
        drawn = jax.tree.map(lambda x: x[round], batch)

        def compute() -> tuple[Tree, tuple[Metrics, Array]]:
            return jax.grad(self.loss, has_aux=True)(state.params, state, drawn)

        shapes = jax.eval_shape(compute)
        gradient, (metrics, errors) = jax.lax.cond(
            self.warm(state.n),
            compute,
            lambda: jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes),
        )
        count = jnp.sum(drawn.transitions.valid, dtype=jnp.float32)
        return {"gradient": gradient, "metrics": metrics, "count": count}, errors

    def gradient(self, state: DQNState, batch: Drawn, round: Array) -> dict[str, Any]:
        """Gives the sums of a round: of the loss's gradient, and of metrics."""
        return self.noted_gradient(state, batch, round)[0]

    def loss(self, params: Tree, state: DQNState, drawn: Drawn) -> tuple[Array, tuple[Any, Array]]:
        """Half the squared errors, or the cross-entropies of C51, each with its weight, summed."""
        error, loss, value = self._errors(params, state, drawn.transitions)
        valid = drawn.transitions.valid
        weight = jnp.ones_like(error)
        if self.config.priorities:
            weight = self._weight(state, drawn)
        metrics = {"q_loss": weight * loss, "q_value": value, "weight": weight}
        sums = {name: jnp.sum(jnp.where(valid, x, 0.0)) for name, x in metrics.items()}
        return sums["q_loss"], (sums, jax.lax.stop_gradient(error))

    def _weight(self, state: DQNState, drawn: Drawn) -> Array:
        """Importance weights (Schaul et al., 2016, section 3.4).

        A slot draws as much as any other, whatever its priorities; the first factor makes up for
        that, so that the expectation is that of one replay of all slots.
        """
        share = drawn.slot_mass / jnp.maximum(state.mass, 1e-12)
        starts = self.config.unroll_length - self.config.n_step + 1
        windows = starts * jnp.minimum(state.n + 1, self._blocks)  # of each slot
        odds = jnp.maximum(windows * drawn.priority * share, 1e-12)
        return share * odds**-self.config.correction

    def _errors(
        self, params: Tree, state: DQNState, drawn: Transitions
    ) -> tuple[Array, Array, Array]:
        """Gives the errors of transitions, their losses, and the values of their actions."""
        last = self._outputs(state.targets, state, drawn.last)
        chooser = last
        if self.config.double:
            chooser = self._outputs(jax.lax.stop_gradient(params), state, drawn.last)
        best = jnp.argmax(self.mask(drawn.last, self.values_of(chooser)), axis=-1)
        outputs = self._outputs(params, state, drawn.observation)
        value = chosen(self.values_of(outputs), drawn.action)
        if self.config.atoms == 1:
            target = drawn.reward + drawn.discount * chosen(self.values_of(last), best)
            error = target - value
            return error, 0.5 * jnp.square(error), value
        target = self._projected(drawn, _of_action(self.atoms_of(last), best))
        log_probs = jax.nn.log_softmax(_of_action(self.atoms_of(outputs), drawn.action))
        loss = -jnp.sum(target * log_probs, axis=-1)
        return loss, loss, value

    def _projected(self, drawn: Transitions, logits: Array) -> Array:
        """The distribution of targets over the atoms (Bellemare et al., 2017, algorithm 1)."""
        low, high = self.config.value_range
        returns, step = self._returns, (high - low) / (self.config.atoms - 1)
        moved = drawn.reward[..., None] + drawn.discount[..., None] * returns
        distance = jnp.abs(moved.clip(low, high)[..., None] - returns) / step
        share = jnp.clip(1 - distance, 0.0, 1.0)  # of each atom's mass, to each atom
        return jnp.einsum("...i,...ij->...j", jax.nn.softmax(logits), share)

    def update(self, state: DQNState, sums: Any) -> tuple[DQNState, Metrics]:
        """Takes one step of Adam, and moves the slow network."""
        mean = jax.tree.map(lambda x: x / jnp.maximum(sums["count"], 1), sums)
        steps, optimizer = self.optimizer.update(mean["gradient"], state.optimizer, state.params)
        rate, follow = self.config.learning_rate, self.config.target_rate
        params = jax.tree.map(lambda p, step: p - rate * step, state.params, steps)
        targets = jax.tree.map(lambda t, p: t + follow * (p - t), state.targets, params)
        moved = state._replace(params=params, optimizer=optimizer, targets=targets)
        warm = self.warm(state.n)
        state = jax.tree.map(lambda new, old: jnp.where(warm, new, old), moved, state)
        return state, {**mean["metrics"], "grad_norm": optax.tree.norm(mean["gradient"])}


def _of_action(logits: Array, action: Array) -> Array:
    """The logits of the action taken: [..., actions, atoms] and [...] to [..., atoms]."""
    one_hot = action[..., None] == jnp.arange(logits.shape[-2])
    return jnp.sum(jnp.where(one_hot[..., None], logits, 0.0), axis=-2)
