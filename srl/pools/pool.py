"""The interface of every pool."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from gymnasium.vector import AutoresetMode

from srl.core.errors import UserError, expect
from srl.core.spaces import Space, shaped_like, space_tree
from srl.core.tree import leaves_of, map_tree, names_of
from srl.core.types import Specs, Timestep, Tree
from srl.pools.timestep_arrays import Row, Rows, empty_timestep, slots_of, timestep_at

if TYPE_CHECKING:
    from srl.pools.functional.pool import FunctionalXla
    from srl.pools.mixture import MixtureXla
    from srl.pools.native.xla import Xla


class Pool(ABC):
    """N environments of A agents each, stepped together; B = N * A slots.

    Autoreset is next-step: the step after an episode's end ignores the action and gives the first
    observation of the next episode, with reward 0. Returned arrays stay unchanged while they are
    referenced; those of a given row belong to it.

    A synchronous pool (`batch_size == num_envs`) has `reset` and `step`; any pool has
    `async_reset`, `send` and `recv`, which gives the first `batch_size` environments that are
    ready. One thread at a time may use a pool.
    """

    specs: Specs
    num_envs: int
    batch_size: int
    autoreset_mode: ClassVar = AutoresetMode.NEXT_STEP
    """The mode of every pool; `srl.make_vec` gives the other two."""
    _token: object
    _unreceived: Timestep | None = None
    saves_exactly: bool = False
    """True if `save` and `restore` keep everything."""
    lesson: int = 0
    """The lesson of a curriculum that its environments are of."""
    skew: float = 0.0
    """Seconds of the last `step` that its worker processes waited for the slowest of them, in their
    mean; 0 of a pool without such processes."""
    close_failure: str = ""
    """The failure to close the environments of this process; empty if there was none."""

    @abstractmethod
    def reset(
        self, seed: int | None = None, into: Row | None = None, mask: np.ndarray | None = None
    ) -> Timestep:
        """Starts new episodes; environment i is seeded with `seed + i`, modulo 2**64.

        Args:
            seed: From 0 to 2**64 - 1; by default each environment's random numbers continue.
            into: The row to write; by default unreferenced memory of the pool.
            mask: bool [N], True for environments to reset; by default all. It needs `into`, of
                which only the rows of these environments are written.

        Raises:
            UserError: If the pool is asynchronous, or the mask does not fit.
            RunError: If an environment raised; it is named.
        """

    @abstractmethod
    def step(self, actions: Tree, into: Row | None = None) -> Timestep:
        """Steps all environments.

        Args:
            actions: [B, ...], of the action space's dtypes and within it.
            into: The row to write; by default unreferenced memory of the pool.

        Raises:
            UserError: If an action has a wrong shape or type or is out of the space.
            RunError: If an environment raised, or gave values outside of its space.
        """

    # The next three are for pools that only step all environments at once; others have their own.

    def async_reset(self, seed: int | None = None) -> None:
        """Starts new episodes in all environments; `recv` gives them."""
        self._unreceived = self.reset(seed)

    def send(self, actions: Tree, env_ids: np.ndarray) -> None:
        """Starts a step of the given environments: actions [len(env_ids) * A, ...]."""
        ids, agents = as_env_ids(env_ids, self.num_envs), len(self.specs.agents)
        if sorted(ids.tolist()) != list(range(self.num_envs)):
            raise UserError(f"env_ids are {ids}; expected each of the {self.num_envs} environments")
        given = as_actions(actions, self.specs.action, self.num_envs * agents)
        order = slots_of(np.argsort(ids), agents)
        self._unreceived = self.step(map_tree(lambda x: x[order], given))

    def recv(self) -> Timestep:
        """Waits for the first `batch_size` environments that are ready, named by `env_id`."""
        if self._unreceived is None:
            raise UserError("no step is in progress: call async_reset or send before recv")
        timestep, self._unreceived = self._unreceived, None
        return timestep

    def rows(self, length: int) -> Rows:
        """Gives memory for `length` timesteps, each to be passed as `into`."""
        return self.rows_over(empty_timestep(self.specs, self.num_envs, (length,)))

    def rows_over(self, timesteps: Timestep) -> Rows:
        """Gives rows in memory of the caller's, each to be passed as `into`.

        Args:
            timesteps: Arrays [length, ...] as those of `rows`; the parts of one timestep must each
                be contiguous, the timesteps need not be.

        Raises:
            UserError: If they have another shape or dtype.
        """
        self._expect_rows(timesteps)
        parts = [timestep_at(timesteps, t) for t in range(len(timesteps.reward))]
        return Rows(timesteps, [self._adopt(Row(part)) for part in parts])

    def _expect_rows(self, timesteps: Timestep) -> None:
        """Raises UserError if memory is of another form than that of `rows`."""

        def no_memory(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
            return np.broadcast_to(np.zeros((), dtype), shape)

        length = (len(timesteps.reward),)
        expected = empty_timestep(self.specs, self.num_envs, length, no_memory)._asdict()
        given = timesteps._asdict()
        names = leaves_of(names_of(expected))
        if leaves_of(names_of(given)) != names:
            raise UserError("the memory's observations have other names than the pool's")
        for name, own, leaf in zip(names, leaves_of(given), leaves_of(expected), strict=True):
            if (own.shape, own.dtype) != (leaf.shape, leaf.dtype):
                raise UserError(
                    f"the memory for {name} is {own.dtype}{list(own.shape)}; expected "
                    f"{leaf.dtype}{list(leaf.shape)}"
                )

    def render(self, env_id: int) -> np.ndarray:
        """A picture of one environment, uint8 [height, width, 3].

        Raises:
            UserError: If the environment has none; most need the option render_mode="rgb_array".
        """
        raise UserError(f"{type(self).__name__} has no pictures")

    def expect_synchronous(self, user: str) -> None:
        """Raises UserError if `recv` gives only some environments, and `user` needs all."""
        if self.batch_size != self.num_envs:
            raise UserError(
                f"the pool is asynchronous, with batch_size={self.batch_size} of {self.num_envs}; "
                f"{user} steps all: make it with batch_size=num_envs"
            )

    def _masked(self, mask: np.ndarray | None, into: Row | None) -> np.ndarray:
        """The environments that `mask` names, all without one: int32 [n]."""
        if mask is None:
            return np.arange(self.num_envs, dtype=np.int32)
        mask = as_array("the mask", mask)
        if mask.shape != (self.num_envs,) or mask.dtype != np.bool_:
            raise UserError(
                f"the mask has shape {mask.shape}, dtype {mask.dtype}; expected bool "
                f"({self.num_envs},)"
            )
        if into is None:
            raise UserError("a reset with a mask needs `into`, the row that is written in part")
        return np.flatnonzero(mask).astype(np.int32)

    def _adopt(self, row: Row) -> Row:
        """Prepares a row for `into`."""
        row.owner = self._token
        return row

    def _check_row(self, into: Row | None) -> None:
        if into is not None and (not isinstance(into, Row) or into.owner is not self._token):
            raise UserError("`into` is a row of another pool; take it from this pool's rows()")

    def xla(self) -> Xla | FunctionalXla | MixtureXla:
        """The pool's calls for use inside `jax.jit`.

        Raises:
            UserError: Of a pool that has none; native pools have them.
        """
        raise UserError(
            f"{type(self).__name__} has no xla(): only pools of native environments "
            "(native:...) can be stepped inside a compiled program"
        )

    def enter(self, lesson: int) -> None:
        """Goes on to another lesson, where there are any; see `LessonPool`."""
        raise NotImplementedError

    def save(self) -> bytes:
        """Gives the state of all environments; see `saves_exactly`."""
        return b""

    def restore(self, state: bytes) -> None:
        """Restores a saved state; does nothing if it is empty."""
        return None

    @abstractmethod
    def close(self) -> None:
        """Ends the environments; any later call is an error, but a second close does nothing.

        If an environment's close raises or hangs, there is a warning, and the processes that the
        environments started are killed. The others are closed in any case.

        Raises:
            UserError: While another thread is in a call.
        """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def longest_episode(specs: Iterable[Specs]) -> int | None:
    """Gives the most steps of an episode among several; None if one has no limit."""
    limits = [each.max_episode_steps for each in specs]
    return None if None in limits else max(filter(None, limits))


def checked_seed(seed: Any) -> int | None:
    """The seed of a reset, as an int.

    Raises:
        UserError: If it is neither None nor an integer from 0 to 2**64 - 1.
    """
    if seed is None:
        return None
    whole = isinstance(seed, int | np.integer) and not isinstance(seed, bool)
    expect(whole and 0 <= seed < 2**64, "seed", seed, "an integer from 0 to 2**64 - 1, or None")
    return int(seed)


def seed_offset(salt: str) -> int:
    """Gives a distance between seeds, of 29 bits: two of them added to 31 bits fit 32.

    Simulators take seeds of 32 bits, or modulo 2**31: those of few digits would meet.
    """
    return int.from_bytes(hashlib.sha256(salt.encode()).digest()[:4], "little") >> 3


def as_array(name: str, given: Any) -> np.ndarray:
    """An argument as an array.

    Raises:
        UserError: If it is ragged.
    """
    try:
        return np.asarray(given)
    except ValueError as error:
        raise UserError(f"{name} cannot be made an array: {error}") from None


def as_env_ids(env_ids: Any, num_envs: int) -> np.ndarray:
    """Gives numbers of environments as int32 [n].

    Raises:
        UserError: If they are no integers in one axis, or there is no such environment.
    """
    ids = as_array("env_ids", env_ids)
    if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
        raise UserError(f"env_ids have shape {ids.shape}, dtype {ids.dtype}; expected [n] ints")
    wrong = (ids < 0) | (ids >= num_envs)
    if np.count_nonzero(wrong):
        raise UserError(f"environment id {ids[wrong][0]}; expected 0 to {num_envs - 1}")
    return ids.astype(np.int32)


def as_actions(actions: Tree, space: Space, slots: int, name: str = "actions") -> Tree:
    """Gives actions as arrays [slots, ...], of integers where their space has integers.

    Args:
        actions: Of any kind.
        space: Of one slot's action.
        slots: Their number.
        name: What messages call them.

    Raises:
        UserError: If they are of another form, shape or kind.
    """

    def array_of(value: Any, leaf: Space, name: str) -> np.ndarray:
        array, shape = as_array(name, value), (slots, *(leaf.shape or ()))
        if array.shape != shape:
            raise UserError(f"{name} have shape {array.shape}; expected {shape}")
        if array.dtype.kind not in ("iuf" if np.dtype(leaf.dtype).kind == "f" else "iu"):
            raise UserError(f"{name} are {array.dtype}; expected {np.dtype(leaf.dtype)}")
        return array

    return shaped_like(actions, space_tree(space), name, array_of)
