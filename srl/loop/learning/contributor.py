"""A worker without `update`, which a server does with the partial sums of several such workers."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from srl.algorithms.algorithm import LearnNodes, learn, rounds_in_turn
from srl.lazy import jax
from srl.loop.learning.sums import Crossing, account
from srl.loop.learning.vectors import Vectors, tree_of, vectors_of
from srl.loop.local import LocalEnvironments
from srl.loop.projection import Gathered
from srl.loop.training import Training
from srl.loop.wiring import Site
from srl.streams.batch import Batch
from srl.streams.gradients import GradientSource, Turn
from srl.types import Tree, Unroll

ACTIVITIES = ("step", "act", "gradient", "server wait")
"""What a contributor's time goes to."""


class _Restarted(Exception):
    """The server begins the update anew, or another one: a worker has left, or it has itself."""


class Contributor(LocalEnvironments):
    """Makes unrolls with the server's state, and gives the sums of these slots.

    It is both halves of the loop in its worker. Of the state it has no more than the stream
    brings: the learner's own is not used.
    """

    def __init__(self, site: Site) -> None:
        """Takes the worker's streams; makes nothing yet."""
        super().__init__(site.experiment, site.replica)
        self._site = site
        self._seconds = dict.fromkeys(ACTIVITIES, 0.0)
        self.unrolls = 0
        """Made so far by all groups."""

    def training(self) -> Training:
        """The run of this worker, in which past versions, if any play, come with the state."""
        training = Training(self.experiment, self, lambda learner: self)
        training.chooses_opponents = False
        return training

    def compile(self, batches: Sequence[Batch]) -> None:
        """Runs everything on an empty batch."""
        (batch,), learner = batches, self._learner
        self._crossing = Crossing.of(learner, batch)
        self._policies = jax.jit(self._acting)
        self._measure = jax.jit(self._measured)
        self._gradient = jax.jit(self._gradient_of)
        form = self._crossing.forms.state
        empty = form.views(form.empty())
        jax.block_until_ready(self._policies(empty))
        batches, _ = self._measure(empty, learner.prepared(batch))
        jax.block_until_ready(self._gradient(empty, batches, 0))

    def _acting(self, state: Vectors) -> Any:
        states, opponents = tree_of(state, like=self._crossing.states)
        teams = self._learner.teams
        return teams.acting(teams.policies(states), opponents)

    def _states(self, vectors: Vectors) -> Any:
        return tree_of(vectors, like=self._crossing.states)[0]

    def _measured(self, state: Vectors, unroll: Unroll) -> tuple[Any, Vectors]:
        batches, sums = self._learner.teams.measure(self._states(state), unroll)
        return batches, vectors_of(sums)

    def _gradient_of(self, state: Vectors, batches: Any, round: Any) -> Vectors:
        return vectors_of(self._learner.teams.gradient(self._states(state), batches, round))

    def begin(self) -> None:
        """Starts episodes, or goes on with saved ones; waits until an update begins."""
        site = self._site
        self._source = GradientSource(
            lambda: site.connect("gradients"), site.replica, self._crossing.forms, site.go_on
        )
        start = self._source.start
        if start.saved is not None and self.resumes_exactly:
            for number, group in zip(self._numbers, self.groups, strict=True):
                group.restore(start.saved[str(number)])
        else:
            self.reset(start.seed_salt)
        self._turn = self._next_turn()

    def learn(self, batch: Gathered) -> None:
        """Runs `learn` with the server's half elsewhere, until the update is done or given up."""
        self._note_groups()
        update, unroll = self._turn.update, self._learner.prepared(batch.batch)
        while self._turn.update == update:
            with suppress(_Restarted):
                learn(self._nodes(batch.batch), None, unroll, rounds_in_turn)
        self.unrolls += len(self.groups)

    def learned(self, batch: Gathered) -> None:
        """Does nothing: the server counts."""

    def _nodes(self, batch: Batch) -> LearnNodes:
        """The parts of `learn`: a state is known once the server has sent it, sums go to it."""
        return LearnNodes(
            rounds=self._learner.teams.rounds,
            measure=lambda _, unroll: self._timed(self._measure, self._turn.state, unroll),
            adapt=lambda _, sums: self._answer((sums, account(batch)), self._spent()),
            gradient=lambda _, batches, round: self._timed(
                self._gradient, self._state_of(round + 1), batches, round
            ),
            update=lambda _, sums: (self._answer(sums), {}),
            finish=lambda _, sums: (self._wait_for_next(), {}),
        )

    def _timed(self, function: Callable[..., Any], *operands: Any) -> Any:
        before = time.perf_counter()
        result = jax.block_until_ready(function(*operands))
        self._seconds["gradient"] += time.perf_counter() - before
        return result

    def _answer(self, sums: Any, spent: Sequence[float] = ()) -> None:
        self._source.answer(jax.device_get(sums), spent)

    def _state_of(self, phase: int) -> Tree:
        """Waits for the state of a phase of this update."""
        update = self._turn.update
        self._turn = self._next_turn()
        if (self._turn.update, self._turn.phase) != (update, phase):
            raise _Restarted
        return self._turn.state

    def _wait_for_next(self) -> None:
        self._turn = self._next_turn()

    def _next_turn(self) -> Turn:
        before = time.perf_counter()
        turn = self._source.wait(self._states_by_name)
        self._seconds["server wait"] += time.perf_counter() - before
        if turn.phase == 0:
            progress = self._learner.progress
            _, progress.epoch, progress.updates = turn.update
            self._learner.policies = self._policies(turn.state)
        return turn

    def _states_by_name(self) -> Mapping[str, Tree]:
        return {str(group): state for group, state in self.states().items()}

    def _note_groups(self) -> None:
        for group in self.groups:
            for activity, seconds in group.spent().items():
                if activity in self._seconds:
                    self._seconds[activity] += seconds

    def _spent(self) -> list[float]:
        seconds, self._seconds = self._seconds, dict.fromkeys(ACTIVITIES, 0.0)
        return list(seconds.values())
