"""Environments of gymnax as functional environments."""

from __future__ import annotations

from typing import Any

from srl.core.errors import UserError
from srl.core.lazy import jnp
from srl.core.types import Array, Tree
from srl.pools.functional.environment import Step
from srl.pools.functional.library import PREFIX, gymnax_space, imported


class Gymnax:
    """An environment of gymnax (https://github.com/RobertTLange/gymnax), 1.0 or later."""

    def __init__(self, name: str, options: dict[str, Any]) -> None:
        """Makes it; options are its parameters, such as max_steps_in_episode."""
        gymnax = imported("gymnax", "gymnax")
        try:
            self._env, params = gymnax.make(name)
        except ValueError as error:
            raise UserError(f"{PREFIX}gymnax:{name} cannot be made: {error}") from error
        if not hasattr(self._env, "is_truncated"):
            raise UserError(
                "gymnax is older than 1.0, which distinguishes terminated from truncated: update it"
            )
        try:
            self._params = params.replace(**options)
        except TypeError as error:
            raise UserError(f"{PREFIX}gymnax:{name} has no such option: {error}") from error
        self.observation_space = gymnax_space(self._env.observation_space(self._params))
        self.action_space = gymnax_space(self._env.action_space(self._params))
        self.max_episode_steps = getattr(self._params, "max_steps_in_episode", None)

    def reset(self, key: Array) -> tuple[Tree, Tree]:
        """Begins an episode."""
        observation, state = self._env.reset_env(key, self._params)
        return state, observation

    def step(self, state: Tree, action: Array, key: Array) -> Step:
        """Takes a step."""
        observation, state, reward, *_ = self._env.step_env(key, state, action, self._params)
        terminated = self._env.is_terminated(state, self._params)
        truncated = self._env.is_truncated(state, self._params)
        return Step(state, observation, jnp.asarray(reward, jnp.float32), terminated, truncated)
