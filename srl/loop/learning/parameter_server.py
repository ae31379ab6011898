"""The node `update` alone: it adds the partial sums of workers that hold no optimizer."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from pathlib import Path
from typing import Any

import numpy as np

from srl.algorithms.learning_order import LearnNodes, learn, rounds_in_turn
from srl.block_files import Files
from srl.errors import Unwritable
from srl.lazy import jax, jnp
from srl.loop.learning.gradient_sums import Crossing, needed, whole_account
from srl.loop.learning.learner import Learner, batch_specs
from srl.loop.learning.replay_files import Saved, tree_bytes
from srl.loop.learning.tree_vectors import Vectors, tree_of, vectors_of
from srl.loop.learning.unroll_ledger import Ledger
from srl.loop.policy_set import PolicySet
from srl.loop.projection import Gathered
from srl.loop.training import Training
from srl.loop.wiring import Endpoints
from srl.streams.batch import Batch, widened
from srl.streams.gradients import GradientSink, WorkerLeft
from srl.streams.group_state import Stopped, state_layout
from srl.streams.transport import Listener
from srl.tree import map_tree
from srl.types import Metrics, Specs, Tree


class Server:
    """Holds the state, and leads the workers through each update: see srl.streams.gradients.

    It is both halves of the loop in its worker: unrolls and gradients are made by the others.
    """

    groups = ()
    replica, replicas = 0, 1
    calls_one_program = True
    resumes_exactly = True
    account = ""
    awaited = ""

    def __init__(
        self, endpoints: Endpoints, listener: Listener, specs: Specs, ledger: Ledger
    ) -> None:
        """Takes the stream's end.

        Args:
            endpoints: Of the worker.
            listener: Of the gradients stream; closed at the end.
            specs: Of the environments.
            ledger: Where to account for unrolls.
        """
        self.experiment, self.worker = endpoints.experiment, endpoints.fragment_name
        self._endpoints, self._listener = endpoints, listener
        self._specs, self._ledger = specs, ledger
        self._workers = endpoints.plan.fragment("gradient").replicas
        self._groups_each = endpoints.num_groups // self._workers
        self._holding: set[int] = set()  # workers with an unroll of this update, or making it
        self._saved: Mapping[int, Tree] = {}
        self._begun = self._prepared = False
        self.replay_bytes = 0
        """The bytes of the replays of all workers."""

    def training(self) -> Training:
        """The run that this server leads."""
        return _Served(self.experiment, self, lambda learner: self)

    def make(self) -> Specs:
        """Gives the specs that the other workers' environments have."""
        return self._specs

    def slots(self, specs: Specs) -> range:
        """The slots of one worker, by which the shapes of what crosses are found: it has no own."""
        return range(self._endpoints.group_envs * len(specs.agents) * self._groups_each)

    def prepare(self, learner: Learner, alive: Callable[[], None]) -> list[Batch]:
        """Opens the stream; there are no batches here."""
        endpoints, experiment = self._endpoints, self.experiment
        self._learner = learner
        (form,) = batch_specs(experiment, learner.policy_set, endpoints.group_envs)
        wide = widened(form, self._groups_each)
        batch = map_tree(lambda f: np.zeros(f.shape, f.dtype), wide)
        self._crossing = Crossing.of(learner, batch)
        empty = jax.eval_shape(learner.policy_set.empty_replays, learner.unroll(batch))
        self.replay_bytes = self._workers * tree_bytes(empty)
        self.sink = GradientSink(
            self._listener,
            self._crossing.layouts,
            self._workers,
            groups_each=self._groups_each,
            state_layout=state_layout(form),
            on_left=self._lose,
        )
        self._prepared = True
        return []

    def begin(self) -> None:
        """Does nothing: workers begin with the first pass."""

    def latest(self) -> None:
        """Lets workers begin, with the first pass."""
        if not self._begun:
            self._begin()

    def gather(self, unroll: int) -> None:
        """Does nothing: the workers have the batch."""

    def learned(self, batch: Gathered) -> None:
        """Is never called."""

    def learn(self, batch: Gathered | None) -> None:
        """Does one update with all workers.

        Raises:
            Stopped: If the worker is to end before they are there.
        """
        while True:
            self._wait_for_workers()
            try:
                return self._update()
            except WorkerLeft:
                continue

    def _wait_for_workers(self) -> None:
        before = time.perf_counter()
        while not self.sink.complete:
            if self._endpoints.stopping.is_set():
                raise Stopped
            self.sink.hear()
            self._endpoints.alive()
        waited = time.perf_counter() - before
        self._learner.progress.spend(self.worker, "sums wait", waited)

    def _begin(self) -> None:
        """Lets workers begin: with the state as it is, which may have been restored."""
        progress, each = self._learner.progress, self._groups_each
        progress.epoch += self._endpoints.identity.incarnation
        self._ledger.restart(progress.updates * self._endpoints.num_groups)
        self.sink.epoch = progress.epoch
        if len(self._saved) == self._endpoints.num_groups:
            for worker in range(self._workers):
                groups = range(worker * each, (worker + 1) * each)
                self.sink.saved[worker] = {str(group): self._saved[group] for group in groups}
        progress.restart_clock()
        self._begun = True

    def _update(self) -> None:
        learner = self._learner
        progress = learner.progress
        self._grant()
        learned = learn(self._nodes, learner.states, None, rounds_in_turn)
        losses = self._count(progress.losses, learned.metrics, learned.finished)
        learner.states = learned.state
        progress.count_steps(self._timesteps)
        learner.count_update(learner.policy_set.policies(learner.states), losses)
        self._ledger.learn(self._endpoints.num_groups)
        self._holding.clear()

    def _exchange(self, phase: int, states: Any) -> list[Tree]:
        """Gives the state to all workers, and gets their sums."""
        progress, name = self._learner.progress, self._endpoints.fragment_name
        before = time.perf_counter()
        sent = self._sent(states, self._learner.past, self._learner.setting_operands)
        state = jax.device_get(sent)
        begun = time.perf_counter()
        epoch, n = progress.version.tolist()
        sums = self.sink.exchange((epoch, n), phase, state, self._endpoints.alive)
        progress.spend(name, "update", begun - before)
        progress.spend(name, "sums wait", time.perf_counter() - begun)
        return sums

    # ---- the parts of `learn`: sums are made by the workers, the rest is compiled here ----

    def _measure(self, states: Any, _: Any) -> tuple[None, Any]:
        answers = self._exchange(0, states)
        self._timesteps = whole_account([steps for _, steps in answers])
        return None, self._total_measured([sums for sums, _ in answers])

    def _gradient(self, states: Any, _: Any, round: int) -> tuple[Any, tuple[()]]:
        return self._total_gradient(self._exchange(round + 1, states)), ()

    def compile(self, batches: Sequence[Batch]) -> None:
        """Runs an update on empty memory, so that none waits for a compiler."""
        learner, crossing = self._learner, self._crossing
        policy_set = learner.policy_set
        self._sent = jax.jit(lambda *parts: vectors_of(needed(*parts)))
        self._total_measured = jax.jit(partial(_added, like=crossing.measured))
        self._total_gradient = jax.jit(partial(_added, like=crossing.gradient))
        self._count = jax.jit(_counted)
        self._nodes = LearnNodes(
            rounds=policy_set.rounds,
            measure=self._measure,
            adapt=self._with_settings(PolicySet.adapt),
            gradient=self._gradient,
            update=self._with_settings(PolicySet.update),
            finish=self._with_settings(PolicySet.finish),
        )
        empty = [map_tree(np.zeros_like, form.views(form.empty())) for form in crossing.layouts[1:]]
        measured, gradient = ([part] * self._workers for part in (empty[0][0], empty[1]))
        alone = self._nodes._replace(
            measure=lambda *_: (None, self._total_measured(measured)),
            gradient=lambda *_: (self._total_gradient(gradient), ()),
        )
        learned = learn(alone, learner.states, None, rounds_in_turn)
        metrics = learned.metrics, learned.finished
        none = jax.tree.map(jnp.zeros_like, _by_policy(*metrics))
        learner.progress.begin_losses(none)
        jax.block_until_ready(
            (
                self._count(none, *metrics),
                self._sent(learner.states, learner.past, learner.setting_operands),
            )
        )

    def _with_settings(self, part: Callable[..., Any]) -> Callable[[Any, Any], Any]:
        """A part of learning, compiled, with the settings that the learner has at each call."""
        # No state is donated: an update begins anew with the first one when a worker has left.
        learner = self._learner
        compiled = jax.jit(
            lambda settings, *operands: part(learner.policy_set.adjusted(settings), *operands)
        )
        return lambda *operands: compiled(learner.setting_operands, *operands)

    # ---- accounts ----

    def report(self) -> dict[str, Any]:
        """What has become of all unrolls."""
        return self._ledger.report()

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

    # ---- state ----

    def states(self) -> Mapping[int, Tree]:
        """Asks every worker for the states of its groups."""
        if not self._begun:
            return {}
        parts = self.sink.groups(self._endpoints.alive)
        return {int(group): state for part in parts for group, state in part.items()}

    def save_replays(self) -> list[Saved]:
        """Lets every worker write what it remembers."""
        if not self._begun or not self.replay_bytes:
            return []
        replies = self.sink.replays(self._learner.progress.updates, self._endpoints.alive)
        try:
            return [Saved.from_bytes(text) for text in replies]
        except ValueError as error:
            raise Unwritable(f"a worker's replay is not saved: {error}") from error

    def restore(self, states: Mapping[int, Tree]) -> None:
        """Keeps the states for the workers that will come."""
        self._saved = states

    def finish(self) -> None:
        """Notifies all workers that no further update is wanted."""
        if self._begun:
            self.sink.stop()

    def close(self) -> None:
        """Ends the stream."""
        if self._prepared:
            self.sink.close()
        self._listener.close()


class _Served(Training):
    """The run of a server, whose workers hold the replays."""

    environments: Server

    def save_replays(self, folder: Path) -> dict[str, str]:
        """Lets the workers write; they know the folder."""
        return Saved.whole(self.environments.save_replays())

    def restore_replays(self, folder: Path, files: Files) -> None:
        """Does nothing: each worker reads its own as it begins."""

    @property
    def replay_bytes(self) -> int:
        """The size of all workers' replays."""
        return self.environments.replay_bytes


def _added(parts: Sequence[Vectors], like: Any) -> Tree:
    """The sums of all workers, added in the workers' order."""
    return tree_of(reduce(lambda one, other: jax.tree.map(jnp.add, one, other), parts), like=like)


def _by_policy(metrics: Mapping[str, Metrics], finished: Mapping[str, Metrics]) -> Any:
    return {name: {**part, **finished[name]} for name, part in metrics.items()}


def _counted(losses: Any, metrics: Any, finished: Any) -> Any:
    """The sums of losses since the last report, with those of one more update."""
    return jax.tree.map(jnp.add, losses, _by_policy(metrics, finished))
