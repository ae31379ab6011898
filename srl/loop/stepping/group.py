"""One group of environments: the nodes `step`, `act` and `collect`, of which some are elsewhere."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from srl.core.tree import copy_tree, map_tree
from srl.core.types import Decision, Timestep, Tree
from srl.dataflow.loop import Interact
from srl.loop.busy_time import ACTIVITIES
from srl.loop.policy_set import PolicySet
from srl.pools import Pool, Rows
from srl.pools.timestep_arrays import empty_timestep
from srl.streams.batch import Batch, UnrollWriter


class Acting(Protocol):
    """The node `act`, here or at the other end of an inference stream."""

    def spent(self, seconds: float) -> Mapping[str, float]:
        """Divides the seconds of the last call of `decide` among activities."""
        ...

    def begin(self, oldest_version: tuple[int, int]) -> None:
        """Begins an unroll, in which no older version may act."""

    def decide(self, timestep: Timestep, memory: Tree, clock: int) -> tuple[Decision, np.ndarray]:
        """Decides for the group's slots.

        Args:
            timestep: [b, ...].
            memory: Before it, by policy.
            clock: Steps of the group before this one.

        Returns:
            The decision, whose action NumPy can read, and the version that acted: int32 [2].
        """
        ...

    def initial_memory(self) -> Tree:
        """Gives the memory of all slots at the start of an episode."""
        ...


class Destination(NamedTuple):
    """The destination of the group's next unroll."""

    unroll: int | None
    """The unroll's number in the pass; None where that makes no difference."""
    rows: Rows
    """Rows for its timesteps; row t is rows[t % len(rows)]."""
    columns: Batch | None
    """Its part of a batch; None where the other end of the inference stream collects."""
    oldest_version: tuple[int, int]
    lesson: int = 0
    """The curriculum's lesson that it is of."""


class Unrolls(Protocol):
    """The edge from `collect` to `learn`, which takes the group's unrolls."""

    def next(self, group: Group) -> Destination:
        """Waits until an unroll may begin; raises Stopped if the worker is to end."""
        ...

    def deliver(self) -> None:
        """Hands the unroll over."""


