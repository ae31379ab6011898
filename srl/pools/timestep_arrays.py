"""The memory that a pool's results are written into."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from srl.core.errors import RunError, UserError
from srl.core.spaces import narrow_dtype, space_tree
from srl.core.tree import leaves_of, map_tree
from srl.core.types import Specs, Timestep, Tree


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


def timestep_at(timesteps: Timestep, t: int) -> Timestep:
    """Timestep `t` of several, whose arrays are parts of theirs."""
    return map_tree(lambda x: x[t], timesteps)


def slots_of(envs: np.ndarray, agents: int) -> np.ndarray:
    """The slots of environments of so many agents each."""
    return (envs[:, None] * agents + np.arange(agents, dtype=np.int32)).ravel()


ALIGNMENT = 64  # bytes; JAX takes NumPy memory that is aligned so without a copy


def aligned_zeros(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Gives zeros whose first byte lies at a multiple of 64, so that JAX need not copy them."""
    dtype = np.dtype(dtype)
    size = int(np.prod(shape)) * dtype.itemsize
    buffer = np.zeros(size + ALIGNMENT, np.uint8)
    start = -buffer.ctypes.data % ALIGNMENT
    return buffer[start : start + size].view(dtype).reshape(shape)


Allocate = Callable[[tuple[int, ...], Any], Any]
"""Gives an array of a shape and a dtype."""


def empty_observation(
    space: gymnasium.Space, leading: tuple[int, ...], allocate: Allocate = aligned_zeros
) -> Tree:
    """Arrays for observations of `space`, with `leading` axes before each one's own.

    Raises:
        UserError: If the space holds something that is no array, such as text, or no number.
    """

    def empty(leaf: gymnasium.Space) -> Any:
        if not isinstance(leaf, ARRAY_SPACES):
            raise UserError(
                f"observation space {leaf} is not supported; there may be Box, Discrete, "
                "MultiDiscrete, MultiBinary, and Dict and Tuple of these: wrap the environment"
            )
        assert leaf.shape is not None
        return allocate((*leading, *leaf.shape), narrow_dtype(leaf.dtype))

    arrays = map_tree(empty, space_tree(space))
    if all(0 in (leaf.shape or ()) for leaf in leaves_of(space_tree(space))):
        raise UserError(f"observation space {space} holds no number; give it at least one")
    return arrays


def expect_finite(name: str, timestep: Timestep, agents: int) -> None:
    """Raises RunError if an environment's observation or reward is not finite."""
    for part, leaf in (
        *(("observation", leaf) for leaf in leaves_of(timestep.observation)),
        ("reward", timestep.reward),
    ):
        if leaf.dtype.kind != "f" or np.count_nonzero(np.isfinite(leaf)) == leaf.size:
            continue
        place = int(np.argwhere(~np.isfinite(leaf))[0][0]) // agents
        raise RunError(
            f"{name}: environment {timestep.env_id[place]} gave {part} that is not finite, at step "
            f"{timestep.episode_length[place]} of its episode; float32, which pools give, holds "
            "numbers up to 3.4e38"
        )


ARRAY_SPACES = spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary
"""The spaces of single arrays of numbers."""


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
