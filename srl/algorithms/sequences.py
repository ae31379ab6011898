"""Sequences of steps for networks with memory (R2D2; Kapturowski et al., 2019).

An unroll is divided into sequences, so that each step is learned from equally often. The rows
before a sequence bring the memory up to date (burn-in), from the memory that is stored with the
first of them. Actors and critics have memories of their own (Ni et al., 2022,
https://arxiv.org/abs/2110.05038): acting stores the actor's; the critics' are computed when an
unroll is inserted, and carried to the slot's next one.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol

from srl.algorithms.algorithm import Instance
from srl.algorithms.carried_memory import CarriedMemory, empty_memory, memory_after, memory_before
from srl.algorithms.off_policy import replay_for
from srl.algorithms.replay import Replay, Rows, Transitions, transitions
from srl.algorithms.replay_ratio import ReplayRatio
from srl.algorithms.uniform_replay import Sampling, expect_n_step_fits
from srl.core.errors import UserError, expect_apart
from srl.core.lazy import jax, jnp
from srl.core.types import Array, Tree, Unroll


class Network(Protocol):
    """A network, or an ensemble, that may have memory."""

    def initial_memory(self, batch: int) -> Tree:
        """Gives the memory of nothing, [batch, ...]; () where there is none."""
        ...

    def memories(self, params: Tree, statistics: Any, rows: Rows, memory: Tree) -> Array:
        """Gives the memory before each row and after the last, [L + 1, B, ...].

        Args:
            params: Of the network.
            statistics: Of observations.
            rows: [L, B, ...].
            memory: [B, ...], before the first row.
        """
        ...


class Remembered(NamedTuple):
    """A replay, and the memory that critics go on with."""

    unrolls: Replay
    critics: CarriedMemory


class Windows(NamedTuple):
    """Windows that sequences are taken from."""

    rows: Replay  # [..., burn_in + sequence + n_step, S, ...]
    ready: Array  # bool [..., S]


NamedNetworks = Mapping[str, tuple[str, Network, Tree]]
"""Networks by name: the name of the stored memory, the network, and its parameters."""


@dataclass(frozen=True)
class Steps:
    """The steps that SAC and TD3 learn from: single ones, or with memory those of sequences."""

    config: Any
    slots: int
    stack: Any
    critics: Network

    @property
    def remembers(self) -> bool:
        """True if the networks have memory."""
        return bool(self.config.network.memory)

    @property
    def sequence(self) -> int:
        """Steps that are learned from of each window."""
        return self.config.sequence if self.remembers else 1

    @property
    def burn_in(self) -> int:
        """Rows before each sequence."""
        return self.config.burn_in if self.remembers else 0

    @property
    def chunk(self) -> int:
        """Steps between the memories that are stored; 0 without memory."""
        numbers = self.config.unroll_length, self.sequence, self.burn_in
        return math.gcd(*numbers) if self.remembers else 0

    @property
    def ratio(self) -> ReplayRatio:
        """The gradient steps of each update; a batch has as many steps as without memory."""
        steps = self.config.unroll_length
        return ReplayRatio(
            self.slots,
            steps,
            max(1, self.config.batch_size // self.sequence),
            self.config.samples_per_insert,
            self.config.warm_up,
            steps / math.ceil(steps / self.sequence),
        )

    @property
    def replay(self) -> Sampling:
        """The replay of windows."""
        length = self.sequence + self.config.n_step
        return replay_for(self, length, self.sequence, self.burn_in)

    def empty(self, unroll: Unroll) -> Any:
        """Gives a replay of nothing for the slots of this unroll."""
        if not self.remembers:
            return self.replay.empty(unroll)
        nothing = self.critics.initial_memory(unroll.reward.shape[1])
        every = jnp.broadcast_to(nothing, (len(unroll.memory), *nothing.shape))
        memory = {"actor": unroll.memory, "critics": every}
        unrolls = self.replay.empty(unroll._replace(memory=memory))
        return Remembered(unrolls, empty_memory(nothing, unroll))

    def insert_and_draw(
        self, state: Any, replay: Any, unroll: Unroll, total: Any
    ) -> tuple[Any, Transitions | Windows, Array]:
        """Inserts an unroll, and draws the windows of all gradient steps.

        Returns:
            The replay, transitions [gradient_steps, S] or windows of more than one, and the run's
            slots, int32 [gradient_steps, S].
        """
        if not self.remembers:
            replay = self.replay.insert(replay, unroll, state.n)
            draw = state, replay, unroll.slot, total, self.config.discount
            steps, sample = self.replay.sample_transitions(*draw)
            return replay, steps, sample.draws.slot
        unroll, carried = self._with_critics_memory(state, replay.critics, unroll)
        unrolls = self.replay.insert(replay.unrolls, unroll, state.n)
        key = jax.random.wrap_key_data(state.key)
        sample = self.replay.sample(key, unrolls, state.n, unroll.slot, total)
        windows = Windows(sample.rows, sample.ready)
        return Remembered(unrolls, carried), windows, sample.draws.slot

    def _with_critics_memory(
        self, state: Any, carried: CarriedMemory, unroll: Unroll
    ) -> tuple[Unroll, CarriedMemory]:
        """The unroll with both memories before its chunks, and the critics' that is carried on."""
        nothing = self.critics.initial_memory(unroll.reward.shape[1])
        before = memory_before(nothing, unroll, carried)
        ended = unroll.terminated | unroll.truncated
        seen = jax.tree.map(lambda x: x[:-1], unroll.observation)
        rows = Rows(seen, unroll.action, ended[:-1])
        memories = self.critics.memories(state.params["critics"], state.observations, rows, before)
        memory = {"actor": unroll.memory, "critics": memories[: -1 : self.chunk]}
        return unroll._replace(memory=memory), memory_after(unroll, memories, carried)

    def transitions_of(
        self, drawn: Transitions | Windows, networks: NamedNetworks, statistics: Any
    ) -> Transitions:
        """Gives the transitions of a gradient step, [S, ...], with the networks' memories.

        Those of sequences come one after the other, [sequence * S, ...]. The memories depend on
        the parameters, so that gradients reach back to the start of a sequence.

        Args:
            drawn: Of the gradient step.
            networks: That learn, or that targets are computed with.
            statistics: Of observations.
        """
        if isinstance(drawn, Transitions):
            return drawn
        window = drawn.rows
        number = self.sequence + self.config.n_step
        rows = after_burn_in(window._replace(memory=(), begin=()), window.begin, number)

        def before(kind: str, network: Network, params: Tree) -> Array:
            def memories(rows: Replay, memory: Tree) -> Array:
                ended = rows.terminated | rows.truncated
                own = Rows(rows.observation, rows.action, ended)
                return network.memories(params, statistics, own, memory)

            memory = burnt_in(window, self.burn_in, window.memory[kind], memories)
            return memories(_first(rows, number - 1), memory)

        rows = rows._replace(memory={name: before(*x) for name, x in networks.items()})
        place = jnp.arange(self.sequence)[:, None] + jnp.arange(self.config.n_step + 1)
        steps = jax.tree.map(lambda x: x[jnp.minimum(place, len(x) - 1)], rows)
        found = transitions(steps, self.config.discount)
        found = found._replace(valid=found.valid & drawn.ready)
        return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), found)


