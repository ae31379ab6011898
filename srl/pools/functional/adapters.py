"""Environments of other libraries as functional environments, and what ids name.

`jax:gymnax:CartPole-v1`, `jax:brax:ant`, and `jax:module:maker`, whose maker gives an environment.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces

from srl.errors import RunError, UserError, described
from srl.lazy import jnp
from srl.pools.functional.environment import FunctionalEnv, Step
from srl.types import Array, Tree

PREFIX = "jax:"


def make_functional(name: str, options: dict[str, Any]) -> FunctionalEnv:
    """The environment of an id without its prefix.

    Args:
        name: Such as gymnax:CartPole-v1.
        options: Of the environment.

    Raises:
        UserError: If there is none of this name, or it does not take an option.
        RunError: If making it raised.
    """
    library, _, own = name.partition(":")
    if not own:
        raise UserError(
            f"{PREFIX}{name} names no environment; expected {PREFIX}gymnax:CartPole-v1, "
            f"{PREFIX}brax:ant or {PREFIX}module:maker"
        )
    if library in _LIBRARIES:
        return _LIBRARIES[library](own, options)
    try:
        maker = getattr(importlib.import_module(library), own)
    except (ImportError, AttributeError) as error:
        raise UserError(f"{PREFIX}{name} cannot be made: {error}") from error
    return _made(f"{PREFIX}{name}", maker, options)


def _made(name: str, maker: Callable[..., Any], options: dict[str, Any]) -> Any:
    try:
        return maker(**options)
    except TypeError as error:
        raise UserError(f"{name} does not take these options: {error}") from error
    except Exception as error:
        raise RunError(f"{name}: making it raised {described(error)}") from error


def _imported(library: str, module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UserError(f"{library} is not there ({error}): pip install {library}") from error


class Gymnax:
    """An environment of gymnax (https://github.com/RobertTLange/gymnax), 1.0 or later."""

    def __init__(self, name: str, options: dict[str, Any]) -> None:
        """Makes it; options are its parameters, such as max_steps_in_episode."""
        gymnax = _imported("gymnax", "gymnax")
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
        self.observation_space = _gymnax_space(self._env.observation_space(self._params))
        self.action_space = _gymnax_space(self._env.action_space(self._params))
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


def _gymnax_space(space: Any) -> spaces.Space:
    kind = type(space).__name__
    if kind == "Discrete":
        return spaces.Discrete(int(space.n))
    if kind == "Box":
        dtype = np.dtype(space.dtype)
        low, high = (
            np.broadcast_to(bound, space.shape).astype(dtype) for bound in (space.low, space.high)
        )
        return spaces.Box(low, high, tuple(space.shape), dtype.type)
    if kind == "Dict":
        return spaces.Dict({name: _gymnax_space(part) for name, part in space.spaces.items()})
    raise UserError(f"gymnax's space {kind} is not supported; there may be Discrete, Box and Dict")


class Brax:
    """An environment of Brax (https://github.com/google/brax), MuJoCo's MJX among its backends."""

    def __init__(self, name: str, options: dict[str, Any]) -> None:
        """Makes it; options are its own, and max_episode_steps, 1000 by default."""
        envs = _imported("brax", "brax.envs")
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

    def reset(self, key: Array) -> tuple[Tree, Tree]:
        """Begins an episode."""
        state = self._env.reset(key)
        return state, state.obs

    def step(self, state: Tree, action: Array, key: Array) -> Step:
        """Takes a step."""
        state = self._env.step(state, action)
        return Step(state, state.obs, state.reward, state.done.astype(bool))


_LIBRARIES: dict[str, Callable[[str, dict[str, Any]], FunctionalEnv]] = {
    "gymnax": Gymnax,
    "brax": Brax,
}
