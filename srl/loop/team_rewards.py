"""Teams: rewards that agents share, by patterns of their names, and agents that learn together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

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
    """Gives agents' rewards [T + 1, B] with the team's in place of those of its agents."""
    if not teams:
        return reward
    own = reward.reshape(len(reward), -1, agents)
    columns = [own[..., i] for i in range(agents)]
    for members, form in teams:
        total = jnp.sum(own[..., list(members)], axis=-1)
        for i in members:
            columns[i] = total / len(members) if form == "mean" else total
    return jnp.stack(columns, axis=-1).reshape(reward.shape)


def expect_whole_teams(policy: str, slots: Sequence[int], agents: int, members: int) -> None:
    """Raises UserError where past versions would play a part of a team.

    Args:
        policy: The name of the team's policy.
        slots: Those of the run that it acts for.
        agents: The number of agents in an environment.
        members: The number of those of the policy.
    """
    if (np.bincount(np.array(slots) // agents) % members).any():
        raise UserError(
            f"policy {policy!r} has a mixer, which joins all its agents, and past versions play "
            "one side of them: give each side a policy, or leave one of the two out"
        )
