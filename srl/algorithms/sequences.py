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

from srl.algorithms.algorithm import Instance, Total
from srl.algorithms.carried_memory import CarriedMemory, empty_memory, memory_after, memory_before
from srl.algorithms.normalization import Statistics
from srl.algorithms.off_policy import Sampling, replay_for
from srl.algorithms.replay import Replay, Rows, Transitions, transitions
from srl.algorithms.replay_ratio import ReplayRatio
from srl.algorithms.uniform_replay import Sample, expect_n_step_fits
from srl.core.errors import UserError, expect_apart
from srl.core.lazy import jax, jnp
from srl.core.types import Array, Metrics, Tree, Unroll


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


class Batch(NamedTuple):
    """The transitions for all gradient steps, [gradient_steps, S, ...]."""

    transitions: Transitions | Windows
    slot: Array  # int32, of the run's slots
    observations: dict[str, Statistics]


NamedNetworks = Mapping[str, tuple[str, Network, Tree]]
"""Networks by name: the name of the stored memory, the network, and its parameters."""


@dataclass(frozen=True)
class StepsInstance(Instance):
    """An actor, critics and target networks, which learn from steps drawn from a replay.

    Without memory these are single transitions, with memory those of sequences.
    """

    config: Any

    @cached_property
    def critics(self) -> Any:
        """The critics; each algorithm gives them."""
        raise NotImplementedError

    @abstractmethod
    def targets(self, state: Any) -> NamedNetworks:
        """Gives the target networks by name; see `NamedNetworks`."""
        raise NotImplementedError

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

    @cached_property
    def ratio(self) -> ReplayRatio:
        """The gradient steps of each update; a batch has as many steps as without memory."""
        steps = self.config.unroll_length
        ratio = ReplayRatio.of(self.config, self.slots, steps / math.ceil(steps / self.sequence))
        return replace(ratio, batch_size=max(1, self.config.batch_size // self.sequence))

    @cached_property
    def replay(self) -> Sampling:
        """The replay of windows: of transitions or, with memory, of sequences."""
        length = self.sequence + self.config.n_step
        return replay_for(self, length, self.sequence, self.burn_in)

    @property
    def gradient_steps(self) -> int:
        """Gradient steps of an update, of the critics."""
        return self.ratio.gradient_steps

    def empty_replay(self, unroll: Unroll) -> Any:
        """Gives a replay of nothing for the slots of this unroll."""
        if not self.remembers:
            return self.replay.empty(unroll)
        nothing = self.critics.initial_memory(unroll.reward.shape[1])
        every = jnp.broadcast_to(nothing, (len(unroll.memory), *nothing.shape))
        memory = {"actor": unroll.memory, "critics": every}
        unrolls = self.replay.empty(unroll._replace(memory=memory))
        return Remembered(unrolls, empty_memory(nothing, unroll))

    def prepare(
        self, state: Any, replay: Any, unroll: Unroll, total: Total
    ) -> tuple[Any, Any, Batch]:
        """Inserts the unroll, and draws the transitions of all gradient steps."""
        seen = self.normalizer.seen(state.observations, unroll, total)
        if not self.remembers:
            replay, sample = self._inserted_and_drawn(state, replay, unroll, total)
            steps = sample.transitions(self.config.discount)
            return state, replay, Batch(steps, sample.draws.slot, seen)
        unroll, carried = self._with_critics_memory(state, replay.critics, unroll)
        unrolls, sample = self._inserted_and_drawn(state, replay.unrolls, unroll, total)
        windows = Windows(sample.rows, sample.ready)
        return state, Remembered(unrolls, carried), Batch(windows, sample.draws.slot, seen)

    def _inserted_and_drawn(
        self, state: Any, replay: Any, unroll: Unroll, total: Total
    ) -> tuple[Any, Sample]:
        """The replay with an unroll, and the windows for all gradient steps."""
        replay = self.replay.insert(replay, unroll, state.n)
        key = jax.random.wrap_key_data(state.key)
        return replay, self.replay.sample(key, replay, state.n, unroll.slot, total)

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
        self, drawn: Transitions | Windows, state: Any, **learning: Tree
    ) -> Transitions:
        """Gives the transitions of a gradient step, [S, ...], with the networks' memories.

        Those of sequences come one after the other, [sequence * S, ...]. The memories depend on
        the parameters, so that gradients reach back to the start of a sequence.

        Args:
            drawn: Of the gradient step.
            state: With the parameters.
            learning: Parameters by name, in place of the state's.
        """
        if isinstance(drawn, Transitions):
            return drawn
        actor: Any = self.actor
        params = {**state.params, **learning}
        networks = {
            "actor": ("actor", actor, params["actor"]),
            "critics": ("critics", self.critics, params["critics"]),
            **self.targets(state),
        }
        return self.of_windows(drawn, networks, state.observations)

    def of_windows(self, windows: Windows, networks: NamedNetworks, statistics: Any) -> Transitions:
        """Gives the transitions of the sequences in windows; see `transitions_of`.

        Args:
            windows: Of a gradient step.
            networks: That learn, or that targets are computed with.
            statistics: Of observations.
        """
        window = windows.rows
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
        found = found._replace(valid=found.valid & windows.ready)
        return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), found)

    def finish(
        self, state: Any, replay: Any, batch: Batch, metrics: Metrics
    ) -> tuple[Any, Any, Metrics]:
        """Takes in the statistics of observations, and counts the update."""
        learned = state._replace(n=state.n + 1, observations=batch.observations)
        return learned, replay, self.ratio.means(metrics)


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
