"""Environments whose options change by lesson: each lesson's are made when it begins."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from srl.core.errors import UserError
from srl.core.types import Timestep, Tree
from srl.pools.pool import Pool, checked_seed, longest_episode, seed_offset
from srl.pools.timestep_arrays import Row

_STATE = struct.Struct("<IQ")  # the lesson, and the seed


class LessonPool(Pool):
    """A pool of the present lesson's environments; another lesson replaces all of them.

    The lesson and its environments are one state.
    """

    def __init__(self, makers: Sequence[Callable[[int], Pool]], num_envs: int) -> None:
        """Makes the first lesson's environments, and one of each other lesson, to check it.

        Args:
            makers: Make the pools of the lessons, of so many environments.
            num_envs: These.

        Raises:
            UserError: If the lessons' environments differ in their spaces, agents or statistics, or
                in the tasks of a mixture or their shares.
        """
        self._makers, self._token, self._seed = makers, object(), 0
        self._entered = False  # and not reset yet
        self._pool = makers[0](num_envs)
        self.num_envs, self.batch_size = num_envs, num_envs
        self.saves_exactly = self._pool.saves_exactly
        specs = [self._pool.specs]
        try:
            for number, make in enumerate(makers[1:], 2):
                with make(1) as one:
                    self._expect_alike(one, number)
                    specs.append(one.specs)
        except BaseException:
            self._pool.close()
            raise
        self.specs = replace(self._pool.specs, max_episode_steps=longest_episode(specs))

    def _expect_alike(self, other: Pool, number: int) -> None:
        for part in ("observation", "action", "agents", "statistics"):
            first, own = getattr(self._pool.specs, part), getattr(other.specs, part)
            if first != own:
                raise UserError(
                    f"curriculum: the environments of lesson {number} have the {part} {own}, and "
                    f"those of the first {first}; lessons change neither"
                )
        first, own = self._pool.specs, other.specs
        if (first.tasks, first.task_of) != (own.tasks, own.task_of):
            raise UserError(
                f"curriculum: lesson {number} changes a mixture's tasks or their shares, by which "
                "episodes are counted; leave `tasks`, `shares` and `only` out of lessons"
            )

    def enter(self, lesson: int) -> None:
        """Replaces the environments by another lesson's; `reset` without a seed begins them.

        Raises:
            UserError: If there is no such lesson.
        """
        if not 0 <= lesson < len(self._makers):
            raise UserError(f"there is no lesson {lesson + 1}; there are {len(self._makers)}")
        self._pool.close()
        self._pool = self._makers[lesson](self.num_envs)
        self.lesson, self._entered = lesson, True

    def reset(
        self, seed: int | None = None, into: Row | None = None, mask: np.ndarray | None = None
    ) -> Timestep:
        """Starts new episodes; a new lesson by default with a seed that follows from it."""
        seed = checked_seed(seed)
        if seed is not None:
            self._seed = seed
        elif self._entered:
            seed = (self._seed + seed_offset(f"lesson {self.lesson}")) % 2**64
        self._entered = False
        return self._pool.reset(seed, self._own(into), mask)

    def step(self, actions: Tree, into: Row | None = None) -> Timestep:
        """Steps all environments; see the base class."""
        timestep = self._pool.step(actions, self._own(into))
        self.skew = self._pool.skew
        return timestep

    def render(self, env_id: int) -> np.ndarray:
        """A picture of one environment."""
        return self._pool.render(env_id)

    def xla(self) -> Any:
        """The calls of the present lesson's pool for use inside `jax.jit`."""
        return self._pool.xla()

    def save(self) -> bytes:
        """The lesson and the state of its environments; nothing where these cannot be saved."""
        state = self._pool.save()
        return _STATE.pack(self.lesson, self._seed) + state if state else b""

    def restore(self, state: bytes) -> None:
        """Goes on from a saved state, in its lesson.

        Raises:
            UserError: If there is no such lesson.
        """
        if not state:
            return
        lesson, self._seed = _STATE.unpack_from(state)
        if lesson != self.lesson:
            self.enter(lesson)
        self._entered = False
        self._pool.restore(state[_STATE.size :])

    def close(self) -> None:
        """Ends the environments."""
        self._pool.close()
        self.close_failure = self._pool.close_failure

    def _own(self, row: Row | None) -> Row | None:
        """The row as the present pool has it, over the same memory."""
        self._check_row(row)
        if row is None:
            return None
        pool, own = row.core or (None, None)
        if pool is not self._pool:
            own = self._pool._adopt(Row(row.timestep))
            row.core = (self._pool, own)
        return own
