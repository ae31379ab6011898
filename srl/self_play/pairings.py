"""Matches against past selves: which slots a past version plays, and how it acts for them.

Everything here is a matter of positions, and so the same for every group of environments, whoever
acts for it: who learns and who acts takes static slices, and computes nothing for other slots.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from srl.episodes import kinds_of
from srl.errors import UserError
from srl.lazy import jax, jnp
from srl.types import Array, Policy, Tree

PAST = "/past"
"""Where a mapping by policy holds what belongs to past versions; no policy has such a name."""

NOBODY = -1
"""The number of an opponent that is still to be taken."""


class Opponents(NamedTuple):
    """The past versions that play at present.

    An episode that begins takes the newer one, and keeps it to its end: that is why the one before
    is there, too.
    """

    newer: Mapping[str, Policy]
    older: Mapping[str, Policy]
    number: Array  # int32 [], which of the run's opponents the newer one is


class Seat(NamedTuple):
    """Of one policy, in one period: the slots that a past version plays."""

    slots: tuple[int, ...]
    match: tuple[int, ...]
    """Of each slot: in which of the period's past matches it is."""


@dataclass(frozen=True)
class Past:
    """Which environments play past matches, and which of their agents the past version plays."""

    agents: int
    """Of each environment."""
    sides: Mapping[str, tuple[int, ...]]
    """Agent indices by the side's name."""
    played: tuple[str | None, ...]
    """The side that a past version plays in each environment of a period; None in the others. It
    is repeated for all environments."""

    @staticmethod
    def of(share: float, agents: tuple[str, ...], num_envs: int) -> Past | None:
        """Spreads past matches over a group's environments; None for a share of 0.

        Args:
            share: Of the environments.
            agents: Names of each environment's.
            num_envs: Of a group.

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
        return Past(len(agents), sides, tuple(played[:period]))

    @property
    def period(self) -> int:
        """Environments after which all repeats."""
        return len(self.played)

    @cached_property
    def matches(self) -> tuple[int, ...]:
        """The environments of a period that play past matches."""
        return tuple(env for env, side in enumerate(self.played) if side is not None)

    def environments(self, num_envs: int, side: str | None) -> np.ndarray:
        """In which environments a past version plays this side, or none: bool [num_envs]."""
        return np.tile([side == played for played in self.played], num_envs // self.period)

    def present(self, members: tuple[int, ...]) -> tuple[int, ...]:
        """The slots of a period that these agents' present policy plays."""
        slots = ((env, agent) for env in range(self.period) for agent in members)
        return tuple(e * self.agents + a for e, a in slots if not self._is_past(e, a))

    def seat(self, members: tuple[int, ...]) -> Seat:
        """The slots of a period that a past version of these agents' policy plays."""
        slots = [(e, a) for e in self.matches for a in members if self._is_past(e, a)]
        match = {env: number for number, env in enumerate(self.matches)}
        return Seat(
            tuple(env * self.agents + agent for env, agent in slots),
            tuple(match[env] for env, _ in slots),
        )

    def _is_past(self, env: int, agent: int) -> bool:
        side = self.played[env]
        return side is not None and agent in self.sides[side]

    # ---- who plays in each match: int32 [M], of the M past matches among N environments ----

    def nobody_yet(self, num_envs: int) -> Array:
        """Before the first row of an episode."""
        return jnp.full(num_envs // self.period * len(self.matches), NOBODY, jnp.int32)

    def opponent_of_each(self, number: Array, newest: Array) -> tuple[Array, Array]:
        """Who plays now, and where that is another than before in the midst of an episode.

        Args:
            number: Of the opponent before, or NOBODY.
            newest: Of the newer one of those that are there.
        """
        there = (number == newest) | (number == newest - 1) & (number >= 0)
        return jnp.where(there, number, newest), ~there & (number != NOBODY)

    def after(self, number: Array, ended: Array) -> Array:
        """What is remembered of who plays: nobody after a row that ends an episode.

        Args:
            number: int32 [M].
            ended: bool [B]; where it is of all agents of an environment, its episode has ended.
        """
        whole = ended.reshape(-1, self.period, self.agents).all(-1)
        return jnp.where(whole[:, np.array(self.matches)].reshape(-1), NOBODY, number)

    def of_slots(self, seat: Seat, x: Array) -> Array:
        """What belongs to matches, [M], as it belongs to the slots of a seat."""
        return x.reshape(-1, len(self.matches))[:, np.array(seat.match)].reshape(-1)


def sides_of(agents: tuple[str, ...]) -> dict[str, tuple[int, ...]]:
    """Who plays against whom: the kinds of agents; where there is one kind, each agent by itself.

    Raises:
        UserError: If there is only one agent.
    """
    if len(agents) == 1:
        raise UserError(
            f"self_play needs an environment of several agents; this one has {agents[0]!r} alone"
        )
    kinds = kinds_of(agents)
    return kinds if len(kinds) > 1 else {name: (i,) for i, name in enumerate(agents)}


def where_rows(condition: Array, one: Tree, other: Tree) -> Any:
    """Rows of one of two trees, as bool [B] says."""
    return jax.tree.map(
        lambda a, b: jnp.where(condition.reshape(-1, *[1] * (a.ndim - 1)), a, b), one, other
    )