class Group:
    """Steps the environments of one group, unroll by unroll, as the loop calls for.

    A node that is in another fragment is one end of a stream here: `acting` for `act`, `unrolls`
    for the way to `learn`.
    """

    def __init__(
        self,
        pool: Pool,
        acting: Acting,
        unrolls: Unrolls,
        policy_set: PolicySet,
        alive: Callable[[], None] = lambda: None,
    ) -> None:
        """Takes the group's environments, which `reset` or `restore` begins."""
        self.pool, self._alive = pool, alive
        self.doing = ""
        """The present task of its environments: "reset", "step", or nothing."""
        self.lesson_since = -math.inf
        """The begin of a lesson until its first step, by `time.monotonic`; else -inf."""
        self._seconds: dict[str, float] = dict.fromkeys(ACTIVITIES, 0.0)
        self._acting, self._unrolls = acting, unrolls
        self._oldest = (0, 0)  # the oldest version that may act
        self._next: Destination | None = None  # where an unroll may begin that has not
        self._env_action = policy_set.env_action
        self._writer: UnrollWriter | None = None  # None where the policy worker collects
        self._clock = 0
        self._last = self._now = empty_timestep(pool.specs, pool.num_envs)
        self._memory = acting.initial_memory()
        self._version = np.zeros(2, np.int32)
        self._t = 0

    def reset(self, seed: int | None) -> None:
        """Starts new episodes; without a seed those of a new lesson."""
        rows = self.pool.rows(1)
        self.doing = "reset"
        self.pool.reset(seed, rows[0])
        self.doing = ""
        copy_tree(rows[0].timestep, self._last)
        self._now = self._last
        self._memory = self._acting.initial_memory()

    @property
    def progress(self) -> int:
        """A number that changes with each step where `alive` is called less often; else 0.

        Any thread may ask.
        """
        return 0

    def act_once(self) -> None:
        """Acts once for nothing, so that no step waits for a compiler."""
        self._acting.begin((0, 0))
        self._acting.decide(self._last, self._memory, 0)

    def take_busy_time(self) -> dict[str, float]:
        """Gives the seconds of each activity since the last call."""
        seconds, self._seconds = self._seconds, dict.fromkeys(ACTIVITIES, 0.0)
        return seconds

    def state(self) -> dict[str, Tree]:
        """Gives everything that the group's future depends on, between two unrolls.

        Of a group that does not collect: between any two steps.
        """
        return group_state(self.pool, self._now, self._memory, self._clock)

    def restore(self, state: dict[str, Tree]) -> None:
        """Goes on from a saved state; the pool must be one that saves exactly."""
        self.pool.restore(np.asarray(state["pool"]).tobytes())
        copy_tree(Timestep(**state["timestep"]), self._last)
        self._memory = map_tree(np.array, state["memory"])
        self._clock = int(state["clock"])

    # ---- the loop's operations ----

    def latest(self) -> None:
        """Waits until an unroll may begin; the policy that will act is known where it acts."""
        before = time.perf_counter()
        self._next = self._next or self._unrolls.next(self)
        if self._next.lesson != self.pool.lesson:
            self.lesson_since = time.monotonic()
            self._enter(self._next.lesson)
        self._begin(self._next.oldest_version)
        self._seconds["send wait"] += time.perf_counter() - before

    def _enter(self, lesson: int) -> None:
        """Begins a lesson: the episodes under way are left."""
        self._alive()
        self.pool.enter(lesson)
        self.reset(None)

    def _begin(self, oldest_version: tuple[int, int]) -> None:
        self._oldest = oldest_version
        self._acting.begin(oldest_version)

    def act(self, timestep: Timestep, memory: Tree) -> Decision:
        """Decides, here or through the inference stream."""
        before = time.perf_counter()
        if self._writer is not None:
            self._writer.write_memory(self._t, memory)
        decision, self._version = self._acting.decide(timestep, memory, self._clock)
        for activity, seconds in self._acting.spent(time.perf_counter() - before).items():
            self._seconds[activity] += seconds
        return decision

    def step(self, action: Tree) -> Timestep:
        """Steps the group's environments, into the next row of the unroll."""
        before = time.perf_counter()
        row = self._rows[(self._t + 1) % len(self._rows)]
        action = self._env_action(action)
        self._alive()
        self.lesson_since, self.doing = -math.inf, "step"
        self.pool.step(action, row)
        self.doing = ""
        if self._writer is None:  # the worker that collects may ask for the state at any step
            self._now = row.timestep
        self._seconds["step"] += time.perf_counter() - before - self.pool.skew
        self._seconds["skew"] += self.pool.skew
        return row.timestep

    def collect(self, timestep: Timestep, decision: Decision) -> None:
        """Completes a row of the unroll, whose timestep the pool has written."""
        if self._writer is not None:
            self._writer.write(self._t, decision, self._version)

    def unroll(self, interact: Interact, length: int, number: int) -> None:
        """Takes an unroll of `length` rows, and hands it over.

        Args:
            interact: Takes one step.
            length: Rows.
            number: Which unroll of the pass this is. A group that joins in the midst of a pass
                passes over those before its first.
        """
        before = time.perf_counter()
        destination, self._next = self._next or self._unrolls.next(self), None
        self._seconds["send wait"] += time.perf_counter() - before
        if destination.unroll not in (None, number):
            self._next = destination
            return
        if destination.oldest_version > self._oldest:  # a policy acts in several unrolls
            self._begin(destination.oldest_version)
        self._destination = destination
        self._rows = [destination.rows[t] for t in range(len(destination.rows))]
        columns = destination.columns
        self._writer = None if columns is None else UnrollWriter(columns)
        self._take(interact, length, number)
        self._unrolls.deliver()

    def _take(self, interact: Interact, length: int, number: int) -> None:
        """Takes an unroll, step by step, to its destination."""
        timestep, memory = self._destination.rows[0].timestep, self._memory
        copy_tree(self._last, timestep)
        for self._t in range(length):
            timestep, memory, _ = interact(timestep, memory)
            self._clock += 1
        copy_tree(timestep, self._last)
        self._memory = memory


def group_state(pool: Pool, timestep: Timestep, memory: Tree, clock: Any) -> dict[str, Tree]:
    """A copy of all that a group's future depends on, whatever runs its loop."""
    return {
        "pool": np.frombuffer(pool.save(), np.uint8),
        "timestep": map_tree(np.array, timestep._asdict()),
        "memory": map_tree(np.array, memory),
        "clock": np.array(clock, np.int64),
    }