@dataclass(frozen=True)
class StepsInstance(Instance):
    """An instance that learns from `Steps`, by an actor, critics and target networks."""

    config: Any

    @cached_property
    def critics(self) -> Any:
        """The critics; each algorithm gives them."""
        raise NotImplementedError

    @abstractmethod
    def targets(self, state: Any) -> NamedNetworks:
        """Gives the target networks by name; see `NamedNetworks`."""
        raise NotImplementedError

    @cached_property
    def steps(self) -> Steps:
        """The division of unrolls into steps to learn from."""
        return Steps(self.config, self.slots, self.stack, self.critics)

    @cached_property
    def ratio(self) -> ReplayRatio:
        """The gradient steps of each update."""
        return self.steps.ratio

    @cached_property
    def replay(self) -> Sampling:
        """The replay of windows: of transitions or, with memory, of sequences."""
        return self.steps.replay

    @property
    def chunk(self) -> int:
        """Steps between the memories that are stored."""
        return self.steps.chunk

    @property
    def gradient_steps(self) -> int:
        """Gradient steps of an update, of the critics."""
        return self.ratio.gradient_steps

    def empty_replay(self, unroll: Unroll) -> Any:
        """Gives a replay of nothing for the slots of this unroll."""
        return self.steps.empty(unroll)

    def transitions_of(
        self, drawn: Transitions | Windows, state: Any, **learning: Tree
    ) -> Transitions:
        """Gives the transitions of a gradient step, with memory by the parameters of networks.

        Args:
            drawn: Of the gradient step.
            state: With the parameters.
            learning: Parameters by name, in place of the state's.
        """
        actor: Any = self.actor
        params = {**state.params, **learning}
        networks = {
            "actor": ("actor", actor, params["actor"]),
            "critics": ("critics", self.critics, params["critics"]),
            **self.targets(state),
        }
        return self.steps.transitions_of(drawn, networks, state.observations)


