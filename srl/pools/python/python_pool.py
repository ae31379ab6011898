"""The base of pools of Python environments: calls are checked here, before any work."""

from __future__ import annotations

import math
import sys
from abc import abstractmethod
from collections import deque
from collections.abc import Sequence
from typing import Any, NoReturn

import gymnasium
import numpy as np

from srl.core.errors import RunError, UserError
from srl.core.spaces import corner, has_choices, limits, outside, space_tree
from srl.core.tree import copy_tree, leaves_of, map_tree
from srl.core.types import Specs, Timestep, Tree
from srl.pools.exclusive import ExclusivePool, exclusive
from srl.pools.pool import as_actions, as_env_ids, checked_seed
from srl.pools.python.simulator import Rendered
from srl.pools.python.stepper import Control, Failure, Target
from srl.pools.timestep_arrays import Row, empty_timestep, slots_of


class PythonPool(ExclusivePool):
    """A pool whose environments are stepped by Python, here or in other processes.

    Environment i is row i of all that is written: of the timesteps of `reset` and `step`, and of
    `_slots`, the last timestep of each environment, from which `recv` gathers.
    """

    def __init__(self, name: str, num_envs: int, batch_size: int) -> None:
        super().__init__(name, num_envs, batch_size)
        self._fresh = np.ones(num_envs, bool)  # never reset
        self._flying = np.zeros(num_envs, bool)
        self._ready: deque[int] = deque()  # of those in flight, in the order they became so
        self._failures: list[Failure] = []  # not reported yet
        self._seed: int | None = None
        self._last: Row | None = None  # not to be written over yet
        self._own: list[_OwnRow] = []

    def _begin(self, specs: Specs, control: Control) -> None:
        self.specs, self._control = specs, control
        self._leaves = leaves_of(space_tree(specs.action))
        self._bounds = [limits(leaf) for leaf in self._leaves]
        # Agents some of whose choices in the common space are not their own; boxes are clipped.
        self._narrower = [
            (agent, i, own)
            for agent, (_, action) in enumerate(specs.agent_spaces)
            for i, own in enumerate(leaves_of(space_tree(action)))
            if own != self._leaves[i] and has_choices(own)
        ]
        self._slots: Row | None = None

    # ---- calls ----

    @exclusive
    def reset(
        self, seed: int | None = None, into: Row | None = None, mask: np.ndarray | None = None
    ) -> Timestep:
        """Starts new episodes; see the base class."""
        self._check_synchronous("reset")
        ids = self._masked(mask, into)
        row = self._row(into)
        self._prepare_reset(seed, ids)
        if ids.size:
            self._advance(None if mask is None else ids, row)
        self._raise_failures()
        return row.timestep

    @exclusive
    def step(self, actions: Tree, into: Row | None = None) -> Timestep:
        """Steps all environments; see the base class."""
        self._check_synchronous("step")
        self._check_reset(slice(None))
        checked = self._checked(actions, None)
        row = self._row(into)
        self._finish_started()
        copy_tree(checked, self._control.action)
        self._advance(None, row)
        self._raise_failures()
        return row.timestep

    @exclusive
    def async_reset(self, seed: int | None = None) -> None:
        """Asks for new episodes everywhere; see the base class."""
        ids = np.arange(self.num_envs, dtype=np.int32)
        self._prepare_reset(seed, ids)
        self._flying[:] = True
        self._begin_exchange(ids)

    @exclusive
    def send(self, actions: Tree, env_ids: np.ndarray) -> None:
        """Asks for a step of the given environments; see the base class."""
        ids = self._idle_ids(env_ids)
        self._check_reset(ids)
        checked = self._checked(actions, ids)
        for given, held in zip(*map(leaves_of, (checked, self._control.action)), strict=True):
            held[ids] = given
        self._flying[ids] = True
        self._begin_exchange(ids)

    def _begin_exchange(self, ids: np.ndarray) -> None:
        self._own_slots()
        self._start(ids)

    def _own_slots(self) -> Row:
        if self._slots is None:
            self._slots = self._make_rows(1)[0]
        return self._slots

    @exclusive
    def recv(self) -> Timestep:
        """Waits for the first environments that are ready; see the base class."""
        self._check_in_flight()
        while len(self._ready) < self.batch_size and not self._failures:
            self._work()
        self._raise_failures()
        ids = np.array([self._ready.popleft() for _ in range(self.batch_size)], np.int32)
        self._flying[ids] = False
        return self._gathered(ids)

    @exclusive
    def ready(self, seconds: float, others: Sequence[int] = ()) -> np.ndarray:
        """Gives all that are ready of the environments in flight.

        Args:
            seconds: The longest wait for the first of them, if other processes step them.
            others: Descriptors that end the wait too, once one of them is readable.

        Returns:
            Their numbers, int32 [n]; n may be 0. Their timesteps are rows of `last`.

        Raises:
            RunError: If an environment raised.
        """
        self._work(0.0 if self._ready else seconds, others)
        self._raise_failures()
        ids = np.array(self._ready, np.int32)
        self._ready.clear()
        self._flying[ids] = False
        return ids

    @property
    def last(self) -> Timestep:
        """The last timestep of all environments that `send` or `async_reset` started, [B, ...].

        It is the same memory always; rows of those in flight are being written.
        """
        return self._own_slots().timestep

    def _gathered(self, ids: np.ndarray) -> Timestep:
        """The present rows of the environments, as a batch."""
        assert self._slots is not None
        row = self._row(None)
        slots = slots_of(ids, len(self.specs.agents))
        names, last = Timestep._fields, self._slots.timestep
        for name, source, target in zip(names, last, row.timestep, strict=True):
            places = ids if name in _BY_ENVIRONMENT else slots
            for a, b in zip(leaves_of(source), leaves_of(target), strict=True):
                np.take(a, places, 0, b, mode="clip")  # other modes would write into a buffer first
        return row.timestep

    @exclusive
    def render(self, env_id: int) -> np.ndarray:
        """A picture of one environment; see the base class."""
        as_env_ids([env_id], self.num_envs)
        picture, failure, missing = self._picture(env_id)
        if missing:
            raise UserError(f"{self.name} cannot be rendered: {missing}")
        if failure:
            raise RunError(f"{self.name}: environment {env_id} could not be rendered:\n{failure}")
        if picture is None or picture.dtype != np.uint8 or picture.shape[2:] != (3,):
            raise UserError(
                f"{self.name}: environment {env_id} gave no picture, uint8 [height, width, 3]; "
                'pass render_mode="rgb_array"'
            )
        return picture

    # ---- the subclass's work ----

    @abstractmethod
    def _picture(self, env: int) -> Rendered:
        """Gives the result of rendering an environment."""

    @abstractmethod
    def _advance(self, ids: np.ndarray | None, row: Row) -> None:
        """Steps the environments, all by default, into a row; what fails goes to `_failures`."""

    @abstractmethod
    def _start(self, ids: np.ndarray) -> None:
        """Asks for a step of the environments into their slots."""

    @abstractmethod
    def _work(self, seconds: float = math.inf, others: Sequence[int] = ()) -> None:
        """Adds to `_ready`, or to `_failures`, some of the environments that were started.

        Where other processes step them, it may wait so long, or until a descriptor is readable.
        """

    @abstractmethod
    def _finish_started(self) -> None:
        """Ends what an earlier call started, be it one that was broken off."""

    def _raise_failures(self) -> None:
        """Raises RunError for the first failure; what failed is no longer in flight."""
        if not self._failures:
            return
        failures, self._failures = sorted(self._failures, key=lambda f: f.env), []
        self._flying[[failure.env for failure in failures]] = False
        more = f"\n{len(failures) - 1} more environments failed" if len(failures) > 1 else ""
        raise RunError(f"{self.name}: {failures[0].text}{more}") from failures[0].error

    # ---- checks ----

    def _check_synchronous(self, call: str) -> None:
        super()._check_synchronous(call)
        if np.count_nonzero(self._flying):
            raise UserError(f"environments are in flight; receive them before {call}")

    def _check_reset(self, ids: Any) -> None:
        if np.count_nonzero(self._fresh) and (fresh := self._fresh[ids]).any():
            env = np.arange(self.num_envs)[ids][fresh][0]
            raise UserError(f"environment {env} was never reset; call reset first")

    def _prepare_reset(self, seed: int | None, ids: np.ndarray) -> None:
        seed = checked_seed(seed)
        self._finish_started()
        self._ready.clear()
        self._failures.clear()
        self._fresh[ids] = self._flying[:] = False
        self._control.reset_next[ids] = True
        if seed is not None:
            self._seed = seed
            self._control.seed[ids] = ids.astype(np.uint64) + np.uint64(seed)  # modulo 2**64
            self._control.seeded[ids] = True

    def _checked(self, actions: Tree, ids: np.ndarray | None) -> Tree:
        """The actions of the environments as the control holds them: [n, A, ...]."""
        agents, count = len(self.specs.agents), self.num_envs if ids is None else len(ids)
        tree = as_actions(actions, self.specs.action, count * agents)
        arrays = leaves_of(tree)
        for array, leaf, (low, high) in zip(arrays, self._leaves, self._bounds, strict=True):
            floats = leaf.dtype.kind == "f"
            wrong = ~_fits(array, leaf.dtype) if floats else (array < low) | (array > high)
            if np.count_nonzero(wrong):
                self._raise_wrong_action(array, int(np.argwhere(wrong)[0][0]), ids, leaf)
        for agent, i, own in self._narrower:
            self._check_own(arrays[i], agent, own, ids)
        return map_tree(lambda x: x.reshape(count, agents, *x.shape[1:]), tree)

    def _check_own(
        self, array: np.ndarray, agent: int, own: gymnasium.Space, ids: np.ndarray | None
    ) -> None:
        """Checks that actions are the agent's own, unless they are ignored."""
        agents, control = len(self.specs.agents), self._control
        envs = slice(None) if ids is None else ids
        wrong = outside(array[agent::agents][(slice(None), *corner(own))], own)
        wrong = wrong.reshape(len(wrong), -1).any(1)
        wrong &= ~(control.reset_next[envs] | control.absent[envs, agent])
        if wrong.any():
            self._raise_wrong_action(array, int(np.argmax(wrong)) * agents + agent, ids, own)

    def _raise_wrong_action(
        self, array: np.ndarray, slot: int, ids: np.ndarray | None, space: gymnasium.Space
    ) -> NoReturn:
        agents = self.specs.agents
        env = slot // len(agents) if ids is None else ids[slot // len(agents)]
        whose = f" of {agents[slot % len(agents)]}" if len(agents) > 1 else ""
        fault = "not finite" if array.dtype.kind == "f" else f"not in {space}"
        raise UserError(f"environment {env}: the action{whose} {array[slot]} is {fault}")

    # ---- rows ----

    def _adopt(self, row: Row) -> Row:
        super()._adopt(row)
        row.core = Target(row.timestep, len(self.specs.agents))
        if len(row.timestep.env_id) == self.num_envs:
            row.timestep.env_id[:] = np.arange(self.num_envs)
        return row

    def _row(self, into: Row | None) -> Row:
        """The row to write into: the given one, or one of the pool's own without references."""
        self._check_row(into)
        if into is not None:
            return into
        for own in self._own:
            if own.row is not self._last and own.is_idle():
                return own.row
        if self.batch_size == self.num_envs:
            own = _OwnRow(self._make_rows(1)[0])
        else:  # for batches that are gathered here
            own = _OwnRow(self._adopt(Row(empty_timestep(self.specs, self.batch_size))))
        self._own.append(own)
        return own.row


