"""An environment whose step takes a given time."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from srl.extras.bench.idle import Idle


class Busy(Idle):
    """Computes for some microseconds a step, by the processor's clock.

    `srl bench pool --env srl.extras.bench.busy:Busy --env.microseconds 100` measures pools on it.
    """

    def __init__(self, microseconds: float = 100.0) -> None:
        """Takes the time of a step."""
        super().__init__()
        self._seconds = microseconds * 1e-6

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Keeps its core busy."""
        end = time.thread_time() + self._seconds
        while time.thread_time() < end:
            pass
        return super().step(action)
