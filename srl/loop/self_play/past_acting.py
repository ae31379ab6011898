"""Acting of past versions for their slots. Functions are pure; M past matches are in N envs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from srl.algorithms.algorithm import Instance
from srl.algorithms.returns import where_rows
from srl.core.lazy import jax, jnp
from srl.core.types import Array, Decision, Policy, Tree
from srl.loop.self_play.pairings import OpponentSlots, Pairings

NO_OPPONENT = -1
"""The number of an opponent that is still to be chosen."""


class PastPolicies(NamedTuple):
    """The past versions that play at present.

    An episode that begins takes the newer one and keeps it to its end, which is why the one before
    it is still there.
    """

    newer: Mapping[str, Policy]
    older: Mapping[str, Policy]
    number: Array  # int32 [], which of the run's opponents the newer one is


@dataclass(frozen=True)
class PastActing:
    """Acts for the slots that past versions play."""

    pairings: Pairings
    members: Mapping[str, tuple[int, ...]]
    """Agent indices of each policy."""
    instances: Mapping[str, Instance]

    @property
    def period(self) -> int:
        """The number of environments after which the slots of past versions repeat."""
        return self.pairings.period

    @cached_property
    def _slots(self) -> dict[str, OpponentSlots]:
        """The slots of a period that each policy's past versions play."""
        slots = {name: self.pairings.opponent_slots(own) for name, own in self.members.items()}
        return {name: own for name, own in slots.items() if own.slots}

    @cached_property
    def _act_of(self) -> dict[str, Callable[..., Decision]]:
        """`act` of each policy, traced once for both past versions."""
        return {name: jax.jit(self.instances[name].act) for name in self._slots}

    def present_slots(self, members: tuple[int, ...]) -> tuple[int, ...]:
        """Gives the slots of a period that these agents' present policy plays."""
        return self.pairings.present_slots(members)

    def first(self, policies: Mapping[str, Policy]) -> PastPolicies:
        """Gives the present policies in the place of past ones."""
        return PastPolicies(policies, policies, jnp.zeros((), jnp.int32))

    def initial_memory(self, num_envs: int) -> Tree:
        """Gives the opponent of each match, int32 [M], and the memory of the slots by policy."""
        periods = num_envs // self.period
        matches = periods * len(self.pairings.matches)
        return {
            "opponent": jnp.full(matches, NO_OPPONENT, jnp.int32),
            "memory": {
                name: self.instances[name].initial_memory(periods * len(own.slots))
                for name, own in self._slots.items()
            },
        }

    def act(
        self,
        past: PastPolicies,
        memory: Tree,
        ended: Array,
        rows: Callable[[tuple[int, ...]], tuple[Tree, Array, Array, Array]],
    ) -> tuple[list[tuple[tuple[int, ...], Decision]], Tree]:
        """Decides for the slots that past versions play.

        Both past versions decide for all of them, as any may be in an episode with either.

        Args:
            past: The versions that play.
            memory: What `initial_memory` or the step before gave.
            ended: bool [B], all rows that end an episode.
            rows: Gives the observation, the keys, the numbers and `ended` of some slots of each
                period.

        Returns:
            The decisions with the slots that they are for, and the memory for the next step.
        """
        opponent, replaced = _opponent_of_each(memory["opponent"], past.number)
        decisions: list[tuple[tuple[int, ...], Decision]] = []
        following: dict[str, Tree] = {}
        for name, own in self._slots.items():
            instance = self.instances[name]
            observation, keys, numbers, own_ended = rows(own.slots)
            # An opponent that takes over during an episode remembers nothing of it.
            remembered = instance.memory_after(
                memory["memory"][name], self._of_slots(own, replaced)
            )
            newer, older = (
                self._act_of[name](policies[name], observation, remembered, keys, numbers)
                for policies in (past.newer, past.older)
            )
            decision = where_rows(self._of_slots(own, opponent == past.number), newer, older)
            following[name] = instance.memory_after(decision.memory, own_ended)
            decisions.append((own.slots, decision))
        return decisions, {"opponent": self._after(opponent, ended), "memory": following}

    def _after(self, opponent: Array, ended: Array) -> Array:
        """Gives the opponents that stay after these rows: none where the episode has ended.

        Args:
            opponent: int32 [M].
            ended: bool [B]; an episode ends where this is set for all agents of an environment.
        """
        whole = ended.reshape(-1, self.period, self.pairings.agents).all(-1)
        matches = whole[:, np.array(self.pairings.matches)].reshape(-1)
        return jnp.where(matches, NO_OPPONENT, opponent)

    def _of_slots(self, own: OpponentSlots, x: Array) -> Array:
        """Gives the values of matches, [M], for each slot of these matches."""
        return x.reshape(-1, len(self.pairings.matches))[:, np.array(own.match)].reshape(-1)


def _opponent_of_each(number: Array, newest: Array) -> tuple[Array, Array]:
    """Gives the opponent that plays now, and where it replaces another during an episode.

    Args:
        number: int32 [M], the opponent before, or NO_OPPONENT.
        newest: The newer one of the two that there are.
    """
    there = (number == newest) | (number == newest - 1) & (number >= 0)
    return jnp.where(there, number, newest), ~there & (number != NO_OPPONENT)
