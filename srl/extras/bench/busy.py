"""Environments whose step costs nothing, or takes a given time."""

from __future__ import annotations

import time
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


class Busy(Idle):
    """Computes or waits for some microseconds a step.

    `srl bench pool --env srl.extras.bench.busy:Busy --env.microseconds 100` measures pools on it.
    """

    def __init__(
        self, microseconds: float = 100.0, sigma: float = 0.0, *, waits: bool = False
    ) -> None:
        """Takes the time of a step.

        Args:
            microseconds: The mean time.
            sigma: Standard deviation of the time's logarithm; 0 makes all steps alike. At 1 the
                slowest of 16 steps takes 4.3 times the mean.
            waits: Sleeps, as one that waits for a simulator elsewhere. Otherwise it computes, by
                the processor's clock.
        """
        super().__init__()
        self._mean, self._sigma, self._waits = microseconds * 1e-6, sigma, waits

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Takes its time."""
        seconds = self._mean
        if self._sigma:
            seconds *= self.np_random.lognormal(-(self._sigma**2) / 2, self._sigma)
        if self._waits:
            time.sleep(seconds)
        else:
            end = time.thread_time() + seconds
            while time.thread_time() < end:
                pass
        return super().step(action)
