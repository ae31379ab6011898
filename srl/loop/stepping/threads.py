"""Plans in one process: actor threads beside the learner."""

from __future__ import annotations

import itertools
import secrets
import threading
from collections.abc import Callable, Sequence

from srl.config.experiment import Experiment
from srl.core.types import Specs
from srl.loop.learning.learner import Learner
from srl.loop.learning.unroll_ledger import Ledger
from srl.loop.stepping.actors import ActorThreads
from srl.loop.stepping.environments import environments_text, make_pools
from srl.loop.stepping.remote import RemoteEnvironments
from srl.loop.wiring import Endpoints
from srl.pools import Pool
from srl.streams.batch import Batch
from srl.streams.transport.message import Identity
from srl.system.gpu_switches import gpu_choice
from srl.system.gpus import jax_gpus


class ThreadEnvironments(RemoteEnvironments):
    """Groups of environments in threads of this process, whose streams pass references."""

    calls_one_program = False  # pyright: ignore[reportAssignmentType, reportIncompatibleMethodOverride]

    def __init__(self, experiment: Experiment) -> None:
        self._addresses: dict[str, list[dict[str, str]]] = {}
        plan = experiment.settled_plan
        run = secrets.randbits(64)
        stopping = threading.Event()

        def endpoints(fragment: str, replica: int, number: int) -> Endpoints:
            return Endpoints(
                experiment,
                fragment,
                replica,
                Identity(run, number, 0),
                lambda: self._addresses,
                stopping,
                "thread",
            )

        learner, actors = plan.home("learn"), plan.home("step")
        own = endpoints(learner, 0, 0)
        self._actor_endpoints = [
            endpoints(actors, replica, replica + 1)
            for replica in range(plan.fragments[actors].replicas)
        ]
        self._pools: list[list[Pool]] = []
        self._workers: list[ActorThreads] = []
        self._quiet: list[ActorThreads] = []
        """The workers that have shown no progress since all had."""
        super().__init__(own, own.listen(), None, Ledger.create())

    @property
    def account(self) -> str:
        """The account of all unrolls."""
        return str(self._ledger)

    def make(self) -> Specs:
        """Makes the environments."""
        groups = [endpoints.share("step", endpoints.replica) for endpoints in self._actor_endpoints]
        # Next to a GPU a group mostly acts while another steps, which then has all cores.
        alone = bool(jax_gpus()) and gpu_choice("pools") == "whole"
        count = 1 if alone else sum(map(len, groups))
        for endpoints in self._actor_endpoints:
            self._pools.append(make_pools(endpoints, count))
        self.resumes_exactly = self._pools[0][0].saves_exactly
        return self._pools[0][0].specs

    def prepare(self, learner: Learner, alive: Callable[[], None]) -> Sequence[Batch]:
        """Takes the memory of the batches, and makes the actors."""
        batches = super().prepare(learner, alive)
        self._addresses[self._endpoints.fragment_name] = [
            {stream: listener.address for stream, listener in self._listeners.items()}
        ]
        for endpoints, pools in zip(self._actor_endpoints, self._pools, strict=True):
            endpoints.busy = learner.progress.busy[endpoints.fragment_name]
            newest = self.published.newest if endpoints.has("act") else None
            self._workers.append(ActorThreads(endpoints, pools, learner.policy_set, newest))
        return batches

    def _begin(self) -> None:
        super()._begin()
        for worker in self._workers:
            worker.start()

    def _wait(self) -> None:
        for worker in self._workers:
            worker.check()
        self._quiet = [worker for worker in self._quiet if not worker.all_progressed()]
        if not self._quiet:
            self._quiet = list(self._workers)
            self.alive()

    @property
    def awaited(self) -> str:
        """The groups that have shown no progress for longest."""
        each = self._endpoints.group_envs
        groups = sorted(group for worker in self._workers for group in tuple(worker.quiet))
        return ", ".join(f"{environments_text(group, each)} to step" for group in groups)

    def close(self) -> None:
        """Ends the threads and the environments."""
        super().close()
        if self._ledger is not None:
            self._ledger.close()
        failed = any(worker.failed for worker in self._workers)
        for worker in self._workers:
            worker.close(after_error=failed)
        if not self._workers:  # or they have closed these
            for pool in itertools.chain(*self._pools):
                pool.close()
