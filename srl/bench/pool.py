"""How fast a pool steps: `srl bench pool`."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from srl.errors import UserError
from srl.pools import Pool, make_pool

STICKY_STEPS = 10
"""How long the sticky policy holds an action: longer contacts, closer to trained play."""


@dataclass(frozen=True)
class Measurement:
    """Env steps per second, one for each round."""

    rates: list[float]

    @property
    def median(self) -> float:
        """The middle round's."""
        return float(np.median(self.rates))


def random_actions(pool: Pool, batches: int, sticky: bool, seed: int = 0) -> list[np.ndarray]:
    """Draws actions for `batches` steps of all slots, uniform in the action space.

    With `sticky`, each slot holds an action for ten steps, slots out of phase with each other.
    """
    space, slots = pool.specs.action, pool.num_envs * len(pool.specs.agents)
    rng = np.random.default_rng(seed)

    def draw(count: int) -> np.ndarray:
        if isinstance(space, spaces.Discrete):
            return space.start + rng.integers(0, space.n, (count, slots)).astype(space.dtype)
        if isinstance(space, spaces.MultiDiscrete):
            return rng.integers(0, space.nvec, (count, slots, *space.shape)).astype(space.dtype)
        if isinstance(space, spaces.Box):
            low, high = np.maximum(space.low, -1e3), np.minimum(space.high, 1e3)
            return rng.uniform(low, high, (count, slots, *space.shape)).astype(space.dtype)
        raise UserError(f"no random actions for {space}")

    if not sticky:
        return list(draw(batches))
    held = draw(batches // STICKY_STEPS + 2)
    phase = rng.integers(0, STICKY_STEPS, slots)
    return [
        np.ascontiguousarray(held[(t + phase) // STICKY_STEPS, np.arange(slots)])
        for t in range(batches)
    ]


def measure(pool: Pool, *, sticky: bool, seconds: float, rounds: int = 5) -> Measurement:
    """Steps with actions drawn beforehand, for about `seconds` in all."""
    actions = random_actions(pool, 40 * STICKY_STEPS, sticky)
    step: Callable[[np.ndarray], Any] = pool.step
    if pool.batch_size == pool.num_envs:
        pool.reset(seed=0)
    else:
        pool.async_reset(seed=0)
        slots = pool.batch_size * len(pool.specs.agents)

        def exchange(actions: np.ndarray) -> None:
            timestep = pool.recv()
            pool.send(actions[:slots], timestep.env_id)

        step = exchange

    calls, rates = 0, []
    for number in range(rounds + 1):
        first, start = calls, time.perf_counter()
        end = start + seconds / (rounds + 1)
        while time.perf_counter() < end or calls == first:
            for _ in range(8):
                step(actions[calls % len(actions)])
                calls += 1
        if number:  # the first round warms up
            rates.append((calls - first) * pool.batch_size / (time.perf_counter() - start))
    return Measurement(rates)


def bench_pool(
    env: str,
    num_envs: int,
    batch_size: int | None,
    threads: int,
    policy: str,
    seconds: float,
    options: dict[str, Any],
) -> dict[str, Any]:
    """Measures one pool; gives the line that `--json` prints."""
    with make_pool(env, num_envs, batch_size, threads, **options) as pool:
        used = getattr(pool, "threads", 1)
        result = measure(pool, sticky=policy == "sticky", seconds=seconds)
    config = {
        "env": env,
        "num_envs": num_envs,
        "batch_size": pool.batch_size,
        "threads": used,
        "policy": policy,
        **options,
    }
    return {
        "name": "pool",
        "config": config,
        "value": result.median,
        "unit": "env_steps/s",
        "per_thread": result.median / used,
        "rounds": result.rates,
    }
