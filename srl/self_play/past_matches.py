"""Results of matches against past versions, apart from those between present policies."""

from __future__ import annotations

import logging

import numpy as np

from srl.episodes import EpisodeWindow, ended_episodes
from srl.self_play.pairings import Pairings
from srl.types import Specs, Timestep, Tree

logger = logging.getLogger(__name__)


class PastMatches:
    """The last episodes in which a past version played a side, for each side."""

    def __init__(self, specs: Specs, pairings: Pairings, interval: int, unroll_length: int) -> None:
        """Starts empty.

        Args:
            specs: The specs of the environments.
            pairings: Which of them play past matches.
            interval: The updates from one opponent to the next.
            unroll_length: The steps of an update.
        """
        self._agents, self._pairings = len(specs.agents), pairings
        self._interval, self._length = interval, unroll_length
        self._windows = {side: EpisodeWindow(specs, pairings.sides) for side in pairings.sides}
        self._outlived = 0

    def elsewhere(self, timesteps: Timestep) -> np.ndarray:
        """Gives the environments that play no past match: bool [N], of timesteps [T, ...]."""
        return self._pairings.environments(timesteps.lost.shape[1], None)

    def add(self, timesteps: Timestep, updates: int) -> None:
        """Adds the episodes that end in an update's timesteps [T, ...], after so many updates."""
        for side, window in self._windows.items():
            window.add(timesteps, self._pairings.environments(timesteps.lost.shape[1], side))
        ended = ended_episodes(timesteps, self._agents) & ~self.elsewhere(timesteps)
        step, env = np.nonzero(ended)
        row = updates * self._length + step + 1  # counted from the run's first
        begun, over = (row - timesteps.episode_length[step, env], row - 1)
        opponents = [x // self._length // self._interval for x in (begun, over)]
        outlived = int((opponents[1] > opponents[0] + 1).sum())
        if outlived and not self._outlived:
            logger.warning(
                "an episode took longer than its past opponent stays, which is %d updates; another "
                "one took over (past/outlived counts these): raise --self-play.hold",
                self._interval,
            )
        self._outlived += outlived

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