def copy_rows(source: Timestep, target: Timestep, envs: np.ndarray | None, agents: int) -> None:
    """Copies the rows of some environments, or of all, each of so many agents.

    The source may have JAX's arrays.
    """
    if envs is None:
        return copy_tree(source, target)
    slots = slots_of(envs, agents)
    for name, from_, to in zip(Timestep._fields, source, target, strict=True):
        places = envs if name in _BY_ENVIRONMENT else slots
        for a, b in zip(leaves_of(from_), leaves_of(to), strict=True):
            b[places] = np.asarray(a)[places]


def rows_of(timestep: Timestep, envs: np.ndarray, agents: int) -> Timestep:
    """Gives copies of the rows of some environments, each of so many agents."""
    return _rows_at(timestep, envs, slots_of(envs, agents))


def part_of(timestep: Timestep, env: int, agents: int) -> Timestep:
    """Gives the rows of an environment of so many agents, in the same memory."""
    return _rows_at(timestep, slice(env, env + 1), slice(env * agents, (env + 1) * agents))


def _rows_at(timestep: Timestep, envs: Any, slots: Any) -> Timestep:
    places = (envs if name in _BY_ENVIRONMENT else slots for name in Timestep._fields)
    return Timestep(
        *(map_tree(lambda x, at=at: x[at], part) for at, part in zip(places, timestep, strict=True))
    )


