"""A replay that all windows of rows are drawn from alike."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from srl.algorithms.frames import FrameStack
from srl.algorithms.replay import Draws, Replay, Transitions, empty, insert, transitions
from srl.algorithms.replay_ratio import ReplayRatio
from srl.algorithms.replay_sampling import draw, filled, window_numbers
from srl.core.errors import UserError
from srl.core.lazy import jax, jnp
from srl.core.types import Array, Unroll

Change = Callable[[Replay, Replay, Draws, Array], Replay]
"""Changes windows that were drawn: of them, of the unrolls that they are from, of their first rows,
and of random numbers [rounds, S, 2] from 0 to 1."""
Priority = Callable[[Replay], Array]
"""Gives the priority of windows of rows, [1, burn_in + length, S, ...] to float32 [S]."""


_SALT = 2**32 - 1  # no number of a slot


class Sample(NamedTuple):
    """The windows for all gradient steps of an update."""

    rows: Replay  # [gradient_steps, burn_in + length, S, ...]
    draws: Draws  # [gradient_steps, S]
    weight: Array  # float32 [gradient_steps, S], the importance weights
    ready: Array  # bool [gradient_steps, S]; False where a lost replay is not yet filled again
    prior: Array  # bool [gradient_steps, S]; True for windows of prior data

    def transitions(self, discount: float) -> Transitions:
        """Gives the transitions of all gradient steps, valid of slots that are ready alone."""
        steps = transitions(self.rows, discount)
        return steps._replace(valid=steps.valid & self.ready)


@dataclass(frozen=True)
class UniformReplay:
    """A replay of unrolls, from which windows of rows are drawn, each within an unroll.

    With a stride of 1, windows begin at every row, so that each step is learned from equally often.
    So it is with a stride as long as what a window learns from: then each step is in one window.
    """

    capacity: int
    """Steps of all slots."""
    length: int
    """Rows of a window: one more than its steps. Near an unroll's end there are fewer."""
    ratio: ReplayRatio
    stack: FrameStack | None = None
    """The stacking of observations, where there is one."""
    stride: int = 1
    """Rows from one window's first to the next one's."""
    burn_in: int = 0
    """Rows before each window that come with it; at an unroll's start there are fewer."""
    changes: tuple[Change, ...] = ()
    """Changes of what is drawn, one after the other."""

    @property
    def blocks(self) -> int:
        """Unrolls that are kept of each slot."""
        return max(1, self.capacity // self.ratio.steps)

    @property
    def windows(self) -> int:
        """Windows of an unroll."""
        return math.ceil(self.ratio.unroll_length / self.stride)

    def empty(self, unroll: Unroll) -> Any:
        """Gives a replay of nothing, for unrolls like this one."""
        return empty(unroll, self.blocks, self.stack)

    def insert(
        self, replay: Any, unroll: Unroll, n: Array, priority: Priority | None = None
    ) -> Any:
        """Gives the replay with the unroll of update n; to insert it twice changes nothing."""
        del priority
        return insert(replay, unroll, n, self.stack)

    def sample(self, key: Array, replay: Any, n: Array, slot: Array, total: Any) -> Sample:
        """Draws the windows of all gradient steps of update n.

        Args:
            key: Of the run's learning.
            replay: With the unroll of update n in it.
            n: int32 [].
            slot: int32 [B], which of the run's slots each column is.
            total: Adds sums to those of the slots that are elsewhere.
        """
        del total
        ratio = self.ratio
        steps = ratio.gradient_steps, ratio.share, self.windows
        draws = draw(key, replay, n, slot, *steps, ratio.steps_before(n))
        return self._sample(key, replay, draws, jnp.ones(draws.row.shape), n)

    def update_priorities(self, replay: Any, sample: Sample, priority: Array, due: Array) -> Any:
        """Gives the replay after the gradient steps: the same."""
        return replay

    def take(self, key: Array, unrolls: Replay, draws: Draws, n: Array) -> Replay:
        """Takes the rows of windows that were drawn for update n, and changes them."""
        first = draws._replace(row=draws.row * self.stride)
        rows = first.take(unrolls, self.length, self.stack, self.burn_in)
        key = jax.random.fold_in(jax.random.fold_in(key, n), _SALT)
        for place, change in enumerate(self.changes):
            own = jax.random.fold_in(key, place)
            number = window_numbers(own, draws.slot, self.ratio.share, 2)
            rows = change(rows, unrolls, first, number)
        return rows

    def _sample(self, key: Array, unrolls: Replay, draws: Draws, weight: Array, n: Array) -> Sample:
        """Takes the rows of windows, and tells which of their slots are ready."""
        needed = min(self.ratio.warm_up_updates, self.blocks)
        ready = filled(unrolls, n) >= needed  # else the replay was lost, and is filled again
        rows = self.take(key, unrolls, draws, n)
        none = jnp.zeros(draws.row.shape, bool)
        return Sample(rows, draws, weight, ready[draws.column], none)


def expect_n_step_fits(config: Any) -> None:
    """Raises UserError where transitions of `n_step` steps do not fit unrolls."""
    name = type(config).__name__
    if config.n_step > config.unroll_length:
        raise UserError(
            f"{name} with n_step={config.n_step} and unroll_length={config.unroll_length}: a "
            "transition lies within an unroll; give longer unrolls"
        )
