"""The training loop in one process: step, act, collect, learn."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from srl.algorithms.algorithm import State
from srl.errors import RunError
from srl.experiment import Experiment
from srl.lazy import jax, jnp
from srl.pools import Pool, Rows, make_pool
from srl.pools.pool import aligned_zeros
from srl.types import Policy, Timestep, Tree, Unroll
from srl.workers.episodes import EpisodeWindow
from srl.workers.teams import Teams

_COUNTS = ("_epoch", "updates", "env_steps", "agent_steps", "_updates_reported")


def environment_seed(seed: int, purpose: str) -> int:
    """Gives the first environment's seed; neighbouring run seeds share no environment."""
    digest = hashlib.sha256(f"{purpose} {seed}".encode()).digest()
    return int.from_bytes(digest[:4], "little") >> 1


class Trainer:
    """Trains an experiment's policies: every update takes an unroll and learns from it.

    The pool writes each timestep once, into the memory that `learn` reads; only the row between
    two unrolls, the last of one and the first of the next, is copied.
    """

    def __init__(self, experiment: Experiment) -> None:
        """Takes the experiment; `start` does the work."""
        self.experiment = experiment
        self.env_steps = self.agent_steps = self.updates = 0
        self.parameters: dict[str, int] = {}
        self.agents: dict[str, tuple[str, ...]] = {}
        self.resumes_exactly = False
        self._epoch = 0
        self._pool: Pool | None = None
        self._updates_reported = 0
        self._time = {"step": 0.0, "act": 0.0, "learn": 0.0}

    def start(self) -> None:
        """Makes the environments and the policies, compiles, and resets."""
        experiment = self.experiment
        self._pool = pool = make_pool(
            experiment.env,
            experiment.num_envs,
            threads=experiment.threads,
            workers=experiment.workers,
            step_timeout=experiment.step_timeout,
        )
        self.resumes_exactly = pool.saves_exactly
        self._length = experiment.algorithm.unroll_length
        self._steps_per_update = self._length * experiment.num_envs
        updates = experiment.updates or math.ceil(experiment.env_steps / self._steps_per_update)
        teams = Teams.of(experiment.algorithm, experiment.policies, pool.specs, updates)
        self._teams = teams
        self._act = jax.jit(teams.act)
        self._learn = jax.jit(self._learn_and_count)
        self._episodes = EpisodeWindow(pool.specs, teams.members)

        root = jax.random.key(experiment.seed)
        self._act_key = jax.random.fold_in(root, 1)
        self._states = teams.init(jax.random.fold_in(root, 0))
        self._policies: Mapping[str, Policy] = teams.policies(self._states)
        self._memory = teams.initial_memory(experiment.num_envs)
        self._clock = np.uint32(0)
        for name, state in self._states.items():
            self.parameters[name] = sum(x.size for x in jax.tree.leaves(state.params))
            self.agents[name] = tuple(pool.specs.agents[i] for i in teams.members[name])

        # Two blocks in turn: one is written while `learn` may still read the other.
        self._blocks = [self._block(pool) for _ in range(2)]
        self._compile()
        pool.reset(environment_seed(experiment.seed, "environments"), self._current[0])
        self._last_report = (time.perf_counter(), 0)

    def _block(self, pool: Pool) -> tuple[Rows, np.ndarray, np.ndarray]:
        """Memory for an unroll: timesteps [T + 1], actions and their log-probabilities [T]."""
        decision = jax.eval_shape(self._teams.act, *self._to_act(pool.rows(1)[0].timestep))
        rows = pool.rows(self._length + 1)
        action, log_prob = (
            aligned_zeros((self._length, *x.shape), x.dtype)
            for x in (decision.action, decision.log_prob)
        )
        return rows, action, log_prob

    def _compile(self) -> None:
        """Runs both calls once on empty memory, so that no training step waits for a compiler."""
        jax.block_until_ready(self._decide(self._current[0].timestep))
        unroll = self._unroll([self._memory] * (self._length // self._teams.chunk))
        *_, losses = jax.eval_shape(self._teams.learn, self._states, unroll)
        self._losses = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), losses)
        jax.block_until_ready(self._learn(self._states, unroll, self._losses))

    def _learn_and_count(self, states: Any, unroll: Unroll, losses: Any) -> Any:
        """Learns, and adds the metrics to their sums since the last report."""
        states, policies, metrics = self._teams.learn(states, unroll)
        return states, policies, jax.tree.map(jnp.add, losses, metrics)

    @property
    def _current(self) -> Rows:
        return self._blocks[0][0]

    # ---- the loop ----

    def update(self) -> None:
        """Takes one unroll with the present policies, and learns from it."""
        assert self._pool is not None
        rows, actions, log_probs = self._blocks[0]
        spent, now = self._time, time.perf_counter
        memories, before = [], now()
        for t in range(self._length):
            if t % self._teams.chunk == 0:
                memories.append(self._memory)
            decision = self._decide(rows[t].timestep)
            self._memory, self._clock = decision.memory, self._clock + np.uint32(1)
            actions[t] = decision.action
            log_probs[t] = decision.log_prob
            acted = now()
            self._pool.step(self._teams.env_action(actions[t]), rows[t + 1])
            stepped = now()
            spent["act"] += acted - before
            spent["step"] += stepped - acted
            before = stepped
        self._states, self._policies, self._losses = self._learn(
            self._states, self._unroll(memories), self._losses
        )
        self._carry()
        jax.block_until_ready(self._policies)
        spent["learn"] += now() - before
        self.updates += 1
        self.env_steps += self._steps_per_update
        self.agent_steps += self._steps_per_update * len(self._pool.specs.agents)

    def _decide(self, timestep: Timestep) -> Any:
        return self._act(*self._to_act(timestep))

    def _to_act(self, timestep: Timestep) -> tuple[Any, ...]:
        ended = np.logical_or(timestep.terminated, timestep.truncated)
        slots = np.arange(len(ended), dtype=np.int32)
        return (
            *(self._policies, timestep.observation, ended, self._memory),
            *(self._act_key, self._clock, slots),
        )

    def _unroll(self, memories: list[Tree]) -> Unroll:
        """The present block as `learn` takes it; the arrays are the block's own memory.

        Args:
            memories: The policies', before the first row of each chunk.
        """
        assert self._pool is not None
        rows, actions, log_probs = self._blocks[0]
        steps = rows.timesteps
        truncated = steps.truncated
        if steps.lost.any():
            # What led to a lost row did not happen: the episode ends with the row before. In a
            # copy, as to the statistics that episode has no end.
            truncated = truncated.copy()
            truncated[:-1] |= np.repeat(steps.lost[1:], len(self._pool.specs.agents), axis=1)
        version = np.tile(np.array([self._epoch, self.updates], np.int32), (self._length, 1, 1))
        unroll = Unroll(
            steps.observation,
            steps.reward,
            steps.terminated,
            truncated,
            actions,
            log_probs,
            jax.tree.map(lambda *x: np.stack(x), *memories),
            version,
            np.arange(truncated.shape[1], dtype=np.int32),
        )
        return jax.device_put(unroll)

    def _carry(self) -> None:
        """Counts the block's episodes, and begins the other block where this one ends."""
        rows = self._current
        self._episodes.add(Timestep(*_slice(tuple(rows.timesteps), 1)))
        self._blocks.reverse()
        _copy(rows[self._length].timestep, self._current[0].timestep)

    # ---- reports ----

    def report(self) -> dict[str, Any]:
        """Gives a line of metrics: since the last report, or over the last 100 episodes."""
        self.check()
        now = time.perf_counter()
        since, steps = self._last_report
        elapsed = max(now - since, 1e-9)
        self._last_report = (now, self.env_steps)
        shares = {name: value / elapsed for name, value in self._time.items()}
        self._time = dict.fromkeys(self._time, 0.0)
        report = {
            "env_steps": self.env_steps,
            "agent_steps": self.agent_steps,
            "updates": self.updates,
            "fps": (self.env_steps - steps) / elapsed,
            **self._episodes.report(),
            "policy_version": self.updates,
            "staleness_mean": 0.0,
            "staleness_max": 0,
            **self._mean_losses(),
            **{f"time/trainer/{name}": share for name, share in shares.items()},
            "time/trainer/other": max(0.0, 1 - sum(shares.values())),
        }
        self._updates_reported = self.updates
        self._losses = jax.tree.map(jnp.zeros_like, self._losses)
        return report

    def check(self) -> None:
        """Raises RunError if training has diverged since the last report."""
        for name, value in self._mean_losses().items():
            if not math.isfinite(value):
                raise RunError(
                    f"{name} is {value} after update {self.updates}: training has diverged; lower "
                    "the learning rate, or look for rewards and observations of extreme size"
                )

    def _mean_losses(self) -> dict[str, float]:
        """Means over the updates since the last report."""
        updates = max(self.updates - self._updates_reported, 1)
        means: dict[str, float] = {}
        for policy, losses in jax.device_get(self._losses).items():
            prefix = "loss/" if len(self._teams.members) == 1 else f"loss/{policy}/"
            means.update({prefix + name: float(total) / updates for name, total in losses.items()})
        return means

    # ---- state ----

    def state(self) -> Tree:
        """Gives everything that the rest of the run depends on."""
        assert self._pool is not None
        return {
            "learners": {name: state._asdict() for name, state in self._states.items()},
            "memory": self._memory,
            "pool": np.frombuffer(self._pool.save(), np.uint8),
            "timestep": self._current[0].timestep._asdict(),
            "episodes": self._episodes.state(),
            "clock": self._clock,
            "losses": self._losses,
            "counts": np.array([getattr(self, name) for name in _COUNTS]),
        }

    def restore(self, tree: Tree) -> None:
        """Goes on from a saved state."""
        assert self._pool is not None
        self._states = {
            name: State(**jax.device_put(state)) for name, state in tree["learners"].items()
        }
        self._policies = self._teams.policies(self._states)
        self._memory = jax.device_put(tree["memory"])
        self._clock = np.uint32(tree["clock"])
        self._episodes.restore(tree["episodes"])
        for name, count in zip(_COUNTS, tree["counts"], strict=True):
            setattr(self, name, int(count))
        self._epoch += 1
        self._losses = jax.device_put(tree["losses"])
        if self._pool.saves_exactly:
            self._pool.restore(tree["pool"].tobytes())
            _copy(Timestep(**tree["timestep"]), self._current[0].timestep)
        else:
            seed = environment_seed(self.experiment.seed, f"environments {self._epoch}")
            self._pool.reset(seed, self._current[0])
        self._last_report = (time.perf_counter(), self.env_steps)

    def close(self) -> None:
        """Ends the environments."""
        if self._pool is not None:
            self._pool.close()


def _slice(tree: Tree, start: int) -> Tree:
    if isinstance(tree, dict):
        return {name: _slice(part, start) for name, part in tree.items()}
    if isinstance(tree, tuple):
        return tuple(_slice(part, start) for part in tree)
    return tree[start:]


def _copy(source: Timestep, target: Timestep) -> None:
    """Copies arrays into those of another timestep."""
    for a, b in zip(jax.tree.leaves(source), jax.tree.leaves(target), strict=True):
        b[...] = a
