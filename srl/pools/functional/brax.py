"""Environments of Brax as functional environments."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from srl.core.errors import UserError
from srl.core.types import Array, Tree
from srl.pools.functional.environment import Step
from srl.pools.functional.library import PREFIX, imported


class BraxStates:
    """Resets and steps of environments with Brax's states, such as MuJoCo Playground's."""

    _env: Any

    def reset(self, key: Array) -> tuple[Tree, Tree]:
        """Begins an episode."""
        state = self._env.reset(key)
        return state, state.obs

    def step(self, state: Tree, action: Array, key: Array) -> Step:
        """Takes a step."""
        state = self._env.step(state, action)
        return Step(state, state.obs, state.reward, state.done.astype(bool))


class Brax(BraxStates):
    """An environment of Brax (https://github.com/google/brax), MuJoCo's MJX among its backends."""

    def __init__(self, name: str, options: dict[str, Any]) -> None:
        """Makes it; options are its own, and max_episode_steps, 1000 by default."""
        envs = imported("brax", "brax.envs")
        own = dict(options)
        self.max_episode_steps = int(own.pop("max_episode_steps", 1000))
        try:
            self._env = envs.get_environment(name, **own)
        except KeyError:
            raise UserError(f"there is no environment {PREFIX}brax:{name}") from None
        except TypeError as error:
            raise UserError(f"{PREFIX}brax:{name} has no such option: {error}") from error
        size = (int(self._env.observation_size),)
        self.observation_space = spaces.Box(-np.inf, np.inf, size, np.float32)
        self.action_space = spaces.Box(-1.0, 1.0, (int(self._env.action_size),), np.float32)
