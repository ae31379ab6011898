"""The plan `fused`: the training loop as one XLA program, a call of which is one update."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from srl.dataflow.loop import Interact, Loop
from srl.errors import UserError
from srl.lazy import jax, jnp
from srl.pools import Pool
from srl.pools.native.xla import PoolState, Xla
from srl.streams.batch import expect_room
from srl.types import Array, Decision, Metrics, Timestep, Tree, Unroll
from srl.workers.actor import group_state
from srl.workers.learner import Learner, form_of, run_key
from srl.workers.past import Opponents
from srl.workers.seeds import environment_seed
from srl.workers.stage import Stage
from srl.workers.teams import Teams
from srl.workers.training import Training, make_group


class Acting(NamedTuple):
    """What a step leaves to the next one."""

    pool: PoolState
    timestep: Timestep
    memory: Tree  # by policy
    clock: Array  # uint32 []


class Fused(Training):
    """Trains by one compiled program, from which the native pool is stepped too.

    All environments are one group. Random keys and semantics are those of `Trainer`, and so is the
    state that it saves.
    """

    _pool: Pool | None = None

    def start(self) -> None:
        """Makes the environments and the policies, and compiles."""
        experiment = self.experiment
        self._pool = pool = make_group(experiment, experiment.num_envs)
        self.on_stage(Stage.COMPILING)
        self._maybe_learner = learner = Learner(experiment, pool.specs)
        self._enter_league(learner)
        expect_room(form_of(experiment, learner.teams, experiment.num_envs))
        try:
            self._xla = pool.xla()
        except UserError as error:
            raise UserError(
                f"the plan fused: {error}; choose another, such as --plan inline"
            ) from None
        self._key = run_key(experiment)
        self._clock: Any = jnp.zeros((), jnp.uint32)
        self._reset("environments")
        run = jax.jit(self._run)  # so that it is traced once
        *_, metrics = jax.eval_shape(run, *self._operands()[:-1])
        learner.progress.losses = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), metrics)

        def program(
            acting: Acting, states: Any, opponents: Any, version: Array, losses: Any
        ) -> Any:
            acting, states, timesteps, metrics = run(acting, states, opponents, version)
            return acting, states, timesteps, jax.tree.map(jnp.add, losses, metrics)

        self._program = jax.jit(program).lower(*self._operands()).compile()
        learner.progress.restart_clock()

    @property
    def awaited(self) -> str:
        """What it waits for now, in words."""
        return "the compiled update, in which environments step"

    def _operands(self) -> tuple[Any, ...]:
        acting = Acting(self._pool_state, self._now, self._memory, self._clock)
        learner = self._learner
        progress = learner.progress
        return acting, learner.states, learner.opponents, progress.version, progress.losses

    def _run(
        self, acting: Acting, states: Any, opponents: Opponents | None, version: Array
    ) -> tuple[Any, ...]:
        """One update; also gives the timesteps after the actions, [T, ...], and the metrics."""
        teams = self._learner.teams
        run = _TracedLoop(teams, self._xla, self._key, acting, states, opponents, version)
        self.experiment.algorithm.loop(run)
        return run.acting, run.states, run.timesteps, run.metrics

    def update(self) -> None:
        """Takes one unroll with the present policies, and learns from it."""
        before = time.perf_counter()
        acting, self._learner.states, timesteps, losses = self._program(*self._operands())
        self._pool_state, self._now, self._memory, self._clock = acting
        learner = self._learner
        progress = learner.progress
        progress.count_steps(jax.tree.map(np.asarray, timesteps))
        learner.count_update(learner.teams.policies(learner.states), losses)
        progress.spend("trainer", "update", time.perf_counter() - before)

    # ---- between two updates ----

    def _reset(self, purpose: str) -> None:
        assert self._pool is not None
        seed = environment_seed(self.experiment.seed, purpose)
        self._go_on_from(self._pool.reset(seed))
        self._memory: Tree = self._learner.teams.initial_memory(self.experiment.num_envs)

    def _go_on_from(self, timestep: Timestep) -> None:
        self._now = jax.tree.map(jnp.array, timestep)  # copies: these may be the pool's own
        self._pool_state = self._xla.init()

    def _group_states(self) -> Mapping[int, Tree]:
        assert self._pool is not None
        return {0: group_state(self._pool, self._now, self._memory, self._clock)}

    def _restore_groups(self, states: Mapping[int, Tree]) -> None:
        assert self._pool is not None
        if len(states) != 1:
            self.resumes_exactly = False
            self._reset(f"environments {self._learner.progress.epoch}")
            return
        state = states[0]
        self._pool.restore(np.asarray(state["pool"]).tobytes())
        self._go_on_from(Timestep(**state["timestep"]))
        self._memory = jax.tree.map(jnp.array, state["memory"])
        self._clock = jnp.asarray(state["clock"], jnp.uint32)

    def close(self) -> None:
        """Ends the environments."""
        if self._pool is not None:
            self._pool.close()


class _TracedLoop(Loop):
    """The values that flow through a loop while it is traced, each replaced by its successor."""

    def __init__(
        self,
        teams: Teams,
        xla: Xla,
        key: Array,
        acting: Acting,
        states: Tree,
        opponents: Opponents | None,
        version: Array,
    ) -> None:
        self._teams, self._xla, self._key, self._version = teams, xla, key, version
        self._opponents = opponents
        self.acting, self.states = acting, states
        self.metrics: Metrics = {}
        self.timesteps: Any = ()
        """Those that followed the unroll's actions, [T, ...]; without observations."""

    def latest(self) -> Any:
        return self._teams.acting(self._teams.policies(self.states), self._opponents)

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

    def learn(self, batch: Unroll) -> None:
        self.states, _, self.metrics = self._teams.learn(self.states, batch)
