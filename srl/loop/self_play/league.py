"""The opponents of a run: which versions enter the pool, and which of these play.

Both follow from the run's seed and the number of finished updates, so it makes no difference where
a run was stopped, or which of several learners asks.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from srl.config.experiment import Experiment
from srl.config.self_play import SelfPlay
from srl.core.errors import RunError, UserError
from srl.core.lazy import jax
from srl.core.types import Policy, Specs, Timestep, Tree
from srl.loop.policy_set import PolicySet
from srl.loop.self_play.exploiters import copy_exploiters
from srl.loop.self_play.pairings import Pairings
from srl.loop.self_play.past_acting import PastPolicies
from srl.loop.self_play.past_matches import PastMatches
from srl.record.checkpoint import Checkpoints
from srl.record.opponent_pool import OpponentPool
from srl.record.ratings import newest_ratings
from srl.record.results import WinRates

logger = logging.getLogger(__name__)

_READ_SECONDS = 30.0  # to wait for what another learner has written to a shared file system


def opponent_interval(experiment: Experiment, settings: SelfPlay, specs: Specs) -> int:
    """Gives the updates from one opponent to the next: an episode ends before its opponent leaves.

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
    graph = experiment.graph
    rows = math.ceil(specs.max_episode_steps / graph.action_repeat)
    updates = math.ceil(rows / graph.rows)
    # An actor with older parameters keeps its opponents that much longer.
    staleness = updates if experiment.max_staleness is None else experiment.max_staleness
    return max(1, updates + staleness)


