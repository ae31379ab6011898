"""The random actions that benchmarks step environments with."""

from __future__ import annotations

import gymnasium
import numpy as np
from gymnasium import spaces

from srl.core.errors import UserError
from srl.core.spaces import choice_counts, has_choices, limits

STICKY_STEPS = 10
"""Steps for which the sticky policy holds an action: longer contacts, closer to trained play."""
BATCHES = 20 * STICKY_STEPS
"""Batches of actions, one for each call, before the first is used again."""


def random_actions(
    space: gymnasium.Space, slots: int, batches: int, sticky: bool
) -> list[np.ndarray]:
    """Draws actions for `batches` steps of all slots, uniform in the action space.

    With `sticky`, each slot holds an action for ten steps, slots out of phase with each other.
    """
    rng = np.random.default_rng(0)

    def draw(count: int) -> np.ndarray:
        shape = (count, slots, *(space.shape or ()))
        if isinstance(space, spaces.Box):
            low, high = np.maximum(space.low, -1e3), np.minimum(space.high, 1e3)
            return rng.uniform(low, high, shape).astype(space.dtype)
        if has_choices(space):
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
