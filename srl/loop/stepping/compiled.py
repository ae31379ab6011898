"""Groups whose unrolls are compiled: one call of a program takes all steps of one."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from srl.dataflow.loop import Interact
from srl.dataflow.plans import compiles_unrolls
from srl.experiment import Experiment
from srl.lazy import jax, jnp
from srl.loop.acting.local_acting import LocalActing
from srl.loop.devices import program_device
from srl.loop.policy_set import PolicySet
from srl.loop.stepping.group import Group, Unrolls, group_state
from srl.loop.stepping.traced import Interaction, TracedSteps
from srl.pools import Pool
from srl.types import Decision, Timestep, Tree


def local_group(
    experiment: Experiment,
    pool: Pool,
    acting: LocalActing,
    unrolls: Unrolls,
    policy_set: PolicySet,
    alive: Callable[[], None],
) -> Group:
    """A group of a worker that acts for it."""
    if compiles_unrolls(experiment.settled_plan, experiment.env):
        return CompiledGroup(experiment, pool, acting, unrolls, policy_set, alive)
    return Group(pool, acting, unrolls, policy_set, alive)


class CompiledGroup(Group):
    """A group whose pool is stepped from inside the program that also acts.

    Its steps are those of any other group, to the last bit. The policies of an unroll are those
    with which it began.
    """

    def __init__(
        self,
        experiment: Experiment,
        pool: Pool,
        acting: LocalActing,
        unrolls: Unrolls,
        policy_set: PolicySet,
        alive: Callable[[], None] = lambda: None,
    ) -> None:
        """Takes the group's environments, which `reset` or `restore` begins.

        Args:
            experiment: What is trained.
            pool: Of the group.
            acting: The node `act`.
            unrolls: What becomes of unrolls.
            policy_set: The run's policies.
            alive: Called before each unroll.

        Raises:
            UserError: If no program can step the pool.
        """
        super().__init__(pool, acting, unrolls, policy_set, alive)
        self._local, self._policy_set, self._env = acting, policy_set, experiment.env
        self._xla = pool.xla()
        self._programs: dict[int, Any] = {}  # by the number of the unroll in the pass
        self._interaction: Interaction | None = None
        self._traced: TracedSteps | None = None  # only while a program is traced

    def _device(self) -> AbstractContextManager[Any]:
        return program_device(self._env)

    def reset(self, seed: int) -> None:
        """Starts new episodes."""
        self._keep()
        super().reset(seed)
        self._go_on()

    @property
    def progress(self) -> int:
        """Changes with each step that the program takes."""
        return self._xla.progress

    def act_once(self) -> None:
        """Does nothing: the first unroll waits for the compiler, as it does for its steps."""

    def state(self) -> dict[str, Tree]:
        """Gives everything that the group's future depends on, between two unrolls."""
        now = self._keep()
        assert now is not None
        return group_state(self.pool, now.timestep, now.memory, now.clock)

    def restore(self, state: dict[str, Tree]) -> None:
        """Goes on from a saved state."""
        self._keep()
        super().restore(state)
        self._go_on()

    def _keep(self) -> Interaction | None:
        """Lets the pool go on from where programs have led: they may have taken its own state."""
        if self._interaction is not None:
            self._xla.keep(self._interaction.pool)
        return self._interaction

    def _go_on(self) -> None:
        """Begins where `reset` or `restore` has led."""
        with self._device():
            # Copies: these may be the pool's own, and the same array may stand in memory twice.
            timestep, memory = jax.tree.map(jnp.array, (self._last, self._memory))
            clock = jnp.asarray(self._clock, jnp.uint32)
            self._interaction = Interaction(self._xla.init(), timestep, memory, clock)

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

    def _program(self, interact: Interact, length: int) -> Any:
        """The program that takes an unroll of so many steps."""

        def take(now: Interaction, policies: Any, key: Any, slots: Any) -> Any:
            self._policies = policies
            self._traced = traced = TracedSteps(self._policy_set, self._xla, key, slots, now)
            unroll = traced.unroll(interact, length)
            self._traced = self._policies = None
            return traced.now, unroll

        return jax.jit(take, donate_argnums=0)

    def _take(self, interact: Interact, length: int, number: int) -> None:
        """Takes an unroll by one call, and copies it to its destination."""
        before = time.perf_counter()
        columns = self._destination.columns
        assert columns is not None, "rules: what is compiled collects its own steps"
        if number not in self._programs:
            self._programs[number] = self._program(interact, length)
        self._alive()
        self.doing = "step"
        with self._device():
            operands = self._interaction, self._local.policies, self._local.key, self._local.slots
            self._interaction, unroll = self._programs[number](*operands)
        self._clock += length
        columns.write_unroll(*jax.tree.map(np.asarray, unroll), self._local.version)
        self.doing = ""
        self._seconds["step"] += time.perf_counter() - before
