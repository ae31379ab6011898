"""Plans in one process: actor threads beside the learner."""

from __future__ import annotations

import secrets
import threading

from srl.experiment import Experiment, plan_of
from srl.streams.transport.message import Identity
from srl.workers.gathering import Gathering
from srl.workers.groups import Groups
from srl.workers.learner import bind_teams
from srl.workers.ledger import Ledger
from srl.workers.training import environments, make_group
from srl.workers.wiring import Addresses, Site


class Threads(Gathering):
    """Trains by a plan whose actors are threads of this process, and whose streams references."""

    def __init__(self, experiment: Experiment) -> None:
        """Takes the experiment; `start` does the work."""
        self._addresses: dict[str, list[dict[str, str]]] = {}
        plan = plan_of(experiment)
        run = secrets.randbits(64)
        stopping = threading.Event()

        def site(fragment: str, replica: int, number: int) -> Site:
            return Site(
                experiment,
                plan,
                fragment,
                replica,
                Identity(run, number, 0),
                self._peers,
                stopping,
                "thread",
            )

        learner, actors = plan.home("update"), plan.home("step")
        own = site(learner, 0, 0)
        self._actor_sites = [
            site(actors, replica, replica + 1) for replica in range(plan.fragments[actors].replicas)
        ]
        self._workers: list[Groups] = []
        self._quiet: list[Groups] = []
        """Those that have shown no progress since all had."""
        super().__init__(own, own.listen(), None, Ledger.create())

    @property
    def account(self) -> str:
        """What has become of all unrolls."""
        return str(self._ledger)

    def _peers(self) -> Addresses:
        return self._addresses

    def start(self) -> None:
        """Makes the environments and the policies, and compiles."""
        experiment = self.experiment
        groups = [site.share("step", site.replica) for site in self._actor_sites]
        each = self._actor_sites[0].group_envs
        count = sum(map(len, groups))
        pools = [[make_group(experiment, each, count) for _ in share] for share in groups]
        self._specs = pools[0][0].specs
        self.resumes_exactly = pools[0][0].saves_exactly
        super().start()
        self._addresses[self._site.fragment_name] = [
            {stream: listener.address for stream, listener in self._listeners.items()}
        ]
        teams = bind_teams(experiment, self._specs)
        for site, own in zip(self._actor_sites, pools, strict=True):
            newest = self.published.newest if site.has("act") else None
            self._workers.append(Groups(site, own, teams, newest))

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
        """What it waits for now, in words."""
        each = self._site.group_envs
        groups = sorted(group for worker in self._workers for group in tuple(worker.quiet))
        return ", ".join(f"{environments(group, each)} to step" for group in groups)

    def close(self) -> None:
        """Ends the threads and the environments."""
        super().close()
        if self._ledger is not None:
            self._ledger.close()
        for worker in self._workers:
            worker.close()
