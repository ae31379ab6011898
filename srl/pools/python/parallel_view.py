"""A PettingZoo environment with other observations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gymnasium import spaces


class ParallelView:
    """A `pettingzoo.ParallelEnv` with other observations, without importing PettingZoo."""

    def __init__(
        self,
        env: Any,
        space: Callable[[Any], spaces.Dict],
        observed: Callable[[Mapping[Any, Any]], dict[Any, Any]],
    ) -> None:
        self._env, self._observed = env, observed
        self._spaces = {agent: space(agent) for agent in env.possible_agents}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)

    def observation_space(self, agent: Any) -> spaces.Dict:
        """Gives an agent's space."""
        return self._spaces[agent]

    def reset(self, *args: Any, **kwargs: Any) -> Any:
        """Begins an episode."""
        observations, infos = self._env.reset(*args, **kwargs)
        return self._observed(observations), infos

    def step(self, actions: Any) -> Any:
        """Takes a step."""
        observations, *rest = self._env.step(actions)
        return self._observed(observations), *rest
