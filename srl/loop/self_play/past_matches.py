"""Results of matches against past versions, apart from those between present policies."""

from __future__ import annotations

import logging

import numpy as np

from srl.core.episodes import EpisodeWindow, ended_episodes
from srl.core.types import Specs, Timestep, Tree
from srl.dataflow.graph import Graph
from srl.loop.self_play.pairings import Pairings
from srl.record.results import scores_of

logger = logging.getLogger(__name__)


class PastMatches:
    """The last episodes in which a past version played a side, for each side."""

    def __init__(self, specs: Specs, pairings: Pairings, interval: int, graph: Graph) -> None:
        """Starts empty; the next opponent comes after an interval, in updates."""
        self._agents, self._pairings = len(specs.agents), pairings
        self._interval, self._rows, self._repeat = interval, graph.rows, graph.action_repeat
        self._windows = {side: EpisodeWindow(specs, pairings.sides) for side in pairings.sides}
        self._outlived = 0

    def elsewhere(self, timesteps: Timestep) -> np.ndarray:
        """Gives the environments that play no past match: bool [N], of timesteps [T, ...]."""
        return self._pairings.environments(timesteps.lost.shape[1], None)

    def add(self, timesteps: Timestep, updates: int) -> tuple[np.ndarray, np.ndarray]:
        """Adds the episodes that end in an update's timesteps [T, ...], after so many updates.

        Returns:
            Of these M episodes which of the run's opponents began them, int64 [M], and what the
            present policies got, float64 [M]: 1 for a match that was won, 0.5 for a draw, 0.
        """
        for side, window in self._windows.items():
            window.add(timesteps, self._pairings.environments(timesteps.lost.shape[1], side))
        ended = ended_episodes(timesteps, self._agents) & ~self.elsewhere(timesteps)
        step, env = np.nonzero(ended)
        # Rows are counted from the run's first on. Of a pass with several unrolls, these are taken
        # for the last one's, so that no episode is taken for one that outlived its opponent.
        last = (updates + 1) * self._rows - len(ended) + step
        rows = -(-timesteps.episode_length[step, env] // self._repeat)
        first = self._opponent(last + 1 - rows)
        outlived = int((self._opponent(last) > first + 1).sum())
        if outlived and not self._outlived:
            logger.warning(
                "an episode took longer than its past opponent stays, which is %d updates; another "
                "one took over (past/outlived counts these): raise --self-play.hold",
                self._interval,
            )
        self._outlived += outlived
        return first, self._scores(timesteps.episode_return.reshape(*ended.shape, -1), step, env)

    def _scores(self, returns: np.ndarray, step: np.ndarray, env: np.ndarray) -> np.ndarray:
        """Gives scores of present policies in ended episodes; `returns` are [T, N, A]."""
        scores = np.zeros(len(step))
        for side, members in self._pairings.sides.items():
            played = self._pairings.environments(returns.shape[1], side)[env]
            scores[played] = 1 - scores_of(returns[step[played], env[played]], members)
        return scores

    def _opponent(self, row: np.ndarray) -> np.ndarray:
        """Gives the newest opponent at each of these rows, from 0."""
        return row // self._rows // self._interval

    def report(self) -> dict[str, float | int | None]:
        """Gives means over the windows, by the side that a past version played."""
        each = {side: window.report() for side, window in self._windows.items()}
        means = {f"past/{side}/{k}": v for side, own in each.items() for k, v in own.items()}
        return {**means, "past/outlived": self._outlived}

    def state(self) -> dict[str, Tree]:
        """Gives what `restore` needs."""
        windows = {side: window.state() for side, window in self._windows.items()}
        return {"windows": windows, "outlived": np.asarray(self._outlived)}

    def restore(self, state: dict[str, Tree]) -> None:
        """Continues from a saved state."""
        for side, window in self._windows.items():
            window.restore(state["windows"][side])
        self._outlived = int(state["outlived"])
