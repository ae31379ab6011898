"""Makes pools of single environments in Python, stepped here or in worker processes."""

from __future__ import annotations

import math
from typing import Any

from srl.core.errors import expect_number
from srl.pools.pool import Pool
from srl.pools.python.sources import SimulatorSource, check_effect
from srl.system.cores import cores_to_fill

IN_PROCESS = "steps in this process: give workers=N"
MOST = 2**31 - 1
"""Environments, slots and processes are numbered in int32."""
LONGEST_SECONDS = 1e9
"""The longest limit in seconds: the kernel does not wait much longer."""
_LIMITS = {
    "restarts": (0, math.inf),
    "step_timeout": (1e-3, LONGEST_SECONDS),
    "start_timeout": (1e-3, LONGEST_SECONDS),
}


def make(
    source: SimulatorSource,
    num_envs: int,
    options: dict[str, Any],
    batch_size: int | None = None,
    workers: int | None = None,
    action_repeat: int = 1,
    **limits: Any,
) -> Pool:
    """Makes a pool; see `make_pool`. `limits` are those of worker processes."""
    batch_size = batch_size or num_envs
    if workers is None:
        workers = 0 if batch_size == num_envs else cores_to_fill()
    expect_number("workers", workers, 0, MOST)
    for name, limit in limits.items():
        expect_number(name, limit, *_LIMITS[name])
    if workers == 0:
        from srl.pools.python.serial import SerialPool

        check_effect(source, limits, IN_PROCESS)
        return SerialPool(source, num_envs, batch_size, options, action_repeat)
    from srl.pools.python.processes.pool import ProcessPool

    return ProcessPool(source, num_envs, batch_size, workers, options, action_repeat, **limits)
