"""Environments without some parts of their Dict observations, such as texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
from gymnasium import spaces
from gymnasium.vector import VectorEnv, VectorWrapper

from srl.core.errors import UserError
from srl.pools.python.parallel_view import ParallelView


def without_parts(env: Any, names: tuple[str, ...], source: str) -> Any:
    """The environment, whose observations lack these parts.

    Args:
        env: A `gymnasium.Env`, a `VectorEnv` or a `pettingzoo.ParallelEnv`.
        names: The parts; with none the environment is given back.
        source: Messages call the environment so.

    Raises:
        UserError: If what is observed has no such part.
    """
    if not names:
        return env
    if isinstance(env, VectorEnv):
        return _VectorWithout(env, names, source)
    if isinstance(env, gymnasium.Env):
        return _Without(env, names, source)
    return ParallelView(
        env,
        lambda agent: _space_without(env.observation_space(agent), names, f"{source}: {agent}"),
        lambda observations: {agent: _left(own, names) for agent, own in observations.items()},
    )


def _space_without(
    space: gymnasium.Space | None, names: tuple[str, ...], source: str
) -> spaces.Dict:
    if not isinstance(space, spaces.Dict):
        raise UserError(
            f"{source}: ignore leaves out parts of a Dict, but what is observed is {space}"
        )
    for name in names:
        if name not in space.spaces:
            raise UserError(
                f"{source}: there is no part {name!r} to ignore; observed are {', '.join(space)}"
            )
    left = {name: part for name, part in space.items() if name not in names}
    if not left:
        raise UserError(f"{source}: all that is observed is ignored; leave at least one part")
    return spaces.Dict(left)


def _left(observation: Any, names: tuple[str, ...]) -> Any:
    if not isinstance(observation, Mapping):  # which is reported where it is written
        return observation
    return {name: part for name, part in observation.items() if name not in names}


class _Without(gymnasium.ObservationWrapper):
    def __init__(self, env: gymnasium.Env, names: tuple[str, ...], source: str) -> None:
        super().__init__(env)
        self._names = names
        space = getattr(env, "observation_space", None)
        self.observation_space = _space_without(space, names, source)

    def observation(self, observation: Any) -> Any:
        return _left(observation, self._names)


class _VectorWithout(VectorWrapper):
    def __init__(self, env: VectorEnv, names: tuple[str, ...], source: str) -> None:
        super().__init__(env)
        self._names = names
        self.single_observation_space = _space_without(env.single_observation_space, names, source)
        self.observation_space = _space_without(env.observation_space, names, source)

    def reset(self, **options: Any) -> Any:
        observations, infos = self.env.reset(**options)
        return _left(observations, self._names), infos

    def step(self, actions: Any) -> Any:
        observations, *results, infos = self.env.step(actions)
        for name in ("final_obs", "final_observation"):
            if name in infos:
                infos = {**infos, name: self._last(infos[name])}
        return _left(observations, self._names), *results, infos

    def _last(self, final: Any) -> Any:
        if isinstance(final, Mapping):
            return _left(final, self._names)
        final = final.copy()
        for env, last in enumerate(final):
            final[env] = _left(last, self._names)
        return final
