"""Rewards that the agents of a team share, by patterns of their names."""

from __future__ import annotations

from collections.abc import Mapping

from srl.config.fixed import first_fitting
from srl.core.errors import UserError
from srl.core.lazy import jnp
from srl.core.types import Array

TeamRewards = tuple[tuple[tuple[int, ...], str], ...]
"""The indices of each team's agents, and the form of their reward: sum or mean."""


def team_rewards(forms: Mapping[str, str], agents: tuple[str, ...]) -> TeamRewards:
    """Gives the agents that share their rewards, and the form; the first fitting pattern counts.

    Raises:
        UserError: If a pattern fits no agent.
    """
    fitting = [first_fitting(forms, agent) for agent in agents]
    teams = {p: tuple(i for i, fit in enumerate(fitting) if fit == p) for p in forms}
    for pattern, members in teams.items():
        if not members:
            raise UserError(
                f"team_reward[{pattern!r}] is for no agent: the pattern fits none of "
                f"{list(agents)} that an earlier one does not fit"
            )
    return tuple((members, forms[pattern]) for pattern, members in teams.items())


def shared(reward: Array, teams: TeamRewards, agents: int) -> Array:
    """Gives rewards [T + 1, B] with the team's in place of those of its agents.

    Args:
        reward: Of each agent.
        teams: From `team_rewards`.
        agents: The number of agents in an environment.
    """
    if not teams:
        return reward
    own = reward.reshape(len(reward), -1, agents)
    columns = [own[..., i] for i in range(agents)]
    for members, form in teams:
        total = jnp.sum(own[..., list(members)], axis=-1)
        for i in members:
            columns[i] = total / len(members) if form == "mean" else total
    return jnp.stack(columns, axis=-1).reshape(reward.shape)
