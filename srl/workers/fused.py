"""The plan `fused`: the training loop as one XLA program, a call of which is one update."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np

from srl.dataflow.loop import Interact, Loop
from srl.errors import UserError
from srl.lazy import jax, jnp
from srl.pools.xla import PoolState, Xla
from srl.types import Array, Decision, Metrics, Timestep, Tree, Unroll
from srl.workers.teams import Teams
from srl.workers.training import Training


class Acting(NamedTuple):
    """What a step leaves to the next one."""

    pool: PoolState
    timestep: Timestep
    memory: Tree  # by policy
    clock: Array  # uint32 []


class Fused(Training):
    """Trains by one compiled program, from which the native pool is stepped too.

    Random keys and semantics are those of `Trainer`, and so is the state that it saves.
    """

    activities = ("update",)

    def _prepare(self) -> None:
        try:
            self._xla = self._pool.xla()
        except UserError as error:
            raise UserError(
                f"the plan fused: {error}; choose another, such as --plan inline"
            ) from None
        self._reset(seed=0)  # for the shapes
        run = jax.jit(self._run)  # so that it is traced once
        *_, metrics = jax.eval_shape(run, *self._operands()[:-1])
        self._progress.losses = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), metrics)

        def program(acting: Acting, states: Any, version: Array, losses: Any) -> Any:
            acting, states, timesteps, metrics = run(acting, states, version)
            return acting, states, timesteps, jax.tree.map(jnp.add, losses, metrics)

        self._program = jax.jit(program).lower(*self._operands()).compile()

    def _operands(self) -> tuple[Any, ...]:
        acting = Acting(self._pool_state, self._now, self._memory, self._clock)
        return acting, self._states, self._progress.version, self._progress.losses

    def _run(self, acting: Acting, states: Any, version: Array) -> tuple[Any, ...]:
        """One update; also gives the timesteps after the actions, [T, ...], and the metrics."""
        run = _TracedLoop(self._teams, self._xla, self._act_key, acting, states, version)
        self.experiment.algorithm.loop(run)
        return run.acting, run.states, run.timesteps, run.metrics

    def update(self) -> None:
        """Takes one unroll with the present policies, and learns from it."""
        before = time.perf_counter()
        acting, self._states, timesteps, losses = self._program(*self._operands())
        self._pool_state, self._now, self._memory, self._clock = acting
        self._progress.episodes.add(jax.tree.map(np.asarray, timesteps))
        self._progress.count_update(self._steps_per_update, losses)
        self._progress.seconds["update"] += time.perf_counter() - before

    # ---- between two updates ----

    def _reset(self, seed: int) -> None:
        self._go_on_from(self._pool.reset(seed))

    def _timestep(self) -> Timestep:
        return self._now

    def _go_on_from(self, timestep: Timestep) -> None:
        self._now = jax.tree.map(jnp.array, timestep)  # copies: these may be the pool's own
        self._pool_state = self._xla.init()


class _TracedLoop(Loop):
    """The values that flow through a loop while it is traced, each replaced by its successor."""

    def __init__(
        self,
        teams: Teams,
        xla: Xla,
        key: Array,
        acting: Acting,
        states: Tree,
        version: Array,
    ) -> None:
        self._teams, self._xla, self._key, self._version = teams, xla, key, version
        self.acting, self.states = acting, states
        self.metrics: Metrics = {}
        self.timesteps: Any = ()
        """Those that followed the unroll's actions, [T, ...]; without observations."""

    def latest(self) -> Any:
        return self._teams.policies(self.states)

    def act(self, policy: Any, timestep: Timestep, memory: Tree) -> Decision:
        ended = jnp.logical_or(timestep.terminated, timestep.truncated)
        slots = jnp.arange(timestep.reward.size, dtype=jnp.int32)
        clock = self.acting.clock
        self.acting = self.acting._replace(clock=clock + jnp.uint32(1))
        return self._teams.act(policy, timestep.observation, ended, memory, self._key, clock, slots)

    def step(self, action: Array) -> Timestep:
        pool, timestep = self._xla.step(self.acting.pool, self._teams.env_action(action))
        self.acting = self.acting._replace(pool=pool)
        return timestep

    def collect(self, timestep: Timestep, decision: Decision) -> Any:
        return timestep, decision.action, decision.log_prob

    def unroll(self, interact: Interact, length: int) -> Unroll:
        def step(acting: Acting, _: None) -> tuple[Acting, Any]:
            self.acting = acting
            timestep, memory, row = interact(acting.timestep, acting.memory)
            return self.acting._replace(timestep=timestep, memory=memory), row

        def chunk(acting: Acting, _: None) -> tuple[Acting, Any]:
            following, rows = jax.lax.scan(step, acting, None, self._teams.chunk)
            return following, (acting.memory, rows)

        chunks = length // self._teams.chunk
        self.acting, (memory, rows) = jax.lax.scan(chunk, self.acting, None, chunks)
        rows, action, log_prob = jax.tree.map(lambda x: x.reshape(length, *x.shape[2:]), rows)
        rows = jax.tree.map(
            lambda x, last: jnp.concatenate([x, last[None]]), rows, self.acting.timestep
        )
        self.timesteps = jax.tree.map(lambda x: x[1:], rows._replace(observation=()))
        return Unroll(
            observation=rows.observation,
            reward=rows.reward,
            terminated=rows.terminated,
            truncated=rows.truncated,
            action=action,
            log_prob=log_prob,
            memory=memory,
            version=jnp.tile(self._version, (length, 1, 1)),
            slot=jnp.arange(action.shape[1], dtype=jnp.int32),
        )

    def gather(self, unroll: Unroll) -> Unroll:
        return unroll  # of all environments already

    def gradient(self, batch: Unroll) -> Unroll:
        return batch  # left to `update`: in one fragment the two are one call of `learn`

    def update(self, sums: Unroll) -> None:
        self.states, _, self.metrics = self._teams.learn(self.states, sums)
