"""Pools of Python environments that are stepped one after the other in this process."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from srl.pools.python.closing import close_here
from srl.pools.python.python_pool import PythonPool
from srl.pools.python.simulator import Rendered, rendered
from srl.pools.python.sources import SimulatorSource, make_simulators, source_name
from srl.pools.python.stepper import Stepper, empty_control
from srl.pools.timestep_arrays import Row
from srl.system.started import StartedHere


class SerialPool(PythonPool):
    """Steps in the calling thread; `recv` steps those that were sent first."""

    def __init__(
        self,
        source: SimulatorSource,
        num_envs: int,
        batch_size: int,
        options: dict[str, Any],
        action_repeat: int = 1,
    ) -> None:
        """Makes the environments.

        Raises:
            UserError: For an unknown id, or copies whose spaces differ.
            RunError: If making one raised.
        """
        super().__init__(source_name(source), num_envs, batch_size)
        self._started = StartedHere()
        with self._started.making():
            self._simulators = make_simulators(source, range(num_envs), options, num_envs)
        specs = self._simulators[0].specs
        self._begin(specs, empty_control(specs, num_envs, steppers=1))
        self._stepper = Stepper(self._simulators, self._control, action_repeat=action_repeat)
        self._queue: deque[int] = deque()

    def _advance(self, ids: np.ndarray | None, row: Row) -> None:
        with self._started:
            self._failures = self._stepper.advance(None if ids is None else ids.tolist(), row.core)

    def _start(self, ids: np.ndarray) -> None:
        self._queue.extend(ids.tolist())

    def _work(self, seconds: float = math.inf, others: Sequence[int] = ()) -> None:
        assert self._slots is not None
        wanted = min(self.batch_size - len(self._ready), len(self._queue))
        batch = [self._queue.popleft() for _ in range(wanted)]
        with self._started:
            self._failures = self._stepper.advance(batch, self._slots.core)
        failed = {failure.env for failure in self._failures}
        self._ready.extend(env for env in batch if env not in failed)

    def _finish_started(self) -> None:
        self._queue.clear()

    def _picture(self, env: int) -> Rendered:
        with self._started:
            return rendered(self._simulators[env].render)

    def _end(self) -> None:
        closes = [simulator.close for simulator in self._simulators]
        self.close_failure = close_here(self.name, closes, self._started)
