"""An environment whose step takes a given time."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from srl.extras.bench.idle import Idle


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
