"""Environments that are stepped as they get ready: no one waits for a slower one."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import cast

import numpy as np

from srl.core.tree import leaves_of, map_tree
from srl.core.types import Decision, Timestep, Tree
from srl.dataflow.loop import Interact
from srl.dataflow.trace import Value
from srl.loop.acting.local_acting import LocalActing
from srl.loop.busy_time import ACTIVITIES
from srl.loop.policy_set import PolicySet
from srl.loop.stepping.group import group_state
from srl.loop.stepping.unrolls import SentUnrolls
from srl.pools.python.python_pool import PythonPool, part_of, rows_of
from srl.streams.batch import UnrollWriter

_WAIT_SECONDS = 0.1  # between two looks whether the worker is to end


class _Member:
    """One environment, which makes unrolls as a group of one."""

    def __init__(self, number: int, unrolls: SentUnrolls, timestep: Timestep) -> None:
        self.number, self.unrolls = number, unrolls
        self.timestep = timestep
        """Its last one, which the pool writes."""
        self.writer: UnrollWriter | None = None  # None while it has no ticket
        self.t = 0  # the row of the unroll that its timestep is
        self.clock = 0  # steps so far


class AsynchronousGroup:
    """Runs the loop for all environments of a worker, of which any that are ready take a step.

    Each environment is a group to all others: it has tickets, unrolls, memory and a clock. A step
    of the loop is one of up to `width` environments; they are at different rows of their unrolls.
    The timestep that `step` gives is known only when environments are ready, so that the loop may
    hand it on, and not look into it.
    """

    def __init__(
        self,
        pool: PythonPool,
        acting: LocalActing,
        unrolls: Sequence[SentUnrolls],
        policy_set: PolicySet,
        *,
        first: int,
        width: int,
        alive: Callable[[int], None],
    ) -> None:
        """Takes the worker's environments, which `reset` begins.

        The first has the number `first` in the run. A call of `act` is for `width` environments,
        of which some may be padding. `alive` is called with an environment's number before its
        step.
        """
        self._pool, self._acting, self._width, self._alive = pool, acting, width, alive
        self._env_action, self._agents = policy_set.env_action, len(policy_set.specs.agents)
        self.start = unrolls[0].start
        """The state with which the environments begin."""
        self._last = pool.last
        self._members = [
            _Member(first + env, each, part_of(pool.last, env, self._agents))
            for env, each in enumerate(unrolls)
        ]
        self._slots = np.arange(self._agents, dtype=np.int32)
        initial = policy_set.initial_memory(pool.num_envs)
        self._memory = map_tree(
            lambda x: np.array(x).reshape(pool.num_envs, -1, *x.shape[1:]), initial
        )
        self._ready: deque[int] = deque()  # environments to act for, first come first
        self._idle: list[int] = []  # those that wait for a ticket
        self._seconds = dict.fromkeys(ACTIVITIES, 0.0)

    def reset(self, seed: int) -> None:
        """Starts new episodes; environment i is seeded with `seed + i`."""
        self._pool.async_reset(seed)

    def take_busy_time(self) -> dict[str, float]:
        """Gives the seconds of each activity since the last call."""
        seconds, self._seconds = self._seconds, dict.fromkeys(ACTIVITIES, 0.0)
        return seconds

    # ---- the loop's operations ----

    def latest(self) -> None:
        """Does nothing: each environment waits for its ticket."""

    def unroll(self, interact: Interact, length: int, number: int) -> None:
        """Takes steps until as many unrolls are delivered as there are environments.

        Args:
            interact: Takes one step.
            length: Rows of an unroll.
            number: Of the unroll in its pass, which has no other.
        """
        missing = len(self._members)
        while missing > 0:
            missing -= self._receive(length)
            self._begin_unrolls()
            if self._ready:
                self._take_step(interact)

    def act(self, timestep: Timestep, memory: Tree) -> Decision:
        """Decides for the environments that take the step."""
        before = time.perf_counter()
        clock = np.repeat([member.clock for member in self._taking], self._agents)
        slots = [self._slots + member.number * self._agents for member in self._taking]
        decision, self._version = self._acting.decide_for(
            timestep, memory, clock.astype(np.uint32), np.concatenate(slots)
        )
        self._seconds["act"] += time.perf_counter() - before
        return decision

    def step(self, action: Tree) -> Timestep:
        """Starts a step of these environments."""
        before = time.perf_counter()
        action, rows = self._env_action(action), len(self._envs) * self._agents
        for env in self._envs.tolist():
            self._alive(self._members[env].number)
        self._pool.send(map_tree(lambda x: x[:rows], action), self._envs)
        self._seconds["step"] += time.perf_counter() - before
        return cast(Timestep, Value("timestep", "step"))

    def collect(self, timestep: Timestep, decision: Decision) -> None:
        """Writes the decision into the unroll of each of these environments."""
        for i, member in enumerate(self._taking[: len(self._envs)]):
            rows = slice(i * self._agents, (i + 1) * self._agents)
            part = map_tree(lambda x, rows=rows: x[rows], decision._replace(memory=()))
            assert member.writer is not None
            member.writer.write(member.t, part, self._version)

    # ---- a step of those that are ready ----

    def _take_step(self, interact: Interact) -> None:
        count = min(len(self._ready), self._width)
        taken = [self._ready.popleft() for _ in range(count)]
        self._envs = np.array(taken, np.int32)
        padded = np.array(taken + taken[:1] * (self._width - count), np.int32)
        self._taking = [self._members[env] for env in padded]
        for env in taken:
            member = self._members[env]
            assert member.writer is not None
            member.writer.write_memory(member.t, map_tree(lambda x, env=env: x[env], self._memory))
        timestep = rows_of(self._last, padded, self._agents)
        memory = map_tree(lambda x: x[padded].reshape(-1, *x.shape[2:]), self._memory)
        _, following, _ = interact(timestep, memory)
        for held, given in zip(leaves_of(self._memory), leaves_of(following), strict=True):
            held[self._envs] = np.asarray(given).reshape(self._width, *held.shape[1:])[:count]

    def _receive(self, length: int) -> int:
        """Takes in the environments that are ready, waiting for one if there is nothing else to do.

        Returns:
            The number of unrolls that have ended.
        """
        before = time.perf_counter()
        tickets = [self._members[env].unrolls.source.fileno() for env in self._idle]
        ready = self._pool.ready(0.0 if self._ready else _WAIT_SECONDS, tickets)
        spent = time.perf_counter() - before
        idle = spent * len(self._idle) / len(self._members)
        self._seconds["send wait"] += idle
        self._seconds["step"] += spent - idle
        return sum(self._advance(env, length) for env in ready.tolist())

    def _advance(self, env: int, length: int) -> bool:
        """Writes an environment's new timestep; tells if its unroll has ended."""
        member = self._members[env]
        if member.writer is None:  # a first timestep
            self._idle.append(env)
            return False
        member.t, member.clock = member.t + 1, member.clock + 1
        member.writer.write_timestep(member.t, member.timestep)
        if member.t < length:
            self._ready.append(env)
            return False
        member.writer = None
        member.unrolls.deliver()
        self._idle.append(env)
        return True

    def _begin_unrolls(self) -> None:
        """Begins unrolls of those environments that have a ticket by now."""
        for env in tuple(self._idle):
            member = self._members[env]
            grant = member.unrolls.poll(lambda env=env: self._state(env), 0.0)
            if grant is None:
                continue
            self._acting.begin(grant.oldest_version)
            member.writer, member.t = UnrollWriter(grant.columns), 0
            member.writer.write_timestep(0, member.timestep)
            self._idle.remove(env)
            self._ready.append(env)

    def _state(self, env: int) -> dict[str, Tree]:
        """An environment's state between two unrolls; its pool has none to save."""
        memory, member = map_tree(lambda x: x[env], self._memory), self._members[env]
        return group_state(self._pool, member.timestep, memory, member.clock)