_BY_ENVIRONMENT = ("episode_length", "statistics", "env_id", "lost")


class _OwnRow:
    """A row that is used again once its timestep, and every part of it, is no longer referenced."""

    def __init__(self, row: Row) -> None:
        self.row = row
        self._watched = _held_by(row.timestep)
        self._idle = self._references()

    def is_idle(self) -> bool:
        return self._references() == self._idle

    def _references(self) -> list[int]:
        return [sys.getrefcount(x) for x in self._watched]


def _held_by(timestep: Timestep) -> list[Any]:
    """Everything whose holder may still read the timestep."""
    arrays = [leaf for field in timestep for leaf in leaves_of(field)]
    # A part of an array holds the array at its base.
    return [timestep, *_trees(timestep.observation), *arrays, *(x.base for x in arrays)]


def _trees(tree: Tree) -> list[Any]:
    """The dicts and tuples of a tree."""
    if isinstance(tree, dict):
        return [tree, *(inner for part in tree.values() for inner in _trees(part))]
    if isinstance(tree, tuple):
        return [tree, *(inner for part in tree for inner in _trees(part))]
    return []


def _fits(array: np.ndarray, dtype: Any) -> np.ndarray:
    """Marks the numbers that are finite in a type of floats."""
    if array.dtype == dtype:
        return np.isfinite(array)
    with np.errstate(over="ignore"):
        return np.isfinite(array.astype(dtype))
