"""An environment that costs nothing, so that what is measured is all the rest."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

_EPISODE_STEPS = 200


class Idle(gymnasium.Env[np.ndarray, np.int64]):
    """Shows the same four numbers at each step; episodes are truncated after 200."""

    def __init__(self) -> None:
        self.observation_space = gymnasium.spaces.Box(-1, 1, (4,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)
        self._observation = np.zeros(4, np.float32)
        self._steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begins an episode."""
        super().reset(seed=seed)
        self._steps = 0
        return self._observation, {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Counts."""
        self._steps += 1
        return self._observation, 1.0, False, self._steps >= _EPISODE_STEPS, {}
