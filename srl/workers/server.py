"""The node `update` alone: it adds the sums of workers that hold no optimizer."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np

from srl.lazy import jax, jnp
from srl.streams.batch import widened
from srl.streams.channel import Listener
from srl.streams.gradients import GradientSink, WorkerLeft
from srl.tree import map_tree
from srl.types import Metrics, Specs, Tree
from srl.workers.contributor import ACTIVITIES
from srl.workers.learner import Learner, form_of
from srl.workers.ledger import Ledger
from srl.workers.stage import Stage
from srl.workers.sums import Crossing, needed, whole_account
from srl.workers.training import Training
from srl.workers.vectors import Vectors, tree_of, vectors_of
from srl.workers.wiring import Site


class Server(Training):
    """Holds the state, and leads the workers through each update: see srl.streams.gradients."""

    def __init__(self, site: Site, listener: Listener, specs: Specs, ledger: Ledger) -> None:
        """Takes the stream's end; `start` does the work.

        Args:
            site: Of the worker.
            listener: Of the gradients stream; closed at the end.
            specs: Of the environments.
            ledger: Where to account for unrolls.
        """
        super().__init__(site.experiment)
        self._site, self._listener, self._specs, self._ledger = site, listener, specs, ledger
        self._workers = site.plan.fragment("gradient").replicas
        self._groups_each = site.num_groups // self._workers
        self._holding: set[int] = set()  # workers with an unroll of this update, or making it
        self._saved: Mapping[int, Tree] = {}
        self._begun = False

    def start(self) -> None:
        """Makes the policies and compiles."""
        site, experiment = self._site, self.experiment
        self.on_stage(Stage.COMPILING)
        slots = site.group_envs * len(self._specs.agents) * self._groups_each
        # It has no slots of its own: the shapes of what crosses are found by those of one worker.
        self._maybe_learner = learner = Learner(
            experiment, self._specs, site.fragment_name, range(slots)
        )
        self._enter_league(learner)
        actors = site.plan.home("gradient")
        learner.progress.workers = {site.fragment_name: 1, actors: self._workers}
        form = widened(form_of(experiment, learner.teams, site.group_envs), self._groups_each)
        batch = map_tree(lambda f: np.zeros(f.shape, f.dtype), form)
        self._crossing = Crossing.of(learner, batch)
        self.sink = GradientSink(
            self._listener,
            self._crossing.forms,
            self._workers,
            on_left=self._lose,
            on_seconds=self._spend,
        )
        self._compile()
        learner.progress.restart_clock()

    def update(self) -> None:
        """Does one update with all workers; does nothing if it is to end before they are there."""
        if not self._begun:
            self._begin()
        before = time.perf_counter()
        while True:
            while not self.sink.complete:
                if self._site.stopping.is_set():
                    return
                self.sink.hear()
                self._site.alive()
            progress = self._learner.progress
            progress.spend(self._site.fragment_name, "sums wait", time.perf_counter() - before)
            try:
                return self._update()
            except WorkerLeft:
                before = time.perf_counter()

    def _begin(self) -> None:
        """Lets workers begin: with the state as it is, which may have been restored."""
        progress, each = self._learner.progress, self._groups_each
        progress.epoch += self._site.identity.incarnation
        self._ledger.restart(progress.updates * self._site.num_groups)
        self.sink.epoch = progress.epoch
        if len(self._saved) == self._site.num_groups:
            for worker in range(self._workers):
                groups = range(worker * each, (worker + 1) * each)
                self.sink.saved[worker] = {str(group): self._saved[group] for group in groups}
        progress.restart_clock()
        self._begun = True

    def _update(self) -> None:
        learner = self._learner
        progress = learner.progress
        self._grant()
        answers = self._exchange(0, learner.states)
        timesteps = whole_account([steps for _, steps in answers])
        states, total = self._adapt(learner.states, [sums for sums, _ in answers])
        metrics = self._no_metrics
        for round in range(learner.teams.rounds):
            sums = self._exchange(round + 1, states)
            states, metrics = self._step(states, sums, metrics)
        learner.states, losses = self._finish(states, total, metrics, progress.losses)
        progress.count_steps(timesteps)
        learner.count_update(learner.teams.policies(learner.states), losses)
        self._ledger.learn(self._site.num_groups)
        self._holding.clear()

    def _exchange(self, phase: int, states: Any) -> list[Tree]:
        """Gives the state to all workers, and gets their sums."""
        progress, name = self._learner.progress, self._site.fragment_name
        before = time.perf_counter()
        state = jax.device_get(self._told(states, self._learner.opponents))
        told = time.perf_counter()
        epoch, n = progress.version.tolist()
        sums = self.sink.exchange((epoch, n), phase, state, self._site.alive)
        progress.spend(name, "update", told - before)
        progress.spend(name, "sums wait", time.perf_counter() - told)
        return sums

    # ---- what is compiled; sums come as vectors, of each worker ----

    def _compile(self) -> None:
        """Runs an update on empty memory, so that none waits for a compiler."""
        self._told = jax.jit(lambda *told: vectors_of(needed(*told)))
        self._adapt = jax.jit(self._adapted)
        self._step = jax.jit(self._stepped)
        self._finish = jax.jit(self._finished)
        learner, forms = self._learner, self._crossing.forms
        empty = [map_tree(np.zeros_like, form.views(form.empty())) for form in forms[1:]]
        measured, gradient = empty[0][0], empty[1]
        states, total = self._adapt(learner.states, [measured] * self._workers)
        _, shapes = jax.eval_shape(learner.teams.update, states, self._crossing.gradient)
        self._no_metrics: dict[str, Metrics] = _zeros(shapes)
        states, metrics = self._step(states, [gradient] * self._workers, self._no_metrics)
        _, shapes = jax.eval_shape(learner.teams.finish, states, total)
        more = _zeros(shapes)
        losses = {name: {**part, **more[name]} for name, part in self._no_metrics.items()}
        learner.progress.losses = losses
        jax.block_until_ready(self._finish(states, total, metrics, losses))

    def _adapted(self, states: Any, parts: Sequence[Vectors]) -> tuple[Any, Any]:
        total = tree_of(_added(parts), like=self._crossing.measured)
        return self._learner.teams.adapt(states, total), total

    def _stepped(self, states: Any, parts: Sequence[Vectors], metrics: Any) -> tuple[Any, Any]:
        teams = self._learner.teams
        total = tree_of(_added(parts), like=self._crossing.gradient)
        states, found = teams.update(states, total)
        return states, jax.tree.map(lambda sum, x: sum + x / teams.rounds, metrics, found)

    def _finished(self, states: Any, total: Any, metrics: Any, losses: Any) -> tuple[Any, Any]:
        states, found = self._learner.teams.finish(states, total)
        metrics = {name: {**part, **found[name]} for name, part in metrics.items()}
        return states, jax.tree.map(jnp.add, losses, metrics)

    # ---- accounts ----

    def report(self) -> dict[str, Any]:
        """Gives a line of metrics, with what has become of all unrolls."""
        return {**super().report(), **self._ledger.report()}

    def _grant(self) -> None:
        """Every worker makes its unrolls of this update, or still has them."""
        free = set(range(self._workers)) - self._holding
        self._holding |= free
        self._ledger.grant(len(free) * self._groups_each)

    def _lose(self, worker: int) -> None:
        """A worker's unrolls have gone with it."""
        if worker in self._holding:
            self._holding.remove(worker)
            self._ledger.lose(self._groups_each)

    def _spend(self, seconds: Sequence[float]) -> None:
        actors = self._site.plan.home("gradient")
        for activity, spent in zip(ACTIVITIES, seconds, strict=False):
            self._learner.progress.spend(actors, activity, spent)

    # ---- state ----

    def _group_states(self) -> Mapping[int, Tree]:
        if not self._begun:
            return {}
        parts = self.sink.groups(self._site.alive)
        return {int(group): state for part in parts for group, state in part.items()}

    def _restore_groups(self, states: Mapping[int, Tree]) -> None:
        self._saved = states

    def finish(self) -> None:
        """Tells all workers that no further update is wanted."""
        if self._begun:
            self.sink.stop()

    def close(self) -> None:
        """Ends the stream."""
        if self._maybe_learner is not None:
            self.sink.close()
        self._listener.close()


def _added(parts: Sequence[Vectors]) -> Vectors:
    """The sums of all workers, added in the workers' order."""
    return reduce(lambda one, other: jax.tree.map(jnp.add, one, other), parts)


def _zeros(shapes: Any) -> Any:
    return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
