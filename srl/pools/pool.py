"""The face of every pool, and the memory that its results are written into."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from srl.errors import UserError, expect
from srl.tree import map_tree
from srl.types import Specs, Timestep, Tree

if TYPE_CHECKING:
    from srl.pools.native.xla import Xla


@dataclass(frozen=True)
class Contest:
    """The statistic that tells how a game between two kinds of agents goes."""

    statistic: str
    """One of the environment's."""
    meaning: str
    """What it counts, in words."""
    raised_by: str
    """The kind of agents that want it high: hider, of hider_0 and hider_1."""
    raising: str
    """The verb for what these do to the others: evade."""
    lowered_by: str
    """The kind that wants it low: seeker."""
    lowering: str
    """Their verb: catch."""


class Painter(Protocol):
    """Pictures of environments that have none of their own."""

    @property
    def frames_per_second(self) -> float:
        """How fast a person can follow, with a picture for each step."""
        ...

    def paint(self, pool: Pool, env_id: int, timestep: Timestep) -> np.ndarray:
        """A picture of an environment as it stands, uint8 [height, width, 3].

        Args:
            pool: Of this kind of environment.
            env_id: The environment.
            timestep: The pool's last.
        """
        ...

    def close(self) -> None:
        """Lets go of what painting needs."""


class Recorder(Protocol):
    """What people need to see of an environment in a browser (`srl watch`)."""

    @property
    def script(self) -> Path:
        """JavaScript that shows what was recorded; docs/seeing.md says what it has to define."""
        ...

    def record(self, pool: Pool, env_id: int, timestep: Timestep) -> Mapping[str, np.ndarray]:
        """Named numbers of an environment as it stands; floats are kept to three decimals.

        Names and shapes are the same at all steps of an episode.

        Args:
            pool: Of this kind of environment.
            env_id: The environment.
            timestep: The pool's last.
        """
        ...


