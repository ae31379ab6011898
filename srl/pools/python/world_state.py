"""The state of a PettingZoo environment as a key of each agent's observation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gymnasium import spaces

from srl.core.errors import UserError

STATE = "state"


def space_with_state(observation: spaces.Space, state: spaces.Space) -> spaces.Dict:
    """The space of observations that a state was added to."""
    if isinstance(observation, spaces.Dict):
        return spaces.Dict([*observation.items(), (STATE, state)])
    return spaces.Dict([("observation", observation), (STATE, state)])


def with_world_state(env: Any, source: str) -> Any:
    """Gives the environment with its `state()` in each agent's observation.

    Observations that are no Dict become one, of `observation` and `state`.

    Args:
        env: A `pettingzoo.ParallelEnv`.
        source: Messages call the environment so.

    Raises:
        UserError: If it is of another interface, or has no `state_space`.
    """
    space = getattr(env, "state_space", None)
    if not isinstance(space, spaces.Space) or not hasattr(env, "possible_agents"):
        raise UserError(
            f"{source}: world_state=True adds state() of a PettingZoo environment, and "
            f"{type(env).__name__} has no state_space of one; define both, or leave it out"
        )
    return _ParallelWithState(env, space)


class _ParallelWithState:
    """A `pettingzoo.ParallelEnv`, without importing PettingZoo."""

    def __init__(self, env: Any, space: spaces.Space) -> None:
        self._env = env
        self._spaces = {
            agent: space_with_state(env.observation_space(agent), space)
            for agent in env.possible_agents
        }

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)

    def observation_space(self, agent: Any) -> spaces.Dict:
        return self._spaces[agent]

    def reset(self, *args: Any, **kwargs: Any) -> Any:
        observations, infos = self._env.reset(*args, **kwargs)
        return self._observed(observations), infos

    def step(self, actions: Any) -> Any:
        observations, *rest = self._env.step(actions)
        return self._observed(observations), *rest

    def _observed(self, observations: Mapping[Any, Any]) -> dict[Any, Any]:
        state = self._env.state() if observations else None
        return {
            agent: {**(own if isinstance(own, Mapping) else {"observation": own}), STATE: state}
            for agent, own in observations.items()
        }
