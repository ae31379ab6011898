"""Steps of environments within a compiled program: `step`, `act` and `collect`, while traced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from srl.core.lazy import jax, jnp
from srl.core.types import Array, Decision, Timestep, Tree
from srl.dataflow.loop import Interact
from srl.loop.policy_set import PolicySet


class Steps(Protocol):
    """Environments that are stepped from inside a compiled program."""

    def step(self, state: Any, action: Tree, /) -> tuple[Any, Timestep]:
        """Steps all of them: gives their next state, and the timestep after the actions."""
        ...


class Interaction(NamedTuple):
    """The state between two steps."""

    pool: Any  # the pool's PoolState
    timestep: Timestep
    memory: Tree  # by policy
    clock: Array  # uint32 []


class TracedUnroll(NamedTuple):
    """T steps of b slots."""

    timesteps: Timestep  # [T + 1, ...]
    decision: Decision  # [T, b, ...], without memory
    memory: Tree  # [T / chunk, b, ...] by policy: at the first step of each chunk


class TracedSteps:
    """The values of the steps that are traced, each replaced by its successor."""

    def __init__(
        self, policy_set: PolicySet, steps: Steps, key: Array, slots: Array, now: Interaction
    ) -> None:
        """Begins where the last unroll ended; `slots` are their numbers in the run, int32 [b]."""
        self._policy_set, self._steps, self._key, self._slots = policy_set, steps, key, slots
        self.now = now

    def act(self, policies: Any, timestep: Timestep, memory: Tree) -> Decision:
        """Decides, at the next clock."""
        ended = jnp.logical_or(timestep.terminated, timestep.truncated)
        clock = self.now.clock
        self.now = self.now._replace(clock=clock + jnp.uint32(1))
        return self._policy_set.act(
            policies, timestep.observation, ended, memory, self._key, clock, self._slots
        )

    def step(self, action: Tree) -> Timestep:
        """Steps the environments from inside the program."""
        pool, timestep = self._steps.step(self.now.pool, self._policy_set.env_action(action))
        self.now = self.now._replace(pool=pool)
        return timestep

    def collect(self, timestep: Timestep, decision: Decision) -> Any:
        """Gives a row of the unroll."""
        return timestep, decision._replace(memory=())

    def unroll(
        self, interact: Interact, length: int, begin: Callable[[], None] = lambda: None
    ) -> TracedUnroll:
        """Traces a step once, for a loop of the compiler's.

        Args:
            interact: Takes one step, by the calls above.
            length: Steps.
            begin: Called before the step is traced.
        """

        def step(now: Interaction, _: None) -> tuple[Interaction, Any]:
            begin()
            self.now = now
            timestep, memory, row = interact(now.timestep, now.memory)
            return self.now._replace(timestep=timestep, memory=memory), row

        def chunk(now: Interaction, _: None) -> tuple[Interaction, Any]:
            following, rows = jax.lax.scan(step, now, None, steps)
            return following, (now.memory, rows)

        steps = self._policy_set.chunk_of(length)
        self.now, (memory, rows) = jax.lax.scan(chunk, self.now, None, length // steps)
        rows, decision = jax.tree.map(lambda x: x.reshape(length, *x.shape[2:]), rows)
        timesteps = jax.tree.map(
            lambda x, last: jnp.concatenate([x, last[None]]), rows, self.now.timestep
        )
        return TracedUnroll(timesteps, decision, memory)