@dataclass(frozen=True)
class EnvConfig:
    """Base of environment configurations such as `HideAndSeek(scenario="full")`.

    Its fields are the environment's options; None leaves one to the environment.
    """

    pool_id: ClassVar[str]
    """What `make_pool` takes, such as native:HideAndSeek-v1."""
    contest: ClassVar[Contest | None] = None
    """What evaluations of one team against another compare; by default their returns."""
    statistics: ClassVar[Mapping[str, str]] = {}
    """What the environment's statistics count, by name, with their units."""

    @classmethod
    def painter(cls, drawing: bool = False, camera: str | None = None) -> Painter | None:
        """What paints the environment for videos, if anything does.

        Args:
            drawing: Ask for a drawing, which is quick and needs no OpenGL, where there is one.
            camera: Where it is seen from, in words that the environment knows.

        Raises:
            UserError: If there is no such camera.
        """
        return None

    @classmethod
    def recorder(cls) -> Recorder | None:
        """What records the environment for a page in a browser, if anything does."""
        return None

    def options(self) -> dict[str, Any]:
        """The options that are set."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: value for name, value in values.items() if value is not None}


class Row:
    """Memory for one timestep of the whole pool, or of one batch of an asynchronous one."""

    __slots__ = ("core", "owner", "timestep")

    def __init__(self, timestep: Timestep) -> None:
        """Wraps the arrays of `timestep`, which are written into."""
        self.timestep = timestep
        self.owner: Any = None  # marks the pool that made it
        self.core: Any = None  # that pool's view of the same memory


class Rows:
    """Memory for consecutive timesteps, time-major: `rows[t]` is a part of `rows.timesteps`."""

    def __init__(self, timesteps: Timestep, rows: list[Row]) -> None:
        """Holds `timesteps`, whose arrays are [len(rows), ...], and its parts."""
        self.timesteps = timesteps
        self._rows = rows

    def __getitem__(self, t: int) -> Row:
        return self._rows[t]

    def __len__(self) -> int:
        return len(self._rows)


class Pool(ABC):
    """N environments of A agents each, stepped together; B = N * A slots.

    With next-step autoreset: the step after an episode's end ignores the action and gives the
    first observation of the next episode, with reward 0. Arrays that a call returns stay as they
    are for as long as somebody holds them; those of a row that was passed in are that row's.

    A synchronous pool (`batch_size == num_envs`) has `reset` and `step`; any pool has
    `async_reset`, `send` and `recv`, which gives the first `batch_size` environments that are
    ready. One thread at a time may use a pool.
    """

    specs: Specs
    num_envs: int
    batch_size: int
    autoreset_mode: ClassVar = AutoresetMode.NEXT_STEP
    """Of every pool; `srl.make_vec` gives the other two."""
    _token: object
    saves_exactly: bool = False
    """Whether `save` and `restore` keep everything."""

    @abstractmethod
    def reset(
        self, seed: int | None = None, into: Row | None = None, mask: np.ndarray | None = None
    ) -> Timestep:
        """Starts new episodes; environment i is seeded with `seed + i`, modulo 2**64.

        Args:
            seed: From 0 to 2**64 - 1; by default each environment's chance goes on as it stands.
            into: Where to write; by default memory of the pool's own that nobody holds.
            mask: bool [N], where to start a new episode; by default everywhere. Of `into`, which
                must be given then, only the rows of these environments are written.

        Raises:
            UserError: If the pool is asynchronous, or the mask does not fit.
            RunError: If an environment raised; it is named.
        """

    @abstractmethod
    def step(self, actions: Tree, into: Row | None = None) -> Timestep:
        """Steps all environments.

        Args:
            actions: [B, ...], of the action space's dtype and within it.
            into: Where to write; by default memory of the pool's own that nobody holds.

        Raises:
            UserError: If an action has a wrong shape or type or is out of the space.
            RunError: If an environment raised or gave what does not fit its space.
        """

    @abstractmethod
    def async_reset(self, seed: int | None = None) -> None:
        """Asks for new episodes everywhere; `recv` gives them."""

    @abstractmethod
    def send(self, actions: Tree, env_ids: np.ndarray) -> None:
        """Asks for a step of the given environments: actions [len(env_ids) * A, ...]."""

    @abstractmethod
    def recv(self) -> Timestep:
        """Waits for the first `batch_size` environments that are ready, named by `env_id`."""

    def rows(self, length: int) -> Rows:
        """Gives memory for `length` timesteps, each to be passed as `into`."""
        timesteps = empty_timestep(self.specs, self.num_envs, (length,))
        parts = [timestep_at(timesteps, t) for t in range(length)]
        return Rows(timesteps, [self._adopt(Row(part)) for part in parts])

    def rows_over(self, timesteps: Timestep) -> Rows:
        """Gives rows in memory of the caller's, each to be passed as `into`.

        Args:
            timesteps: Arrays [length, ...] as those of `rows`; the parts of one timestep must each
                be contiguous, the timesteps need not be.
        """
        parts = [timestep_at(timesteps, t) for t in range(len(timesteps.reward))]
        return Rows(timesteps, [self._adopt(Row(part)) for part in parts])

    def render(self, env_id: int) -> np.ndarray:
        """A picture of one environment, uint8 [height, width, 3].

        Raises:
            UserError: If the environment has none; most need the option render_mode="rgb_array".
        """
        raise UserError(f"{type(self).__name__} has no pictures")

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
        return row

    def _refuse_foreign(self, into: Row | None) -> None:
        if into is not None and (not isinstance(into, Row) or into.owner is not self._token):
            raise UserError("`into` is a row of another pool; take it from this pool's rows()")

    def xla(self) -> Xla:
        """The pool's calls for use inside `jax.jit`.

        Raises:
            UserError: Of a pool that has none; native pools have them.
        """
        raise UserError(
            f"{type(self).__name__} has no xla(): only pools of native environments "
            "(native:...) can be stepped inside a compiled program"
        )

    def save(self) -> bytes:
        """Gives the state of all environments; see `saves_exactly`."""
        return b""

    def restore(self, state: bytes) -> None:
        """Goes on from a saved state; where nothing was saved, does nothing."""
        return None

    @abstractmethod
    def close(self) -> None:
        """Ends the environments; any later call is refused, but a second close does nothing.

        Raises:
            UserError: While another thread is in a call.
        """

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


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


def as_array(name: str, given: Any) -> np.ndarray:
    """An argument as an array.

    Raises:
        UserError: If it is ragged.
    """
    try:
        return np.asarray(given)
    except ValueError as error:
        raise UserError(f"{name} cannot be made an array: {error}") from None


def as_actions(actions: Tree, shape: tuple[int, ...], dtype: Any, integers: bool) -> np.ndarray:
    """Actions as an array of this shape, of integers or of any numbers.

    Raises:
        UserError: If they are of another shape or kind; `dtype` is what was expected.
    """
    array = as_array("actions", actions)
    if array.shape != shape:
        raise UserError(f"actions have shape {array.shape}; expected {shape}")
    if array.dtype.kind not in ("iu" if integers else "iuf"):
        raise UserError(f"actions are {array.dtype}; expected {dtype}")
    return array


def timestep_at(timesteps: Timestep, t: int) -> Timestep:
    """Timestep `t` of several, whose arrays are parts of theirs."""
    return map_tree(lambda x: x[t], timesteps)


# ---- memory ----

_ALIGNMENT = 64  # JAX takes NumPy memory without a copy from here on


def aligned_zeros(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Gives zeros whose first byte lies at a multiple of 64, so that JAX need not copy them."""
    dtype = np.dtype(dtype)
    size = int(np.prod(shape)) * dtype.itemsize
    buffer = np.zeros(size + _ALIGNMENT, np.uint8)
    start = -buffer.ctypes.data % _ALIGNMENT
    return buffer[start : start + size].view(dtype).reshape(shape)