def after_burn_in(rows: Tree, begin: Array, number: int) -> Tree:
    """Gives the rows after the burn-in, [number, S, ...].

    Args:
        rows: Of windows, [L, S, ...]; of actions, one row less.
        begin: int32 [S], the first of these rows.
        number: Of these rows.
    """
    place = begin + jnp.arange(number)[:, None]
    return jax.tree.map(lambda x: x[jnp.minimum(place, len(x) - 1), jnp.arange(x.shape[1])], rows)


def burnt_in(
    window: Replay, burn_in: int, memory: Tree, memories: Callable[[Replay, Tree], Array]
) -> Tree:
    """Gives the memory before the first row after the burn-in; no gradient reaches back.

    Args:
        window: Rows [L, S, ...], with `begin`.
        burn_in: The most rows of a burn-in.
        memory: [S, ...], before the first row.
        memories: Gives the memory before each of some rows and after the last.
    """
    if burn_in:
        earlier = _first(window._replace(memory=(), begin=()), burn_in)
        memory = memories(earlier, memory)[window.begin, jnp.arange(len(window.begin))]
    return jax.lax.stop_gradient(memory)


def _first(rows: Replay, number: int) -> Replay:
    return jax.tree.map(lambda x: x[:number], rows)


_AS_THEY_WERE = "memories that were stored are of the rows as they were"
_WITHOUT_MEMORY = {
    "prior": "prior data hold no memories of critics",
    "hindsight": _AS_THEY_WERE,
    "mirror": _AS_THEY_WERE,
}


_AFTER_MEMORY = 256  # units


def with_memory_settled(config: Any) -> Any:
    """Gives settings with the length of unrolls and the layer after memory, where left open.

    The layer is what actions and observations of now reach values by: in the memory itself, which
    forgets slowly, each step changes little.
    """
    network, length = config.network, config.unroll_length
    if network.memory and network.after_memory is None:
        network = replace(network, after_memory=_AFTER_MEMORY)
    return replace(config, network=network, unroll_length=length or (32 if network.memory else 8))


def expect_steps_fit(config: Any) -> None:
    """Raises UserError where steps, or with memory a burn-in and a sequence, do not fit unrolls."""
    expect_n_step_fits(config)
    if config.network.memory:
        for name, why in _WITHOUT_MEMORY.items():
            expect_apart(config, f"{name} and a network with memory", why, getattr(config, name))
    if config.network.memory and config.burn_in + config.sequence > config.unroll_length:
        raise UserError(
            f"{type(config).__name__} with burn_in={config.burn_in}, sequence={config.sequence} "
            f"and unroll_length={config.unroll_length}: an unroll of a network with memory holds a "
            "burn-in and a sequence or more"
        )
