"""How fast pools step, alone or against a peer: `srl bench pool`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from srl.bench.backends import STICKY_STEPS, Case, Side, Stepper, open_backend
from srl.errors import UserError
from srl.spaces import choice_counts, limits
from srl.stages import Stages

BATCHES = 20 * STICKY_STEPS
"""How many calls have actions of their own before they come round again."""


@dataclass(frozen=True)
class Comparison:
    """Env steps per second, a number for each round."""

    rates: list[float]
    vs_rates: list[float]
    """Of the peer, in turns with the others; empty without one."""

    @property
    def value(self) -> float:
        """The median round's."""
        return float(np.median(self.rates))

    @property
    def vs_value(self) -> float:
        """The peer's median round's."""
        return float(np.median(self.vs_rates))

    @property
    def ratios(self) -> list[float]:
        """Of neighbouring rounds, so that a machine that slows down slows both."""
        own, peer = self.rates, self.vs_rates
        return [
            *(a / b for a, b in zip(own, peer, strict=True)),
            *(a / b for a, b in zip(own[1:], peer[:-1], strict=True)),
        ]


def random_actions(
    space: gymnasium.Space, slots: int, batches: int, sticky: bool, seed: int = 0
) -> list[np.ndarray]:
    """Draws actions for `batches` steps of all slots, uniform in the action space.

    With `sticky`, each slot holds an action for ten steps, slots out of phase with each other.
    """
    rng = np.random.default_rng(seed)

    def draw(count: int) -> np.ndarray:
        shape = (count, slots, *(space.shape or ()))
        if isinstance(space, spaces.Box):
            low, high = np.maximum(space.low, -1e3), np.minimum(space.high, 1e3)
            return rng.uniform(low, high, shape).astype(space.dtype)
        if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
            return limits(space)[0] + rng.integers(0, choice_counts(space), shape, space.dtype)
        raise UserError(f"no random actions for {space}")

    if not sticky:
        return list(draw(batches))
    held = draw(batches // STICKY_STEPS + 2)
    phase = rng.integers(0, STICKY_STEPS, slots)
    return [
        np.ascontiguousarray(held[(t + phase) // STICKY_STEPS, np.arange(slots)])
        for t in range(batches)
    ]


def compare(
    own: Side,
    peer: Side | None,
    seconds: float,
    rounds: int,
    progress: Callable[[int], None] = lambda done: None,
) -> Comparison:
    """Steps both in turns, for about `seconds` each; a round before the first warms up.

    `progress` is called with how many rounds are done.
    """
    result = Comparison([], [])
    for number in range(rounds + 1):
        for side, rates in ((own, result.rates), (peer, result.vs_rates)):
            if side is not None:
                rate = side.rate(seconds / (rounds + 1))
                if number:
                    rates.append(rate)
        progress(number)
    return result


def bench_pool(
    backend: str, case: Case, vs: str | None, seconds: float, rounds: int
) -> dict[str, Any]:
    """Measures one case; gives the line that `--json` prints.

    Args:
        backend: What steps the environments.
        case: The environments.
        vs: The backend to compare with, if any.
        seconds: For each side.
        rounds: How many, after one to warm up.

    Raises:
        UserError: If the two sides cannot be compared.
    """
    with ExitStack() as opened:
        own = open_backend(backend, case)
        opened.callback(own.close)
        peer = open_backend(vs, case) if vs else None
        if peer:
            opened.callback(peer.close)
            _check_alike(backend, own, vs, peer)
        sides = [side for side in (own, peer) if isinstance(side, Stepper)]
        for side in sides:  # both draw from the first one's space
            slots = case.num_envs * side.agents
            space = sides[0].action_space
            side.load(random_actions(space, slots, BATCHES, case.sticky))
        what = f"{case.env}, {case.num_envs:,} environments: rounds"
        with Stages() as stages:
            result = compare(own, peer, seconds, rounds, stages.counter("stepping", what, rounds))
    line = {
        "name": "pool",
        "config": {
            "backend": backend,
            "env": case.env,
            "num_envs": case.num_envs,
            "batch_size": own.batch_size,
            "threads": own.threads,
            "policy": "sticky" if case.sticky else "uniform",
            **case.options,
            **({"vs": vs} if vs else {}),
        },
        "value": result.value,
        "unit": "env_steps/s",
        "per_thread": result.value / own.threads,
        "rounds": result.rates,
    }
    if peer:
        ratios = result.ratios
        line |= {
            "vs_value": result.vs_value,
            "ratio": float(np.median(ratios)),
            "ratio_min": min(ratios),
            "ratio_max": max(ratios),
            "vs_rounds": result.vs_rates,
        }
    return line


def _check_alike(backend: str, own: Side, vs: str | None, peer: Side) -> None:
    """Checks that both sides do the same work."""
    ours, theirs = own.action_space, peer.action_space
    if ours is None or theirs is None:  # the bare physics draw their own
        return
    if own.agents != peer.agents:
        raise UserError(f"{backend} has {own.agents} agents, {vs} {peer.agents}; not comparable")
    if _choice(ours) != _choice(theirs):
        raise UserError(
            f"the actions are {ours} with {backend}, {theirs} with {vs}; not comparable"
        )


def _choice(space: gymnasium.Space) -> tuple[Any, ...]:
    """What may be chosen, whatever the dtype."""
    if isinstance(space, spaces.Box | spaces.Discrete | spaces.MultiDiscrete):
        kind = "box" if isinstance(space, spaces.Box) else "discrete"
        return (kind, *(np.round(np.asarray(x, float), 4).tolist() for x in limits(space)))
    return (space,)
