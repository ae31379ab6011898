"""A pool with Gymnasium's interface of vector environments, for its wrappers and loops."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from srl.core.errors import UserError
from srl.core.tree import map_tree
from srl.core.types import Timestep, Tree
from srl.pools.make import EnvSource, make_pool
from srl.pools.pool import Pool, checked_seed


def make_vec(
    env: EnvSource,
    num_envs: int = 1,
    *,
    autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
    **pool_arguments: Any,
) -> VectorEnv:
    """Makes a pool and gives it as a vector environment of Gymnasium.

    Args:
        env: As `make_pool` takes it.
        num_envs: How many.
        autoreset_mode: When an ended episode is followed by the next; see `VectorEnv`.
        pool_arguments: Passed on to `make_pool`, options of the environment included.

    Raises:
        UserError: For arguments that `make_pool` or `VectorEnv` do not take.
        RunError: If making an environment raised.
    """
    pool = make_pool(env, num_envs, **pool_arguments)
    try:
        made = VectorEnv(pool, autoreset_mode)
    except BaseException:
        pool.close()
        raise
    made.render_mode = pool_arguments.get("render_mode")
    if isinstance(env, str) and env in gymnasium.registry:
        made.spec = deepcopy(gymnasium.spec(env))
    return made


class VectorEnv(gymnasium.vector.VectorEnv):
    """A synchronous pool of single-agent environments as Gymnasium knows them.

    Observations, actions and the layout of `info` are those of Gymnasium's `SyncVectorEnv`, in
    all three modes of `metadata["autoreset_mode"]`, with these differences:

    * Numbers of 64 bits are of 32, as in the pool, as `single_observation_space` has it;
      rewards are float32.
    * `info` holds what the pool knows, not the environments' own infos: with the last
      step of an episode come `episode_return` (float32), `episode_length` (int32) and the
      statistics that `pool.specs` names; in SAME_STEP mode they stand in `final_info`. The key
      `episode` is left to the wrapper `RecordEpisodeStatistics`.
    * Where an environment died and was made anew, its episode ends truncated, `info["lost"]` is
      set and there is no `episode_return`. That step did not happen and should not be learned
      from; wrappers do not know this.

    What a call returned stays as it is.
    """

    def __init__(
        self, pool: Pool, autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP
    ) -> None:
        """Takes a pool, which is closed with this.

        Args:
            pool: Synchronous, with one agent in each environment.
            autoreset_mode: NEXT_STEP: the step after an episode's end ignores the action and
                resets. SAME_STEP: the step that ends an episode resets too, and gives the true
                last observation as `info["final_obs"]`. DISABLED: the caller resets, by
                `reset(options={"reset_mask": ended})`.

        Raises:
            UserError: If the pool or the mode is another.
        """
        pool.expect_synchronous("a vector environment")
        if len(pool.specs.agents) != 1:
            raise UserError(
                f"the pool's environments have agents {', '.join(pool.specs.agents)}; a vector "
                "environment has one: take srl.pools.ParallelPool"
            )
        try:
            self._mode = AutoresetMode(autoreset_mode)
        except ValueError:
            names = ", ".join(mode.value for mode in AutoresetMode)
            raise UserError(f"autoreset_mode is {autoreset_mode!r}; expected {names}") from None
        self.pool = pool
        self.num_envs = pool.num_envs
        self.metadata = {"autoreset_mode": self._mode}
        self.single_observation_space = pool.specs.observation
        self.single_action_space = pool.specs.action
        self.observation_space = batch_space(pool.specs.observation, pool.num_envs)
        self.action_space = batch_space(pool.specs.action, pool.num_envs)
        self._row = pool.rows(1)[0]
        self._fresh = True

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Tree, dict[str, Any]]:
        """Starts new episodes.

        Args:
            seed: Environment i gets `seed + i`, or `seed[i]`. By default chance goes on, at the
                first reset from a seed that `np_random` draws.
            options: {"reset_mask": bool [N]} names the environments to reset; by default all.

        Returns:
            Observations [N, ...], of environments that are not reset their last, and an empty
            info.
        """
        mask = self._reset_mask(options)
        seeds = self._seeds(seed)
        if seeds is None:
            drawn = int(self.np_random.integers(2**31)) if self._fresh else None
            seeds = [None if drawn is None else drawn + i for i in range(self.num_envs)]
        elif not isinstance(seed, Sequence | np.ndarray):
            super().reset(seed=seeds[0])
        self._restart(mask, seeds)
        self._fresh = False
        return map_tree(np.copy, self._row.timestep.observation), {}

    def step(
        self, actions: Tree
    ) -> tuple[Tree, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Steps all environments.

        Args:
            actions: [N, ...]

        Returns:
            Observations [N, ...], rewards float32 [N], terminated and truncated bool [N], info.

        Raises:
            UserError: For actions that do not fit, or in DISABLED mode if an environment whose
                episode has ended was not reset.
            RunError: If an environment raised.
        """
        row = self._row.timestep
        if self._mode is AutoresetMode.DISABLED and (ended := _ended(row)).any():
            raise UserError(
                f"the episodes of environments {np.flatnonzero(ended).tolist()} have ended; reset "
                'these first: reset(options={"reset_mask": terminated | truncated})'
            )
        self.pool.step(actions, self._row)
        results = row.reward.copy(), row.terminated.copy(), row.truncated.copy()
        ended = _ended(row)
        info = self._episode_info(row, ended)
        if self._mode is AutoresetMode.SAME_STEP and ended.any():
            info = {
                "final_obs": self._observations(ended),
                "_final_obs": ended,
                "final_info": info,
                "_final_info": ended.copy(),
            }
            self._restart(ended, [None] * self.num_envs)
        return map_tree(np.copy, row.observation), *results, info

    def render(self) -> tuple[Any, ...]:
        """Gives a picture of each environment, uint8 [height, width, 3].

        Raises:
            UserError: If there are none.
        """
        if self.render_mode is None:
            raise UserError(
                "there are no pictures; make the environments with render_mode='rgb_array' "
                "(native ones have none)"
            )
        return tuple(self.pool.render(i) for i in range(self.num_envs))

    def close_extras(self, **kwargs: Any) -> None:
        """Closes the pool."""
        self.pool.close()

    def _reset_mask(self, options: dict[str, Any] | None) -> np.ndarray:
        options = options or {}
        if unknown := sorted(options.keys() - {"reset_mask"}):
            raise UserError(f"reset has no options {unknown}; there is reset_mask")
        mask = options.get("reset_mask")
        if mask is None:
            return np.ones(self.num_envs, bool)
        if getattr(mask, "shape", None) != (self.num_envs,) or mask.dtype != np.bool_:
            raise UserError(f"reset_mask is {mask!r}; expected bool ({self.num_envs},)")
        if self._fresh and not mask.all():
            raise UserError("the first reset must be of all environments; leave reset_mask out")
        return mask

    def _seeds(self, seed: int | Sequence[int | None] | None) -> list[int | None] | None:
        if isinstance(seed, Sequence | np.ndarray):
            if len(seed) != self.num_envs:
                raise UserError(f"there are {len(seed)} seeds; expected {self.num_envs}")
            return [checked_seed(one) for one in seed]
        first = checked_seed(seed)
        return None if first is None else [first + i for i in range(self.num_envs)]

    def _restart(self, mask: np.ndarray, seeds: list[int | None]) -> None:
        """Starts episodes where the mask is set, environment i with seeds[i]."""
        calls: dict[int | None, np.ndarray] = {}
        for i in np.flatnonzero(mask):
            seed = seeds[i]
            first = None if seed is None else (seed - int(i)) % 2**64  # to which the pool adds i
            calls.setdefault(first, np.zeros(self.num_envs, bool))[i] = True
        for first, part in calls.items():
            self.pool.reset(first, self._row, None if part.all() else part)

    def _observations(self, mask: np.ndarray) -> np.ndarray:
        """The observations of the environments that the mask names, one by one: object [N]."""
        observations = np.full(self.num_envs, None, object)
        for i in np.flatnonzero(mask):
            observations[i] = map_tree(lambda x, i=i: x[i].copy(), self._row.timestep.observation)
        return observations

    def _episode_info(self, row: Timestep, ended: np.ndarray) -> dict[str, Any]:
        """The infos of the episodes that end in a row, each name with a mask `_name`."""
        info: dict[str, Any] = {}
        if not ended.any():
            return info
        whole, lost = ended & ~row.lost, ended & row.lost
        if whole.any():
            values = {"episode_return": row.episode_return, "episode_length": row.episode_length}
            values.update(zip(self.pool.specs.statistics, row.statistics.T, strict=True))
            for name, value in values.items():
                there = whole & ~np.isnan(value)
                info[name] = np.where(there, value, value.dtype.type(0))
                info[f"_{name}"] = there
        if lost.any():
            info["lost"], info["_lost"] = lost, lost.copy()
        return info


def _ended(row: Timestep) -> np.ndarray:
    return row.terminated | row.truncated
