"""The process beside a run that lets the versions in its pool play each other, and rates them.

It has the lowest priority, one thread, and a share of the processors' time. It reads the run's
folder and writes one file there; nothing of the training depends on it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from srl.config.experiment import Experiment
from srl.core.errors import RunError
from srl.core.lazy import jax
from srl.evaluation.episodes import Evaluator, Player
from srl.evaluation.playing import keep_playing, one_thread_pool
from srl.loop.policy_set import PolicySet
from srl.loop.seeds import environment_seed
from srl.loop.self_play.pairings import sides_of
from srl.record.opponent_pool import OpponentPool
from srl.record.ratings import Match, read_matches, write_ratings
from srl.record.results import scores_of
from srl.system.background.cpu_limit import CpuLimit

logger = logging.getLogger(__name__)

_EPISODES = 8  # of a match, each in an environment of its own
_MOST_GAMES = 200  # of each pairing, after which the rating hardly changes
_POLL_SECONDS = 1.0  # between two looks for a version to play with


def main(argv: Sequence[str]) -> int:
    """Rates the versions of the run in a folder until the parent ends.

    Returns:
        The exit code: 2 for an error that another start would not fix.
    """
    return keep_playing("rater", argv, Rater, _POLL_SECONDS)


class Rater:
    """Plays one match after another."""

    def __init__(self, folder: Path, experiment: Experiment, cpu_limit: CpuLimit) -> None:
        self._folder, self._seed, self._cpu_limit = folder, experiment.seed, cpu_limit
        self._environments = environments = one_thread_pool(
            experiment.env, _EPISODES, experiment.action_repeat
        )
        specs = environments.specs
        self._sides = sides_of(specs.agents)
        self._evaluator = Evaluator(environments, _EPISODES, sides=self._sides)
        self._policy_set = policy_set = PolicySet.of(
            experiment.algorithm, experiment.policies, specs, updates=1
        )
        self._like = jax.eval_shape(
            lambda key: policy_set.policies(policy_set.init(key)), jax.random.key(0)
        )
        self._pool = OpponentPool(folder)
        self._damaged: set[int] = set()

    def close(self) -> None:
        """Frees the environments."""
        self._environments.close()

    def play(self) -> bool:
        """Lets a pair play that has played least, and writes all ratings; False if there is none.

        It plays all pairings before anything is written, so that no side's rating is missing.
        """
        try:
            identities = self._identities()
            payoff = read_matches(self._folder, identities)
            pairings = payoff.next(list(self._sides), identities)
            if not pairings or payoff.results[pairings[0]][0] >= _MOST_GAMES:
                return False
            for match in pairings:
                returns = self._returns(match, payoff.results[match][0])
                payoff.add(match, scores_of(returns, self._sides[match.side]))
            write_ratings(self._folder, payoff, list(self._sides), identities)
        except RunError as error:  # a version has left the pool meanwhile, or is damaged
            logger.info("%s", error)
            return False
        return True

    def _identities(self) -> dict[int, str]:
        """Gives the identities of the versions that can be read."""
        identities: dict[int, str] = {}
        for version in set(self._pool.versions()) - self._damaged:
            try:
                identities[version] = self._pool.identity(version)
            except RunError as error:
                self._note_damage(version, error)
        return identities

    def _player(self, version: int) -> Player:
        try:
            policies = self._pool.read(version, self._like)
        except RunError as error:
            self._note_damage(version, error)
            raise
        return Player(self._policy_set, jax.device_put(policies))

    def _note_damage(self, version: int, error: RunError) -> None:
        """Leaves a version out from now on, unless it has only left the pool meanwhile."""
        if version in self._pool.versions():
            logger.warning("%s; it is rated no more", error)
            self._damaged.add(version)

    def _returns(self, match: Match, games: int) -> np.ndarray:
        """Plays a match; gives all agents' returns in its episodes, [N, A]."""
        own, others = self._player(match.version), self._player(match.others)
        lineup = {side: own if side == match.side else others for side in self._sides}
        seed = environment_seed(self._seed, f"rating {games}")
        self._evaluator.seed(seed, seed)
        return self._evaluator.play(lineup, lambda ended: self._cpu_limit.rest()).returns
