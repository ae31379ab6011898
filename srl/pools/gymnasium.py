"""Pools of Gymnasium environments, stepped one after the other in this process."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from srl.errors import RunError, UserError
from srl.pools.pool import Pool, Row, empty_timestep, leaves, narrow_dtype
from srl.types import Specs, Timestep, Tree


class GymnasiumPool(Pool):
    """A pool of environments that follow Gymnasium's interface, with one agent each."""

    def __init__(
        self,
        env: str | Callable[[], gymnasium.Env],
        num_envs: int,
        batch_size: int,
        options: dict[str, Any],
    ) -> None:
        """Makes the environments.

        Raises:
            UserError: For an unknown id, or copies whose spaces differ.
            RunError: If making one raised.
        """
        self.num_envs, self.batch_size = num_envs, batch_size
        self.name = env if isinstance(env, str) else getattr(env, "__name__", repr(env))
        self._envs = [self._make(env, i, options) for i in range(num_envs)]
        first = self._envs[0]
        for i, other in enumerate(self._envs):
            for kind in ("observation_space", "action_space"):
                if getattr(other, kind) != getattr(first, kind):
                    raise UserError(
                        f"{self.name}: environment {i} has {kind} {getattr(other, kind)}, but "
                        f"environment 0 {getattr(first, kind)}; all copies must be alike"
                    )
        limit = first.spec.max_episode_steps if first.spec else None
        self.specs = Specs(
            observation=_narrow(first.observation_space),
            action=_check_action_space(first.action_space, self.name),
            agents=("agent",),
            max_episode_steps=limit,
        )
        self._done = np.ones(num_envs, bool)  # the next step starts an episode
        self._return = np.zeros(num_envs, np.float32)
        self._length = np.zeros(num_envs, np.int32)
        self._seeds: list[int | None] = [None] * num_envs
        self._fresh = True
        self._closed = False
        self._sent: deque[tuple[int, Any]] = deque()  # environments in flight and their actions

    def _make(
        self, env: str | Callable[[], gymnasium.Env], index: int, options: dict[str, Any]
    ) -> gymnasium.Env:
        try:
            made = gymnasium.make(env, **options) if isinstance(env, str) else env(**options)
        except (gymnasium.error.Error, ModuleNotFoundError) as error:
            raise UserError(f"{self.name!r} cannot be made: {error}") from error
        except Exception as error:
            raise RunError(
                f"{self.name}: making environment {index} raised {type(error).__name__}: {error}"
            ) from error
        if not isinstance(made, gymnasium.Env):
            raise UserError(f"{self.name} made {type(made).__name__}; expected a gymnasium.Env")
        return made

    def reset(
        self, seed: int | None = None, into: Row | None = None, mask: np.ndarray | None = None
    ) -> Timestep:
        """Starts new episodes; see the base class."""
        self._refuse_asynchronous("reset")
        ids = self._masked(mask, into).tolist()
        self._prepare_reset(seed, ids)
        return self._advance(ids, [None] * len(ids), into)

    def step(self, actions: Tree, into: Row | None = None) -> Timestep:
        """Steps all environments; see the base class."""
        self._refuse_asynchronous("step")
        return self._advance(range(self.num_envs), self._actions(actions, self.num_envs), into)

    def async_reset(self, seed: int | None = None) -> None:
        """Asks for new episodes everywhere; see the base class."""
        self._prepare_reset(seed, list(range(self.num_envs)))
        self._sent = deque((i, None) for i in range(self.num_envs))

    def send(self, actions: Tree, env_ids: np.ndarray) -> None:
        """Asks for a step of the given environments; see the base class."""
        ids = [int(i) for i in env_ids]
        flying = {i for i, _ in self._sent}
        for place, i in enumerate(ids):
            if not 0 <= i < self.num_envs:
                raise UserError(f"environment id {i}; expected 0 to {self.num_envs - 1}")
            if i in flying or i in ids[:place]:
                raise UserError(f"environment {i} is in flight; receive it first")
        self._sent.extend(zip(ids, self._actions(actions, len(ids)), strict=True))

    def recv(self) -> Timestep:
        """Steps the environments that were sent first, and gives them."""
        if len(self._sent) < self.batch_size:
            raise UserError(
                f"recv needs {self.batch_size} environments in flight, but only "
                f"{len(self._sent)} are; send actions first"
            )
        batch = [self._sent.popleft() for _ in range(self.batch_size)]
        return self._advance([i for i, _ in batch], [action for _, action in batch], None)

    def render(self, env_id: int) -> np.ndarray:
        """A picture of one environment, uint8 [height, width, 3]; needs render_mode="rgb_array"."""
        return np.asarray(self._envs[env_id].render())

    def close(self) -> None:
        """Closes the environments."""
        if not self._closed:
            self._closed = True
            for env in self._envs:
                env.close()

    def _prepare_reset(self, seed: int | None, env_ids: list[int]) -> None:
        self._fresh = False
        for i in env_ids:
            self._done[i] = True
            if seed is not None:
                self._seeds[i] = (seed + i) % 2**64

    def _refuse_asynchronous(self, call: str) -> None:
        if self.batch_size != self.num_envs:
            raise UserError(
                f"{call} gives all environments, but batch_size is {self.batch_size} of "
                f"{self.num_envs}; call async_reset, send and recv"
            )

    def _actions(self, actions: Tree, count: int) -> list[Any]:
        array, space = np.asarray(actions), self.specs.action
        shape = (count, *(space.shape or ()))
        if array.shape != shape:
            raise UserError(f"actions have shape {array.shape}; expected {shape}")
        integers = not isinstance(space, spaces.Box)
        if array.dtype.kind not in ("iu" if integers else "iuf"):
            raise UserError(f"actions are {array.dtype}; expected {space.dtype}")
        array = array.astype(space.dtype, copy=False)
        if integers:
            wrong = _outside(array, space)
            if wrong.any():
                i = int(np.argwhere(wrong)[0][0])
                raise UserError(f"environment {i}: action {array[i]} is not in {space}")
        return list(array)

    def _advance(self, env_ids: Any, actions: list[Any], into: Row | None) -> Timestep:
        if self._closed:
            raise UserError(f"the pool of {self.name} is closed")
        if self._fresh:
            raise UserError("the environments were never reset; call reset first")
        row = into.timestep if into else empty_timestep(self.specs, len(env_ids))
        whole = self.batch_size == self.num_envs
        for place, (i, action) in enumerate(zip(env_ids, actions, strict=True)):
            self._advance_one(i, action, i if whole else place, row)
        self._refuse_nan(row)
        return row

    def _advance_one(self, i: int, action: Any, place: int, row: Timestep) -> None:
        """Steps or resets environment `i` and writes row `place`."""
        env = self._envs[i]
        call = "reset" if self._done[i] else "step"
        try:
            if self._done[i]:
                observation, _ = env.reset(seed=self._seeds[i])
                self._seeds[i] = None
                reward, terminated, truncated = 0.0, False, False
                self._return[i] = self._length[i] = 0
            else:
                observation, reward, terminated, truncated, _ = env.step(action)
                self._return[i] += np.float32(reward)
                self._length[i] += 1
        except Exception as error:
            raise RunError(
                f"{self.name}: environment {i} raised {type(error).__name__} in {call}: {error}"
            ) from error
        self._write(self.specs.observation, observation, row.observation, place, i, "observation")
        row.reward[place] = reward
        row.terminated[place] = terminated
        row.truncated[place] = truncated
        row.episode_return[place] = self._return[i]
        row.episode_length[place] = self._length[i]
        row.env_id[place] = i
        self._done[i] = bool(terminated) or bool(truncated)

    def _write(
        self, space: gymnasium.Space, value: Any, memory: Tree, place: int, i: int, path: str
    ) -> None:
        """Copies an observation into its row, and refuses what does not fit its space."""
        if isinstance(memory, dict):
            assert isinstance(space, spaces.Dict)
            if not isinstance(value, dict) or value.keys() != memory.keys():
                given = sorted(value) if isinstance(value, dict) else type(value).__name__
                raise self._misfit(i, path, f"{given}", f"a dict of {sorted(memory)}")
            for name, part in memory.items():
                self._write(space[name], value[name], part, place, i, f"{path}[{name!r}]")
        elif isinstance(memory, tuple):
            assert isinstance(space, spaces.Tuple)
            if not isinstance(value, tuple | list) or len(value) != len(memory):
                raise self._misfit(i, path, f"{type(value).__name__}", f"{len(memory)} parts")
            for k, part in enumerate(memory):
                self._write(space[k], value[k], part, place, i, f"{path}[{k}]")
        else:
            try:
                array = np.asarray(value)
            except ValueError:  # its parts are of unequal lengths
                array = np.asarray(None)
            if array.shape != memory.shape[1:]:
                raise self._misfit(i, path, f"shape {array.shape}", f"shape {memory.shape[1:]}")
            integers = memory.dtype.kind in "iub"
            if array.dtype.kind not in ("iub" if integers else "iubf"):
                raise self._misfit(i, path, f"dtype {array.dtype}", f"dtype {memory.dtype}")
            if integers and (wrong := _outside(array, space)).any():
                raise self._misfit(i, path, f"value {array[wrong][0]}", f"{space}")
            memory[place] = array

    def _misfit(self, i: int, path: str, given: str, expected: str) -> RunError:
        return RunError(
            f"{self.name}: environment {i} gave {path} of {given}, but its observation space says "
            f"{expected}; mend the environment or its observation_space"
        )

    def _refuse_nan(self, row: Timestep) -> None:
        for name, tree in (("observation", row.observation), ("reward", row.reward)):
            for leaf in leaves(tree):
                if leaf.dtype.kind != "f" or np.isfinite(leaf).all():
                    continue
                place = int(np.argwhere(~np.isfinite(leaf))[0][0])
                raise RunError(
                    f"{self.name}: environment {row.env_id[place]} gave {name} that is not "
                    f"finite, at step {row.episode_length[place]} of its episode"
                )


