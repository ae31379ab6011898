"""A worker without `update`, which a server does with the partial sums of several such workers."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from srl.algorithms.learning_order import LearnNodes, learn, rounds_in_turn
from srl.checkpoint import Checkpoints
from srl.errors import RunError, UserError
from srl.lazy import jax
from srl.loop.learning.gradient_sums import Crossing, account
from srl.loop.learning.replay_files import ReplayFiles, Saved, expect_room
from srl.loop.learning.tree_vectors import Vectors, tree_of, vectors_of
from srl.loop.policy_set import PolicySet
from srl.loop.projection import Gathered
from srl.loop.stepping.local import LocalEnvironments
from srl.loop.training import Training
from srl.loop.wiring import Endpoints
from srl.streams.batch import Batch
from srl.streams.gradients import GradientSource, StateRequest
from srl.tree import map_tree
from srl.types import Tree, Unroll

logger = logging.getLogger(__name__)


class _Restarted(Exception):
    """The server begins the update anew, or another one: a worker has left, or it has itself."""


class Contributor(LocalEnvironments):
    """Makes unrolls with the server's state, and gives the sums of these slots.

    It is both halves of the loop in its worker. Of the state it has no more than the stream
    brings: the learner's own is not used.
    """

    def __init__(self, endpoints: Endpoints, checkpoints: Checkpoints | None = None) -> None:
        """Takes the worker's streams; makes nothing yet.

        Args:
            endpoints: Of the worker.
            checkpoints: Of the run, for what is remembered here; without them it is not saved.
        """
        super().__init__(endpoints.experiment, endpoints.replica)
        self._endpoints, self._checkpoints = endpoints, checkpoints
        self._replay_files = ReplayFiles(endpoints.replica, endpoints.fragment.replicas)
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
        learner.progress.busy[self.worker] = self._endpoints.busy
        self._endpoints.busy.begin(threads=1)
        self._crossing = Crossing.of(learner, batch)
        self._policies = jax.jit(self._acting)
        self._measure = jax.jit(self._measured, donate_argnums=1)
        self._revise = jax.jit(self._revised, donate_argnums=1)
        self._gradient = jax.jit(self._gradient_of)
        form = self._crossing.layouts.state
        empty = form.views(form.empty())
        jax.block_until_ready(self._policies(empty))
        unroll = learner.prepared(batch)
        make = learner.policy_set.empty_replays
        expect_room(jax.eval_shape(make, unroll), learner.neighbours)
        self._replays, batches, _ = self._measure(empty, make(unroll), unroll)
        jax.block_until_ready(self._gradient(empty, batches, 0))
        self._replays = ()  # before there is another
        self._replays = make(unroll)

    def _acting(self, state: Vectors) -> Any:
        states, opponents, _ = tree_of(state, like=self._crossing.states)
        policy_set = self._learner.policy_set
        return policy_set.acting(policy_set.policies(states), opponents)

    def _learning(self, vectors: Vectors) -> tuple[PolicySet, Any]:
        """The policies' functions, with the settings that the server has sent, and their states."""
        states, _, settings = tree_of(vectors, like=self._crossing.states)
        return self._learner.policy_set.adjusted(settings), states

    def _measured(self, state: Vectors, replays: Any, unroll: Unroll) -> tuple[Any, Any, Vectors]:
        policy_set, states = self._learning(state)
        replays, batches, sums = policy_set.look(states, replays, unroll)
        return replays, batches, vectors_of(sums)

    def _gradient_of(self, state: Vectors, batches: Any, round: Any) -> tuple[Vectors, Any]:
        policy_set, states = self._learning(state)
        sums, notes = policy_set.noted_gradient(states, batches, round)
        return vectors_of(sums), notes

    def _revised(self, state: Vectors, replays: Any, batches: Any, notes: Any) -> Any:
        policy_set, states = self._learning(state)
        return policy_set.revise(states, replays, batches, notes)

    def begin(self) -> None:
        """Starts episodes, or goes on with saved ones; waits until an update begins."""
        endpoints = self._endpoints
        self._source = GradientSource(
            lambda: endpoints.connect("gradients"),
            endpoints.replica,
            self._crossing.layouts,
            endpoints.go_on,
        )
        start = self._source.start
        if start.saved is not None and self.resumes_exactly:
            for number, group in zip(self._numbers, self.groups, strict=True):
                group.restore(start.saved[str(number)])
        else:
            self.reset(start.seed_salt)
        self._request = self._next_request()
        if start.restarts == 0:
            self._restore_replays(self._learner.progress.updates)

    def learn(self, batch: Gathered) -> None:
        """Runs `learn` with the server's half elsewhere, until the update is done or given up."""
        update, unroll = self._request.update, self._learner.prepared(batch.batch)
        while self._request.update == update:
            with suppress(_Restarted):
                state = map_tree(np.array, self._request.state)  # later ones come in its place
                learned = learn(self._nodes(batch.batch), None, unroll, rounds_in_turn)
                self._replays = self._revise(state, self._replays, learned.batch, learned.notes)
                self._request = self._next_request()
        self.unrolls += len(self.groups)

    def _nodes(self, batch: Batch) -> LearnNodes:
        """The parts of `learn`: a state is known once the server has sent it, sums go to it."""
        return LearnNodes(
            rounds=self._learner.policy_set.rounds,
            measure=lambda _, unroll: self._look(unroll),
            adapt=lambda _, sums: self._answer((sums, account(batch))),
            gradient=lambda _, batches, round: self._timed(
                self._gradient, self._state_of(round + 1), batches, round
            ),
            update=lambda _, sums: (self._answer(sums), {}),
            finish=lambda _, sums: (None, {}),
        )

    def _look(self, unroll: Unroll) -> tuple[Any, Vectors]:
        # An update that is begun anew remembers the same unroll again, in the same place.
        operands = self._request.state, self._replays, unroll
        self._replays, batches, sums = self._timed(self._measure, *operands)
        return batches, sums

    def _timed(self, function: Callable[..., Any], *operands: Any) -> Any:
        before = time.perf_counter()
        result = jax.block_until_ready(function(*operands))
        self._endpoints.busy.add({"gradient": time.perf_counter() - before})
        return result

    def _answer(self, sums: Any) -> None:
        self._source.answer(jax.device_get(sums))

    def _state_of(self, phase: int) -> Tree:
        """Waits for the state of a phase of this update."""
        update = self._request.update
        self._request = self._next_request()
        if (self._request.update, self._request.phase) != (update, phase):
            raise _Restarted
        return self._request.state

    def _next_request(self) -> StateRequest:
        before = time.perf_counter()
        request = self._source.wait(
            lambda: {str(group): state for group, state in self.states().items()},
            self._save_replays,
        )
        self._endpoints.busy.add({"server wait": time.perf_counter() - before})
        if request.phase == 0:
            progress = self._learner.progress
            if request.update[1] != progress.epoch:  # the server has gone back to a checkpoint
                self._replay_files.rewind(request.update[2])
            _, progress.epoch, progress.updates = request.update
            self._learner.policies = self._policies(request.state)
        return request

    def _save_replays(self, updates: int) -> np.ndarray:
        """Writes what is new in the replays here; gives the report for the server."""
        saved = Saved({})
        if self._checkpoints is not None and self._checkpoints.folder.parent.is_dir():
            folder, alive = self._checkpoints.replay_folder, self._endpoints.alive
            saved = self._replay_files.save(folder, self._replays, updates, alive)
        return saved.to_bytes()

    def _restore_replays(self, updates: int) -> None:
        """Goes on from the replays of the checkpoint that the server has begun with."""
        checkpoints = self._checkpoints
        if checkpoints is None or not updates or not jax.tree.leaves(self._replays):
            return
        try:
            files = checkpoints.replay_files(updates)
        except (UserError, RunError) as error:
            logger.warning("the replay begins empty: %s", error)
            return
        folder, alive = checkpoints.replay_folder, self._endpoints.alive
        self._replays = self._replay_files.load(folder, files, self._replays, updates, alive)
