"""Unrolls whose observations name where they are from, whole or some of their slots.

Also transitions of random numbers.
"""

import numpy as np

from srl.algorithms.replay import Transitions
from srl.core.types import Unroll

STEPS, SLOTS = 4, 8
N, DISCOUNT = 12, 0.99


def unroll_of(n, slots=range(SLOTS), steps=STEPS, actions=None):
    """An unroll whose observations name the update, the row and the slot."""
    columns = np.asarray(slots)
    rows = np.arange(steps + 1)
    observation = np.stack(np.broadcast_arrays(n, rows[:, None], columns[None, :]), axis=-1).astype(
        np.float32
    )
    random = np.random.default_rng(1000 * n)
    whole = (steps + 1, SLOTS)
    terminated, truncated = random.random(whole) < 0.2, random.random(whole) < 0.1
    reward = random.normal(size=whole).astype(np.float32)
    if actions is None:
        action = random.integers(0, 2, (steps, SLOTS)).astype(np.int32)
    else:
        action = random.uniform(-1, 1, (steps, SLOTS, actions)).astype(np.float32)
    return Unroll(
        observation,
        reward[:, columns],
        terminated[:, columns],
        truncated[:, columns],
        action[:, columns],
        np.zeros((steps, len(columns)), np.float32),
        (),
        np.zeros((steps, 1, 2), np.int32),
        columns.astype(np.int32),
    )


def parts(shards):
    return [range(k * SLOTS // shards, (k + 1) * SLOTS // shards) for k in range(shards)]


def transitions_of(random, actions=None):
    """Random transitions, some of which terminate."""
    action = random.integers(0, 2, N) if actions is None else random.uniform(-1, 1, (N, actions))
    return Transitions(
        observation=random.normal(size=(N, 3)).astype(np.float32),
        action=action.astype(np.int32 if actions is None else np.float32),
        reward=random.normal(size=N).astype(np.float32),
        discount=np.where(random.random(N) < 0.3, 0, DISCOUNT).astype(np.float32),
        last=random.normal(size=(N, 3)).astype(np.float32),
        valid=np.ones(N, bool),
    )