def _outside(array: np.ndarray, space: gymnasium.Space) -> np.ndarray:
    """Where integers are not among those of their space."""
    if isinstance(space, spaces.Box):
        return (array < space.low) | (array > space.high)
    if isinstance(space, spaces.MultiBinary):
        return (array < 0) | (array > 1)
    assert isinstance(space, spaces.Discrete | spaces.MultiDiscrete)
    count = space.n if isinstance(space, spaces.Discrete) else space.nvec
    return (array < space.start) | (array >= space.start + count)


def _narrow(space: gymnasium.Space) -> gymnasium.Space:
    """The space of what the pool gives: numbers of 64 bits become 32."""
    if isinstance(space, spaces.Dict):
        return spaces.Dict({name: _narrow(part) for name, part in space.items()})
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple([_narrow(part) for part in space])
    if isinstance(space, spaces.Box) and narrow_dtype(space.dtype) != space.dtype:
        dtype = narrow_dtype(space.dtype).type
        info = np.iinfo(dtype) if np.issubdtype(dtype, np.integer) else np.finfo(dtype)
        low, high = (np.clip(b, info.min, info.max) for b in (space.low, space.high))
        low, high = (
            np.where(np.isinf(space.low), space.low, low),
            np.where(np.isinf(space.high), space.high, high),
        )
        return spaces.Box(low.astype(dtype), high.astype(dtype), space.shape, dtype)
    return space


def _check_action_space(space: gymnasium.Space, name: str) -> gymnasium.Space:
    if isinstance(space, spaces.Box | spaces.Discrete | spaces.MultiDiscrete):
        return space
    raise UserError(
        f"{name}: action space {space} is not supported; there may be Box, Discrete or "
        "MultiDiscrete: wrap the environment"
    )
