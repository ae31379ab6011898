"""The training loop in one process: step, act, collect, learn."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from srl.lazy import jax, jnp
from srl.pools import Rows
from srl.pools.pool import aligned_zeros
from srl.types import Timestep, Tree, Unroll
from srl.workers.training import Training


class Trainer(Training):
    """Trains an experiment's policies: every update takes an unroll and learns from it.

    The pool writes each timestep once, into the memory that `learn` reads; only the row between
    two unrolls, the last of one and the first of the next, is copied.
    """

    activities = ("step", "act", "learn")

    def _prepare(self) -> None:
        self._policies = self._teams.policies(self._states)
        self._act = jax.jit(self._teams.act)
        self._learn = jax.jit(self._learn_and_count)
        # Two blocks in turn: one is written while `learn` may still read the other.
        self._blocks = [self._block() for _ in range(2)]
        self._compile()

    def _block(self) -> tuple[Rows, np.ndarray, np.ndarray]:
        """Memory for an unroll: timesteps [T + 1], actions and their log-probabilities [T]."""
        row = self._pool.rows(1)[0].timestep
        decision = jax.eval_shape(self._teams.act, *self._to_act(row))
        rows = self._pool.rows(self._length + 1)
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
        self._progress.losses = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), losses)
        jax.block_until_ready(self._learn(self._states, unroll, self._progress.losses))

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
        rows, actions, log_probs = self._blocks[0]
        spent, now = self._progress.seconds, time.perf_counter
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
        self._states, self._policies, losses = self._learn(
            self._states, self._unroll(memories), self._progress.losses
        )
        self._carry()
        jax.block_until_ready(self._policies)
        spent["learn"] += now() - before
        self._progress.count_update(self._steps_per_update, losses)

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
        rows, actions, log_probs = self._blocks[0]
        steps = rows.timesteps
        truncated = steps.truncated
        if steps.lost.any():
            # What led to a lost row did not happen: the episode ends with the row before. In a
            # copy, as to the statistics that episode has no end.
            truncated = truncated.copy()
            truncated[:-1] |= np.repeat(steps.lost[1:], len(self._pool.specs.agents), axis=1)
        version = np.tile(self._progress.version, (self._length, 1, 1))
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
        self._progress.episodes.add(Timestep(*_slice(tuple(rows.timesteps), 1)))
        self._blocks.reverse()
        _copy(rows[self._length].timestep, self._current[0].timestep)

    # ---- between two updates ----

    def restore(self, tree: Tree) -> None:
        """Goes on from a saved state; see the base class."""
        super().restore(tree)
        self._policies = self._teams.policies(self._states)

    def _reset(self, seed: int) -> None:
        self._pool.reset(seed, self._current[0])

    def _timestep(self) -> Timestep:
        return self._current[0].timestep

    def _go_on_from(self, timestep: Timestep) -> None:
        _copy(timestep, self._current[0].timestep)


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
