"""Groups whose unrolls are compiled: one call of a program takes all steps of one."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from srl.config.experiment import Experiment
from srl.core.lazy import jax
from srl.core.types import Decision, Timestep, Tree
from srl.dataflow.loop import Interact
from srl.dataflow.plans import compiles_unrolls
from srl.loop.acting.local_acting import LocalActing
from srl.loop.policy_set import PolicySet
from srl.loop.stepping.group import Group, Unrolls
from srl.loop.stepping.program_pool import ProgramPool
from srl.loop.stepping.traced import Interaction, TracedSteps
from srl.pools import Pool


class UnrollPrograms:
    """The programs that take unrolls, for all groups of a worker: they have the same shapes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._compiled: dict[tuple[int, int], Any] = {}

    def get(self, kind: tuple[int, int], compiled: Callable[[], Any]) -> Any:
        """The program for an unroll, by its lesson and its number in the pass.

        The first who asks compiles it.
        """
        with self._lock:
            if kind not in self._compiled:
                self._compiled[kind] = compiled()
            return self._compiled[kind]


def local_groups(experiment: Experiment, policy_set: PolicySet) -> Callable[..., Group]:
    """Gives the maker of an acting worker's groups, which takes (pool, acting, unrolls, alive=...).

    They are a `Group` each, or a `CompiledGroup` if the plan has it so.
    """
    if compiles_unrolls(experiment.settled_plan, experiment.env):
        programs = UnrollPrograms()
        return partial(CompiledGroup, experiment, policy_set=policy_set, programs=programs)
    return partial(Group, policy_set=policy_set)


class CompiledGroup(Group):
    """A group whose pool is stepped from inside the program that also acts.

    Its steps are those of any other group, up to what the compiler rounds in another way: last bits
    of log_prob may differ. The policies of an unroll are those with which it began.
    """

    def __init__(
        self,
        experiment: Experiment,
        pool: Pool,
        acting: LocalActing,
        unrolls: Unrolls,
        policy_set: PolicySet,
        alive: Callable[[], None],
        programs: UnrollPrograms,
    ) -> None:
        """Takes the group's environments, which `reset` or `restore` begins.

        `alive` is called before each unroll, whose program is compiled then.

        Raises:
            UserError: If no program can step the pool.
        """
        super().__init__(pool, acting, unrolls, policy_set, alive)
        self._environments = ProgramPool(experiment, pool)
        self._local, self._policy_set, self._programs = acting, policy_set, programs
        self._given: Any = None  # the policies as they were given last, and where programs run
        self._placed: Any = None
        self._policies: Any = None  # these two only while a program is traced
        self._traced: TracedSteps | None = None

    def reset(self, seed: int | None) -> None:
        """Starts new episodes."""
        assert seed is not None, "`_enter` begins a lesson"
        self.doing = "reset"
        self._environments.reset(seed, self._local.initial_memory())
        self.doing = ""

    def _enter(self, lesson: int) -> None:
        """Begins a lesson, whose unrolls are taken by programs that are still to be compiled."""
        self._alive()
        self._environments.enter(lesson, self._local.initial_memory())

    @property
    def progress(self) -> int:
        """Changes with each step that the program takes, where the environments are native."""
        return self._environments.xla.progress

    def act_once(self) -> None:
        """Does nothing: what acts is compiled with the first unroll."""

    def state(self) -> dict[str, Tree]:
        """Gives everything that the group's future depends on, between two unrolls."""
        return self._environments.state()

    def restore(self, state: dict[str, Tree]) -> None:
        """Goes on from a saved state."""
        self._environments.restore(state)

    # ---- the loop's operations, as they are traced ----

    def act(self, timestep: Timestep, memory: Tree) -> Decision:
        """Decides, with the unroll's policies."""
        assert self._traced is not None
        return self._traced.act(self._policies, timestep, memory)

    def step(self, action: Tree) -> Timestep:
        """Steps the environments."""
        assert self._traced is not None
        return self._traced.step(action)

    def collect(self, timestep: Timestep, decision: Decision) -> Any:
        """Gives a row of the unroll."""
        assert self._traced is not None
        return self._traced.collect(timestep, decision)

    def _compiled(self, interact: Interact, length: int, operands: tuple[Any, ...]) -> Any:
        """The program that takes an unroll of so many steps."""

        def take(now: Interaction, policies: Any, key: Any, slots: Any) -> Any:
            steps = self._environments.xla
            self._policies = policies
            self._traced = traced = TracedSteps(self._policy_set, steps, key, slots, now)
            try:
                unroll = traced.unroll(interact, length)
            finally:
                self._traced = self._policies = None
            return traced.now, unroll

        return jax.jit(take, donate_argnums=0).lower(*operands).compile()

    def _take(self, interact: Interact, length: int, number: int) -> None:
        """Takes an unroll by one call, and copies it to its destination."""
        columns, environments = self._destination.columns, self._environments
        assert columns is not None, "rules: what is compiled collects its own steps"
        if self._local.policies is not self._given:
            self._given = self._local.policies
            self._placed = environments.placed(self._given)
        operands = environments.now, self._placed, self._local.key, self._local.slots
        kind = environments.lesson, number
        program = self._programs.get(kind, lambda: self._compiled(interact, length, operands))
        before = time.perf_counter()
        self._alive()
        self.lesson_since, self.doing = -math.inf, "step"
        with environments.errors():
            environments.now, unroll = program(*operands)
            unroll = jax.tree.map(np.asarray, unroll)
        columns.write_unroll(*unroll, version=self._local.version)
        self.doing = ""
        self._seconds["unroll"] += time.perf_counter() - before
