"""A pool that compiled programs step, from one call of them to the next."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from srl.config.experiment import Experiment
from srl.core.errors import RunError
from srl.core.lazy import jax, jnp
from srl.core.types import Timestep, Tree
from srl.dataflow.plans import programs_need_cpu
from srl.loop.stepping.group import group_state
from srl.loop.stepping.traced import Interaction
from srl.pools import Pool

_CODES = ("INTERNAL", "INVALID_ARGUMENT", "FAILED_PRECONDITION")
"""The codes of XLA's errors with which calls of a pool fail."""


class ProgramPool:
    """Environments, and what the last program has left to the next one."""

    def __init__(self, experiment: Experiment, pool: Pool) -> None:
        """Takes the pool, which `reset` or `restore` begins.

        Raises:
            UserError: If no program can step it.
        """
        self._pool, self._id = pool, experiment.env_id
        self._on_cpu = programs_need_cpu(experiment.env)
        self.xla = pool.xla()
        self._now: Interaction | None = None

    @property
    def now(self) -> Interaction:
        """The input of a program, which may take over its memory and gives the next one."""
        assert self._now is not None, "neither reset nor restored"
        return self._now

    @now.setter
    def now(self, now: Interaction) -> None:
        self._now = now

    def reset(self, seed: int, memory: Tree) -> None:
        """Starts new episodes; the clock goes on."""
        self._keep()
        clock = 0 if self._now is None else self._now.clock
        self._begin(self._pool.reset(seed), memory, clock)

    @property
    def lesson(self) -> int:
        """The lesson of a curriculum that the environments are of."""
        return self._pool.lesson

    def enter(self, lesson: int, memory: Tree) -> None:
        """Begins the episodes of another lesson, which other programs may have to step."""
        self._pool.enter(lesson)
        self.xla = self._pool.xla()
        self._begin(self._pool.reset(), memory, self.now.clock)

    def restore(self, state: dict[str, Tree]) -> None:
        """Goes on from a state as `state` gives it."""
        self._keep()
        self._pool.restore(np.asarray(state["pool"]).tobytes())
        self.xla = self._pool.xla()  # the state may be of another lesson
        self._begin(Timestep(**state["timestep"]), state["memory"], state["clock"])

    def state(self) -> dict[str, Tree]:
        """A copy of all that the future of the environments depends on."""
        self._keep()
        return group_state(self._pool, self.now.timestep, self.now.memory, self.now.clock)

    def placed(self, tree: Tree) -> Any:
        """The same arrays where the programs run."""
        return jax.device_put(tree, jax.local_devices(backend="cpu")[0] if self._on_cpu else None)

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Raises what environments have raised in a program as a RunError."""
        try:
            yield
        except (jax.errors.JaxRuntimeError, ValueError) as error:  # by how a program is called
            code, _, text = str(error).partition(": ")
            if code not in _CODES:
                raise
            raise RunError(f"{self._id}: {text}") from error

    def _begin(self, timestep: Timestep, memory: Tree, clock: Any) -> None:
        # Copies: the timestep may be the pool's own, and an array may stand in memory twice.
        parts = jax.tree.map(jnp.array, (timestep, memory))
        now = Interaction(self.xla.init(), *parts, clock=jnp.asarray(clock, jnp.uint32))
        self._now = self.placed(now)

    def _keep(self) -> None:
        """Lets the pool go on from where programs have led: they may have taken its own state."""
        if self._now is not None:
            self.xla.keep(self._now.pool)