_NARROW = {"float64": np.float32, "int64": np.int32, "uint64": np.uint32, "float16": np.float32}


def narrow_dtype(dtype: Any) -> np.dtype:
    """The dtype that a pool gives for an environment's: 64 bits become 32, as in JAX."""
    return np.dtype(_NARROW.get(np.dtype(dtype).name, dtype))


Allocate = Callable[[tuple[int, ...], Any], Any]
"""Gives an array of a shape and a dtype."""


def empty_observation(
    space: gymnasium.Space, leading: tuple[int, ...], allocate: Allocate = aligned_zeros
) -> Tree:
    """Arrays for observations of `space`, with `leading` axes before each one's own.

    Raises:
        UserError: If the space holds something that is no array, such as text.
    """
    if isinstance(space, spaces.Dict):
        return {k: empty_observation(part, leading, allocate) for k, part in space.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(empty_observation(part, leading, allocate) for part in space)
    if isinstance(space, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        assert space.shape is not None
        assert space.dtype is not None
        return allocate((*leading, *space.shape), narrow_dtype(space.dtype))
    raise UserError(
        f"observation space {space} is not supported; there may be Box, Discrete, MultiDiscrete, "
        "MultiBinary, and Dict and Tuple of these: wrap the environment"
    )


def empty_timestep(
    specs: Specs,
    num_envs: int,
    leading: tuple[int, ...] = (),
    allocate: Allocate = aligned_zeros,
) -> Timestep:
    """Memory for timesteps of `num_envs` environments, with `leading` axes before."""
    envs = (*leading, num_envs)
    slots = (*leading, num_envs * len(specs.agents))
    return Timestep(
        observation=empty_observation(specs.observation, slots, allocate),
        reward=allocate(slots, np.float32),
        terminated=allocate(slots, np.bool_),
        truncated=allocate(slots, np.bool_),
        episode_return=allocate(slots, np.float32),
        episode_length=allocate(envs, np.int32),
        statistics=allocate((*envs, len(specs.statistics)), np.float32),
        env_id=allocate(envs, np.int32),
        lost=allocate(envs, np.bool_),
    )
