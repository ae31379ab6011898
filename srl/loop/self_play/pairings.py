"""The slots that past versions play: fixed positions, the same in every group of environments.

So acting and learning take static slices, and nothing is computed for the other slots.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from srl.core.episodes import kinds_of
from srl.core.errors import UserError


class OpponentSlots(NamedTuple):
    """The slots of one period that past versions of one policy play."""

    slots: tuple[int, ...]
    match: tuple[int, ...]
    """The number of each slot's match among the period's past matches."""


@dataclass(frozen=True)
class Pairings:
    """The environments of past matches, and their agents that the past version plays."""

    agents: int
    """The number of agents in each environment."""
    sides: Mapping[str, tuple[int, ...]]
    """Agent indices by the side's name."""
    played: tuple[str | None, ...]
    """The side that a past version plays in each environment of a period; None in the others. The
    pattern is repeated for all environments."""

    @staticmethod
    def of(share: float, agents: tuple[str, ...], num_envs: int) -> Pairings | None:
        """Spreads a share of past matches evenly over a group's environments; None for 0.

        Raises:
            UserError: If there is only one agent, or some side would play no past match.
        """
        sides = sides_of(agents)
        if not share:
            return None
        count = round(share * num_envs)
        if count < len(sides):
            raise UserError(
                f"self_play.past={share:g} of the {num_envs} environments of a group makes {count} "
                f"past matches, and each of the sides {', '.join(sides)} needs one; give more "
                "num_envs, fewer groups, or a larger share"
            )
        # Environment i is one of them where i * count / num_envs passes a whole number (Bresenham).
        where = [i for i in range(num_envs) if (i + 1) * count // num_envs > i * count // num_envs]
        played: list[str | None] = [None] * num_envs
        for number, env in enumerate(where):
            played[env] = list(sides)[number % len(sides)]
        periods = (p for p in range(1, num_envs + 1) if num_envs % p == 0)
        period = next(p for p in periods if played == played[:p] * (num_envs // p))
        return Pairings(len(agents), sides, tuple(played[:period]))

    @property
    def period(self) -> int:
        """The number of environments after which the pattern repeats."""
        return len(self.played)

    @cached_property
    def matches(self) -> tuple[int, ...]:
        """The environments of a period that play past matches."""
        return tuple(env for env, side in enumerate(self.played) if side is not None)

    def environments(self, num_envs: int, side: str | None) -> np.ndarray:
        """Gives the environments where a past version plays this side, or none: bool [num_envs]."""
        return np.tile([side == played for played in self.played], num_envs // self.period)

    def present_slots(self, members: tuple[int, ...]) -> tuple[int, ...]:
        """Gives the slots of a period that these agents' present policy plays."""
        slots = ((env, agent) for env in range(self.period) for agent in members)
        return tuple(e * self.agents + a for e, a in slots if not self._is_past(e, a))

    def opponent_slots(self, members: tuple[int, ...]) -> OpponentSlots:
        """Gives the slots of a period that a past version of these agents' policy plays."""
        slots = [(e, a) for e in self.matches for a in members if self._is_past(e, a)]
        match = {env: number for number, env in enumerate(self.matches)}
        return OpponentSlots(
            tuple(env * self.agents + agent for env, agent in slots),
            tuple(match[env] for env, _ in slots),
        )

    def _is_past(self, env: int, agent: int) -> bool:
        side = self.played[env]
        return side is not None and agent in self.sides[side]


def sides_of(agents: tuple[str, ...]) -> dict[str, tuple[int, ...]]:
    """Gives the agents of each side: a kind of agents, or one agent where all are of one kind.

    Raises:
        UserError: If there is only one agent.
    """
    if len(agents) == 1:
        raise UserError(
            f"self_play needs an environment of several agents; this one has {agents[0]!r} alone"
        )
    kinds = kinds_of(agents)
    return kinds if len(kinds) > 1 else {name: (i,) for i, name in enumerate(agents)}
