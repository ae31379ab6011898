"""The state of a PettingZoo environment as a key of each agent's observation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gymnasium import spaces

from srl.core.errors import UserError, expect
from srl.pools.python.parallel_view import ParallelView
from srl.pools.python.simulator import add_part, with_part

STATE = "state"


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

    def observed(observations: Mapping[Any, Any]) -> dict[Any, Any]:
        state = env.state() if observations else None
        return {agent: add_part(own, STATE, state) for agent, own in observations.items()}

    return ParallelView(
        env, lambda agent: with_part(env.observation_space(agent), STATE, space), observed
    )


def asked_for_state(options: dict[str, Any]) -> bool:
    """Takes the option `world_state` out of options, and gives its value.

    Raises:
        UserError: If it is no bool.
    """
    given = options.pop("world_state", False)
    expect(isinstance(given, bool), "world_state", given, "true or false")
    return given