class League:
    """The pool of a learner's past versions, those that play, and the results of their matches."""

    def __init__(
        self,
        experiment: Experiment,
        policy_set: PolicySet,
        policies: Mapping[str, Policy],
        folder: Path,
        *,
        writes: bool,
    ) -> None:
        """Puts the first version and exploiters into the pool, if this learner writes it.

        The run begins with `policies`.

        Raises:
            UserError: If it cannot be known how long an opponent has to stay.
            RunError: If the pool cannot be written.
        """
        settings, specs = experiment.self_play, policy_set.specs
        assert settings is not None
        self._settings, self._seed, self._writes = settings, experiment.seed, writes
        self._folder, self._pool = folder, OpponentPool(folder)
        self._like = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), dict(policies))
        self._updates = self._number = self._saved = 0
        self._versions = (0, 0)  # of the newer one that plays, and of the older
        exploiters = settings.exploiters
        self._exploiters = {-1 - number for number in range(len(exploiters))}
        self._win_rates = WinRates(settings.keep + len(exploiters) + len(self._versions))
        self._add_version(policies)
        if writes and exploiters:
            copy_exploiters(self._pool, exploiters, policy_set.instances)
        self.playing: PastPolicies | None = None
        """The past versions that play; None where none does."""
        self._matches: PastMatches | None = None
        num_envs = experiment.num_envs // experiment.num_groups
        pairings = Pairings.of(settings.past, specs.agents, num_envs)
        if pairings is not None:
            self._interval = opponent_interval(experiment, settings, specs)
            self._matches = PastMatches(specs, pairings, self._interval, experiment.graph)
            self.playing = self._past_policies(policies, policies)

    def count(self, timesteps: Timestep, updates: int) -> np.ndarray | None:
        """Counts the past matches in the timesteps [T, ...] of an update, after so many updates.

        Returns:
            The environments that play no past match, bool [N]; None where all are such.
        """
        if self._matches is None:
            return None
        for number, score in zip(*self._matches.add(timesteps, updates), strict=True):
            # One that began with an older opponent than these two has met several.
            if 0 <= self._number - number < len(self._versions):
                self._win_rates.add(self._versions[self._number - number], score)
        return self._matches.elsewhere(timesteps)

    def advance(self, updates: int, policies: Mapping[str, Policy]) -> None:
        """Takes the version that so many updates have led to, and lets others play if it is time.

        Raises:
            RunError: If the pool cannot be written.
        """
        self._updates = updates
        if updates % self._settings.every == 0:
            self._add_version(policies)
        if self.playing is not None and updates // self._interval != self._number:
            self._number = updates // self._interval
            version, chosen = self._choose(policies)
            self._versions = (version, self._versions[0])
            self.playing = self._past_policies(chosen, self.playing.newer)

    def begin_with(self, policies: Mapping[str, Policy]) -> None:
        """Takes other policies than those of `__init__` to begin with, before the first update."""
        if self._writes:
            self._pool.write(0, policies)
        if self.playing is not None:
            self.playing = self._past_policies(policies, policies)

    def _add_version(self, policies: Mapping[str, Policy]) -> None:
        """Puts the present version into the pool, and drops what nothing needs any more."""
        if not self._writes:
            return
        if self._updates or not self._pool.readable(0):  # a resumed run has a first version
            self._pool.write(self._updates, policies)
        # A run that resumes from a checkpoint chooses out of what was there at that time.
        # The newest checkpoint may still be on its way to the disk.
        needed = set(self._settings.pool(self._updates))
        checkpoints = Checkpoints(self._folder / "checkpoints")
        for version in (*checkpoints.versions(), self._saved):
            needed.update(self._settings.pool(version))
        there = (version for version in self._pool.versions() if version <= self._updates)
        self._pool.drop(set(there) - needed)

    def _choose(self, present: Mapping[str, Policy]) -> tuple[int, dict[str, Policy]]:
        """Gives a version of the pool; one that cannot be read is passed over."""
        there = {*self._settings.pool(self._updates), *self._exploiters, self._versions[0]}
        self._win_rates.keep(there)
        rates = self._win_rates.known()
        for version in self._settings.opponents(self._seed, self._number, self._updates, rates):
            try:
                if version == self._updates:
                    return version, dict(present)
                wait = 0.0 if self._writes else _READ_SECONDS
                read = jax.device_put(self._pool.read(version, self._like, wait))
                return version, {**present, **read}
            except RunError as error:
                logger.warning("%s; another one plays", error)
        logger.warning("the pool of opponents has none that can be read; the present one plays")
        return self._updates, dict(present)

    def _past_policies(
        self, newer: Mapping[str, Policy], older: Mapping[str, Policy]
    ) -> PastPolicies:
        return PastPolicies(newer, older, jax.device_put(np.int32(self._number)))

    def report(self) -> dict[str, Any]:
        """Gives the results of past matches, the pool's size, the opponent, and the ratings."""
        report: dict[str, Any] = {} if self._matches is None else self._matches.report()
        report["past/pool"] = len(self._settings.pool(self._updates))
        if self.playing is not None:
            report["past/version"] = version = self._versions[0]
            report["past/win_rate"] = self._win_rates.known().get(version)
        return {**report, **(newest_ratings(self._folder) if self._writes else {})}

    def state(self) -> dict[str, Tree]:
        """Gives what `restore` needs; there are no numbers of past versions where none plays."""
        self._saved = self._updates
        if self.playing is None or self._matches is None:
            return {"opponents": {}}
        newer, older, _ = self.playing
        numbers = np.array([self._number, *self._versions])
        return {
            "opponents": {"newer": newer, "older": older, "numbers": numbers},
            "past": {**self._matches.state(), "win_rates": self._win_rates.state()},
        }

    def restore(self, updates: int, tree: Mapping[str, Tree]) -> None:
        """Continues from a checkpoint; versions that were made after it leave the pool."""
        self._updates = updates
        if self._writes:
            self._pool.drop([v for v in self._pool.versions() if v > updates])
        if self._matches is None:
            return
        self._matches.restore(tree["past"])
        self._win_rates.restore(tree["past"]["win_rates"])
        opponents = tree["opponents"]
        self._number, *versions = (int(number) for number in opponents["numbers"])
        self._versions = (versions[0], versions[1])
        newer, older = (
            jax.tree.structure(self._like).unflatten(
                jax.tree.leaves(jax.device_put(opponents[name]))
            )
            for name in ("newer", "older")
        )
        self.playing = self._past_policies(newer, older)
