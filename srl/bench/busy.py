"""An environment whose step takes a given time."""

from __future__ import annotations

import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Busy(gymnasium.Env):
    """Computes for some microseconds a step; its episodes last 200 steps.

    `srl bench pool --env srl.bench.busy:Busy --env.microseconds 100` measures how pools step it.
    """

    observation_space = spaces.Box(-1, 1, (4,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, microseconds: float = 100.0) -> None:
        """Takes the time of a step."""
        self._seconds = microseconds * 1e-6
        self._observation = np.zeros(4, np.float32)
        self._length = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begins an episode at once."""
        super().reset(seed=seed)
        self._length = 0
        return self._observation, {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Keeps its core busy."""
        end = time.thread_time() + self._seconds
        while time.thread_time() < end:
            pass
        self._length += 1
        return self._observation, 1.0, False, self._length == 200, {}
