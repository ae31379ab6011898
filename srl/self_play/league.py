"""Who plays against the run: what of it enters the pool of opponents, and which of these play.

Both are functions of the run's seed and of how many updates are done, so it makes no difference
where a run was stopped, or which of several learners looks.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from srl.checkpoint import Checkpoints
from srl.errors import RunError, UserError
from srl.experiment import Experiment
from srl.lazy import jax
from srl.self_play.opponent_pool import OpponentPool
from srl.self_play.pairings import Opponents
from srl.self_play.settings import SelfPlay
from srl.types import Policy, Specs, Tree
from srl.workers.teams import Teams

logger = logging.getLogger(__name__)

_PATIENCE_SECONDS = 30.0  # for what another learner has written on a file system of several hosts


def hold_of(experiment: Experiment, settings: SelfPlay, specs: Specs) -> int:
    """Updates from one past opponent to the next, so that an episode ends before its opponent goes.

    Raises:
        UserError: If that cannot be known.
    """
    if settings.hold is not None:
        return settings.hold
    if specs.max_episode_steps is None:
        raise UserError(
            "self_play.hold: this environment does not say how long an episode may be; give the "
            "updates for which an episode may need its opponent, such as --self-play.hold 20"
        )
    unrolls = math.ceil(specs.max_episode_steps / experiment.algorithm.unroll_length)
    # Who acts with older parameters has an opponent that much longer.
    staleness = unrolls if experiment.max_staleness is None else experiment.max_staleness
    return max(1, unrolls + staleness)


class League:
    """The pool, and the past versions that play; of a learner."""

    def __init__(
        self,
        experiment: Experiment,
        teams: Teams,
        policies: Mapping[str, Policy],
        folder: Path,
        *,
        writes: bool,
    ) -> None:
        """Puts the first version into the pool.

        Args:
            experiment: What is trained, with self-play.
            teams: Its policies.
            policies: Those that the run begins with.
            folder: Of the run.
            writes: Whether this learner keeps the pool; another may do so.
        """
        assert experiment.self_play is not None
        self._settings, self._seed, self._writes = experiment.self_play, experiment.seed, writes
        self._pool = OpponentPool(folder)
        self._checkpoints = Checkpoints(folder / "checkpoints")
        self._like = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), dict(policies))
        self._updates = self._number = self._saved = 0
        self._versions = (0, 0)  # of the newer one that plays, and of the older
        self._enter(policies)
        self.playing: Opponents | None = None
        """The past versions that play; None where none does."""
        if teams.past is not None:
            self._hold = hold_of(experiment, self._settings, teams.specs)
            first = jax.device_put(jax.device_get(dict(policies)))
            self.playing = self._opponents(first, first)

    def advance(self, updates: int, policies: Mapping[str, Policy]) -> None:
        """Takes the version that so many updates have led to, and lets others play if it is time.

        Raises:
            RunError: If the pool cannot be written.
        """
        self._updates = updates
        if updates % self._settings.every == 0:
            self._enter(policies)
        if self.playing is not None and updates // self._hold != self._number:
            self._number = updates // self._hold
            version, chosen = self._choose(policies)
            self._versions = (version, self._versions[0])
            self.playing = self._opponents(chosen, self.playing.newer)

    def _enter(self, policies: Mapping[str, Policy]) -> None:
        """Puts the present version into the pool, and takes out what nothing needs any more."""
        if not self._writes:
            return
        if self._updates or not self._pool.readable(0):  # a run that goes on has begun long ago
            self._pool.write(self._updates, policies)
        # A run that goes on from a checkpoint chooses out of what was there at that time.
        # The newest checkpoint may still be on its way to the disk.
        needed = set(self._settings.pool(self._updates))
        for version in (*self._checkpoints.versions(), self._saved):
            needed.update(self._settings.pool(version))
        there = (version for version in self._pool.versions() if version <= self._updates)
        self._pool.drop(set(there) - needed)

    def _choose(self, present: Mapping[str, Policy]) -> tuple[int, dict[str, Policy]]:
        """Gives a version of the pool; one that cannot be read is passed over."""
        for version in self._settings.opponents(self._seed, self._number, self._updates):
            try:
                if version == self._updates:
                    policies = jax.device_get(dict(present))
                else:
                    patience = 0.0 if self._writes else _PATIENCE_SECONDS
                    policies = self._pool.read(version, self._like, patience)
                return version, jax.device_put(policies)
            except RunError as error:
                logger.warning("%s; another one plays", error)
        logger.warning("the pool of opponents has none that can be read; the present one plays")
        return self._updates, jax.device_put(jax.device_get(dict(present)))

    def _opponents(self, newer: Mapping[str, Policy], older: Mapping[str, Policy]) -> Opponents:
        return Opponents(newer, older, jax.device_put(np.int32(self._number)))

    def report(self) -> dict[str, Any]:
        """How many are in the pool, and which version it is that new past matches are against."""
        pool = {"past/pool": len(self._settings.pool(self._updates))}
        return pool if self.playing is None else {**pool, "past/version": self._versions[0]}

    def state(self) -> dict[str, Tree]:
        """Gives what `restore` needs; nothing where no past version plays."""
        self._saved = self._updates
        if self.playing is None:
            return {}
        newer, older, _ = self.playing
        numbers = np.array([self._number, *self._versions])
        return {"newer": newer, "older": older, "numbers": numbers}

    def restore(self, updates: int, tree: Mapping[str, Tree]) -> None:
        """Goes on from a saved state; versions that were made later leave the pool."""
        self._updates = updates
        if self._writes:
            self._pool.drop([v for v in self._pool.versions() if v > updates])
        if self.playing is not None:
            self._number, *versions = (int(number) for number in tree["numbers"])
            self._versions = (versions[0], versions[1])
            newer, older = (
                jax.tree.structure(self._like).unflatten(
                    jax.tree.leaves(jax.device_put(tree[name]))
                )
                for name in ("newer", "older")
            )
            self.playing = self._opponents(newer, older)
