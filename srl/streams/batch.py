"""The memory of a batch: the unrolls of all groups, side by side."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from srl.errors import UserError
from srl.pools.memory import empty_timestep
from srl.shared_memory import available_bytes
from srl.streams.layout import Layout
from srl.streams.message import Refused
from srl.tree import leaves_of, map_tree
from srl.types import Array, Decision, Specs, Timestep, Tree


class Batch(NamedTuple):
    """T steps of all groups, time-major; the second axis of every array divides by the groups.

    With G groups of n environments and b slots each: N = G n, B = G b.
    """

    timesteps: Timestep  # [T + 1, ...]; the last row is the bootstrap one
    action: Tree  # [T, B, ...]
    log_prob: Array  # float32 [T, B], of the policy that acted
    memory: Tree  # [T / chunk, B, ...] by policy: at the first step of each chunk
    version: Array  # int32 [T, G, 2], the (epoch, n) that acted

    def columns(self, position: int, positions: int) -> Batch:
        """The part of one group."""

        def part(x: np.ndarray) -> np.ndarray:
            width = x.shape[1] // positions
            return x[:, position * width : (position + 1) * width]

        return map_tree(part, self)


CLOCK = range(1 << 32)
"""Of a group's steps, which random keys are folded from."""


@dataclass(frozen=True)
class Form:
    """The shape and dtype of an array that there is no memory for yet."""

    shape: tuple[int, ...]
    dtype: np.dtype


def batch_form(specs: Specs, num_envs: int, decision: Decision, length: int, chunk: int) -> Batch:
    """The form of one group's unroll.

    Args:
        specs: Of the environments.
        num_envs: Of the group.
        decision: Of all its slots, of anything with `shape` and `dtype`.
        length: Steps of the unroll.
        chunk: Steps from one stored memory to the next.
    """

    def form(shape: tuple[int, ...], dtype: Any) -> Form:
        return Form(tuple(shape), np.dtype(dtype))

    def times(steps: int, tree: Tree) -> Tree:
        return map_tree(lambda x: form((steps, *x.shape), x.dtype), tree)

    return Batch(
        timesteps=empty_timestep(specs, num_envs, (length + 1,), form),
        action=times(length, decision.action),
        log_prob=times(length, decision.log_prob),
        memory=times(length // chunk, decision.memory),
        version=form((length, 1, 2), np.int32),
    )


def state_layout(form: Batch) -> Layout:
    """The layout of a group's state between two unrolls, but for its pool's, whose size varies.

    Args:
        form: Of the group's unroll.
    """

    def rows(tree: Tree) -> Tree:
        return map_tree(lambda f: Form(f.shape[1:], f.dtype), tree)

    clock = Form((), np.dtype(np.int64))
    timestep = rows(form.timesteps._asdict())
    return Layout.of({"clock": clock, "memory": rows(form.memory), "timestep": timestep})


def check_state(state: Any, layout: Layout) -> None:
    """Checks a group's state that has come from another process.

    Args:
        state: Whatever was unpacked.
        layout: Of all but the pool; see `state_layout`.

    Raises:
        Refused: If a group could not go on from it.
    """
    parts = state if isinstance(state, dict) else {}
    pool = parts.get("pool")
    if not isinstance(pool, np.ndarray) or pool.dtype != np.uint8 or pool.ndim != 1:
        raise Refused("a group's state without the state of its pool")
    rest = Layout.of({name: part for name, part in parts.items() if name != "pool"})
    if rest != layout:
        found, expected = (text.to_json()[:200].decode() for text in (rest, layout))
        raise Refused(f"a group's state of {found}; expected {expected}")
    if int(parts["clock"]) not in CLOCK:
        raise Refused(f"a group's state with clock {parts['clock']}; expected a number of uint32")


def expect_room(form: Batch) -> None:
    """Refuses a batch that memory would not hold, before any of it is taken.

    Raises:
        UserError: With its size, and what makes it smaller.
    """
    size = sum(math.prod(f.shape) * f.dtype.itemsize for f in leaves_of(form))
    available = available_bytes()
    if size > available:
        raise UserError(
            f"an update's unrolls would take {size:,} bytes of memory, of which {available:,} are "
            "free; give fewer as num_envs, or a shorter algorithm.unroll_length"
        )


def widened(form: Batch, groups: int) -> Batch:
    """The form of a batch of so many groups, from that of one group's unroll."""
    return map_tree(lambda f: Form((f.shape[0], f.shape[1] * groups, *f.shape[2:]), f.dtype), form)
