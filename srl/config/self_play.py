"""Self-play: how often an agent meets its past, and which of it.

    experiment = Experiment(..., self_play=SelfPlay(past=0.2))

The settings, and the two pure functions by which all parts of a run agree on what the pool of
opponents holds and which version plays. Importing this loads nothing: experiment files do.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Literal

from srl.config.tracking import expect_texts
from srl.core.settings import AtLeastOne, Range, Settings, ZeroToOne, expect_settings

Choice = Literal["uniform", "recent", "hard"]
_NONE_KNOWN: Mapping[int, float] = MappingProxyType({})
_EASY = 1e-3  # the least weight of a version: also one that always loses is met now and then


@dataclass(frozen=True)
class SelfPlay(Settings):
    """Matches with past versions from a pool on disk."""

    past: ZeroToOne = 0.2
    """Share of the environments in which a past version plays one side; 0 keeps the pool only."""
    every: AtLeastOne = 20
    """Updates between versions that enter the pool."""
    keep: Annotated[int, Range(2)] = 20
    """Most versions in the pool: the first, the newest, and others evenly between."""
    choice: Choice = "uniform"
    """The opponents: any version of the pool, those of its newer half, or more often those that are
    hard to beat (prioritised fictitious self-play of Vinyals et al., 2019)."""
    hold: Annotated[int | None, Range(1)] = None
    """Updates between past opponents. The default is the length of the longest episode; give it if
    that is not known. An episode keeps its opponent, unless it takes longer than this."""
    exploiters: tuple[str, ...] = ()
    """Other runs, as RUN_DIR or RUN_DIR:VERSION, whose policies are further opponents: those with
    the same names and networks as policies here. Their files are copied when the run begins."""
    evaluate: ZeroToOne = 0.05
    """Largest share of the CPUs for Elo ratings, by a background process; 0 for none."""

    def validate(self) -> None:
        """Raises UserError where a setting is out of its limits."""
        expect_settings("self_play", self)
        expect_texts("self_play.exploiters", self.exploiters)

    def pool(self, updates: int) -> tuple[int, ...]:
        """The versions in the pool after so many updates, oldest first.

        Those that are a multiple of `every` times a power of two, as low a one as `keep` allows,
        and the newest. What has once left never comes back, so it need not be kept.
        """
        count, stride = updates // self.every + 1, 1
        while len(there := {*range(0, count, stride), count - 1}) > self.keep:
            stride *= 2
        return tuple(number * self.every for number in sorted(there))

    def opponents(
        self, seed: int, number: int, updates: int, win_rates: Mapping[int, float] = _NONE_KNOWN
    ) -> tuple[int, ...]:
        """The versions of the pool in the order in which one is taken; the first, if it can be.

        Exploiters are -1, -2 and so on.

        Args:
            seed: The run's.
            number: Of the opponent in the run, from 0.
            updates: Done when it is chosen.
            win_rates: The share of matches that are won against versions, 0 to 1, for "hard"; 0.5
                where it is not known.
        """
        there = self.pool(updates)
        if self.choice == "recent":
            there = there[len(there) // 2 :]
        there += tuple(-1 - number for number in range(len(self.exploiters)))

        def drawn(version: int) -> bytes:
            return hashlib.sha256(f"opponent {number} {version} {seed}".encode()).digest()

        def arrival(version: int) -> float:
            """When a version comes first by its weight (Efraimidis and Spirakis, 2006)."""
            uniform = (int.from_bytes(drawn(version)[:6]) + 1) / 2**48
            return -math.log(uniform) / ((1 - win_rates.get(version, 0.5)) ** 2 + _EASY)

        rank = arrival if self.choice == "hard" else drawn
        return tuple(sorted(there, key=rank))
