"""The plain loop without `update`, which a server does with the sums of several such workers."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from srl.lazy import jax, jnp
from srl.streams.batch import Batch
from srl.streams.gradients import GradientSource, Turn
from srl.streams.sample import Stopped
from srl.types import Tree, Unroll
from srl.workers.sums import Crossing, account, flat, needed
from srl.workers.trainer import Trainer
from srl.workers.wiring import Site

ACTIVITIES = ("step", "act", "gradient", "server wait")
"""What a contributor's time goes to."""


class Contributor(Trainer):
    """Makes unrolls with the server's state, and gives the sums of these slots.

    The state is used where the stream has it, without a copy: the server changes it only when all
    workers have answered, and then nobody reads it.
    """

    def __init__(self, site: Site) -> None:
        """Takes the worker's place; `start` does the work, until the first update begins."""
        super().__init__(site.experiment, site.replica)
        self._site = site
        self._seconds = dict.fromkeys(ACTIVITIES, 0.0)
        self.unrolls = 0
        """Made so far by all groups."""

    def _compile(self, batch: Batch) -> None:
        learner = self._learner
        self._crossing = Crossing.of(learner, batch)
        self._measure = jax.jit(self._measured)
        self._gradient = jax.jit(self._gradient_of)
        self._use(tuple(map(np.asarray, flat(needed(learner.states)))))
        batches, _ = self._measure(learner.states, learner.prepared(batch))
        jax.block_until_ready(self._gradient(learner.states, batches, jnp.int32(0)))

    def _measured(self, states: Any, unroll: Unroll) -> tuple[Any, tuple[Any, ...]]:
        batches, sums = self._learner.teams.measure(states, unroll)
        return batches, flat(sums)

    def _gradient_of(self, states: Any, batches: Any, round: Any) -> tuple[Any, ...]:
        return flat(self._learner.teams.gradient(states, batches, round))

    def _begin(self) -> None:
        """Starts episodes, or goes on with saved ones; waits until an update begins."""
        site = self._site
        self._source = GradientSource(
            lambda: site.connect("gradients"), site.replica, self._crossing.forms, self._alive
        )
        start = self._source.start
        if start.saved is not None and self.resumes_exactly:
            for group, actor in zip(self._groups, self._actors, strict=True):
                actor.restore(start.saved[str(group)])
        else:
            self._reset(start.purpose)
        self._turn = self._next_turn()

    def _learn(self, batch: Batch) -> None:
        """Answers with the sums of this batch until its update is done or given up."""
        self._note_actors()
        learner = self._learner
        update, unroll, batches = self._turn.update, learner.prepared(batch), None
        while self._turn.update == update:
            before = time.perf_counter()
            if self._turn.phase == 0:
                batches, measured = self._measure(learner.states, unroll)
                answer = (jax.device_get(measured), account(batch))
            else:
                round = jnp.int32(self._turn.phase - 1)
                answer = jax.device_get(self._gradient(learner.states, batches, round))
            self._seconds["gradient"] += time.perf_counter() - before
            self._source.answer(answer, self._spent() if self._turn.phase == 0 else ())
            self._turn = self._next_turn()
        self.unrolls += len(self._groups)

    def _next_turn(self) -> Turn:
        before = time.perf_counter()
        turn = self._source.wait(self._states_by_name)
        self._seconds["server wait"] += time.perf_counter() - before
        self._use(turn.state)
        progress = self._learner.progress
        _, progress.epoch, progress.updates = turn.update
        return turn

    def _use(self, state: tuple[np.ndarray, ...]) -> None:
        """Lets the following acting and learning be with this state."""
        learner = self._learner
        states = jax.tree.unflatten(self._crossing.states, state)
        learner.states = jax.device_put(states)
        learner.policies = learner.teams.policies(learner.states)

    def _states_by_name(self) -> Mapping[str, Tree]:
        return {str(group): state for group, state in self._group_states().items()}

    def _alive(self) -> None:
        if self._site.stopping.is_set():
            raise Stopped
        self._site.alive()

    def _note_actors(self) -> None:
        for actor in self._actors:
            for activity, seconds in actor.spent().items():
                if activity in self._seconds:
                    self._seconds[activity] += seconds

    def _spent(self) -> list[float]:
        seconds, self._seconds = self._seconds, dict.fromkeys(ACTIVITIES, 0.0)
        return list(seconds.values())
