"""The job of a run on Ray: `python -P -m srl.launch.engines.ray_job`, parts in its environment.

It reserves room for the parts, has Ray start a `HostProcess` in each, and waits for the end of the
controller. Only commands go through Ray; workers find each other as on any engine.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from srl.core.errors import RunError, UserError
from srl.launch.engines.engine import Part
from srl.launch.engines.needs import fitted
from srl.launch.engines.ray_host import HostProcess
from srl.system.shared_memory import size_text

FOLDER = "SRL_RUN_FOLDER"
"""Environment variable: the run's folder."""
CONFIG = "SRL_RUN_CONFIG"
"""Environment variable: its `config_hash`."""
PARTS = "SRL_PARTS"
"""Environment variable with the parts of the run, the controller's first."""
RESOURCE = "SRL_RAY_RESOURCE"
"""Environment variable: the custom resource of the hosts that see the run's folder; or empty."""
_ROUND_SECONDS = 1.0
_LOST_SECONDS = 60.0  # that what trains may be short of a host
_CALLS_AT_ONCE = 8  # of one actor: two last as long as the run


def bundles(part: Part, resource: str) -> list[dict[str, float]]:
    """The resources that a part takes of each of its hosts, as Ray names them.

    `resource` is the custom resource of the hosts that see the run's folder, or empty.
    """
    own: dict[str, float] = {"CPU": part.cores}
    if part.gpus:
        own["GPU"] = part.gpus
    if part.memory:
        own["memory"] = part.memory
    if part.needs_folder and resource:
        own[resource] = 0.001
    return [own] * part.hosts


def strategy(part: Part) -> str:
    """Names the placement strategy for the hosts of a part."""
    return "STRICT_SPREAD" if part.apart else "PACK"


class _Placement:
    """The parts of a run, on the hosts that Ray has chosen for them."""

    def __init__(self, ray: Any, run: tuple[str, str], parts: Sequence[Part], resource: str):
        self._ray, self._folder, self._resource = ray, run[0], resource
        self._trainers: Any = None  # the placement group of the first part
        remote = ray.remote(HostProcess)
        lasting = {"max_restarts": -1, "max_task_retries": -1, "max_concurrency": _CALLS_AT_ONCE}
        self.controller: Any = None
        self.hosts: list[tuple[Part, int, Any]] = []
        for part in parts:
            group = ray.util.placement_group(bundles(part, resource), strategy=strategy(part))
            self._trainers = self._trainers or group
            for number in range(part.hosts):
                where = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(
                    group, placement_group_bundle_index=number
                )
                if self.controller is None:
                    here = {**lasting, "num_cpus": 0, "scheduling_strategy": where}
                    self.controller = remote.options(**here).remote(*run)
                here = {**lasting, "num_cpus": part.cores, "num_gpus": part.gpus}
                here |= {"memory": part.memory} if part.memory else {}
                actor = remote.options(**here, scheduling_strategy=where).remote(*run)
                self.hosts.append((part, number, actor))

    def expect_folder(self) -> None:
        """Raises UserError unless the controller and those that train see the run's folder."""
        trainers = [actor for part, _, actor in self.hosts if part.controls]
        asked = [actor.trouble.remote() for actor in (self.controller, *trainers)]
        if troubles := {trouble for trouble in self._ray.get(asked) if trouble}:
            raise UserError("; ".join(sorted(troubles)))

    def run(self) -> None:
        """Runs the controller and the supervisors, until the controller has ended."""
        controlled = self.controller.serve.remote()
        supervised = {
            actor.supervise.remote(part, number, self.controller): part
            for part, number, actor in self.hosts
        }
        waiting, given_up = [controlled, *supervised], Counter[str]()
        self._whole_at = time.monotonic()
        while controlled in waiting:
            ended, waiting = self._ray.wait(waiting, timeout=_ROUND_SECONDS)
            for call in ended:
                part, error = supervised.get(call), self._ray.get(call)
                if not error:
                    continue
                if part is None or part.controls:
                    raise UserError(error)
                given_up[part.fragment] += not part.evaluates
                if given_up[part.fragment] == part.hosts:
                    raise UserError(f"no host is left for {part.fragment}: {error}")
                self.controller.say.remote(error)
            self._refuse_loss()

    def _refuse_loss(self) -> None:
        """Raises RunError where a host that trains was lost, and long has no other in its place."""
        table = self._ray.util.placement_group_table(self._trainers)
        if table["state"] == "CREATED":
            self._whole_at = time.monotonic()
        elif time.monotonic() > self._whole_at + _LOST_SECONDS:
            part = self.hosts[0][0]
            bundle = bundles(part, self._resource)[0]
            raise RunError(
                f"{part.fragment} has lost a host, and for {_LOST_SECONDS:.0f} s the Ray cluster "
                f"has had no other with {_shown(bundle)} to spare; when it has, "
                f"`srl resume {self._folder} --on ray` goes on"
            )


def refuse_too_much(ray: Any, parts: Sequence[Part], resource: str) -> None:
    """Raises UserError where the cluster, even when idle, has less than the parts take."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    there = sum((Counter(node) for node in nodes), Counter())
    wanted = Counter()
    for part in parts:
        bundle, *_ = several = bundles(part, resource)
        for one in several:
            wanted.update(one)
        fitting = [node for node in nodes if all(node.get(k, 0) >= v for k, v in bundle.items())]
        if not fitting:
            raise UserError(f"no host of the Ray cluster has {_shown(bundle)}, for {part.fragment}")
        if part.apart and part.hosts > len(fitting):
            raise UserError(
                f"{part.fragment} is to have {part.hosts} hosts with {_shown(bundle)}; the Ray "
                f"cluster has {len(fitting)} of them"
            )
    for kind, amount in wanted.items():
        if amount > there[kind]:
            taken, has = _shown({kind: amount}), _shown({kind: there[kind]})
            raise UserError(f"the plan takes {taken} in all; the Ray cluster has {has}")


def _shown(resources: Mapping[str, float]) -> str:
    """Resources as people read them, such as "2 CPU, 1.5 GiB memory"."""
    return ", ".join(
        f"{size_text(amount) if kind == 'memory' else f'{amount:g}'} {kind}"
        for kind, amount in resources.items()
    )


def sized(ray: Any, parts: Sequence[Part]) -> list[Part]:
    """The parts with cores as the cluster's hosts have them, where the plan names none."""
    cores = [int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]]
    cores = [count for count in cores if count]
    return fitted(parts, min(cores), sum(cores), whole=False) if cores else list(parts)


def main() -> int:
    """Runs the job; gives 0 when the run's folder records how the run has ended."""
    ray: Any = importlib.import_module("ray")
    importlib.import_module("ray.util.scheduling_strategies")
    run = os.environ[FOLDER], os.environ[CONFIG]
    parts = [Part(**values) for values in json.loads(os.environ[PARTS])]
    resource = os.environ.get(RESOURCE, "")
    # Ray's processes look for modules in this one's current folder first: in none, then.
    with tempfile.TemporaryDirectory() as nothing, contextlib.chdir(nothing):
        ray.init(log_to_driver=False)  # the job's own log is shown where it fails
    try:
        parts = sized(ray, parts)
        refuse_too_much(ray, parts, resource)
        placed = _Placement(ray, run, parts, resource)
        signal.signal(signal.SIGTERM, lambda *_: placed.controller.stop.remote())
        placed.expect_folder()
        placed.run()
    except (UserError, RunError) as error:
        sys.stderr.write(f"srl: {error}\n")
        return 2 if isinstance(error, UserError) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
