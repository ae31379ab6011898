"""The job of a run on Ray: python -m srl.launch.ray_job, with its parts in the environment.

It takes room for the parts, has Ray put a `Place` into each, and waits for the controller to end.
Only words go through Ray; workers find each other as on any engine.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

from srl.errors import UserError
from srl.launch.engine import Part
from srl.launch.ray_place import Place

FOLDER = "SRL_RUN_FOLDER"
"""Environment variable: the run's folder."""
CONFIG = "SRL_RUN_CONFIG"
"""Environment variable: its `config_hash`."""
PARTS = "SRL_PARTS"
"""Environment variable with the parts of the run, the controller's first."""
RESOURCE = "SRL_RAY_RESOURCE"
"""Environment variable: the custom resource of the hosts that see the run's folder; or empty."""
_ROUND_SECONDS = 1.0
_CALLS_AT_ONCE = 8  # of one place: two last as long as the run


def bundles(part: Part, resource: str) -> list[dict[str, float]]:
    """What a part takes of each of its hosts, in Ray's words.

    Args:
        part: What is asked for.
        resource: Custom resource of the hosts that see the run's folder; or empty.
    """
    own: dict[str, float] = {"CPU": part.cores}
    if part.gpus:
        own["GPU"] = part.gpus
    if part.controls and resource:
        own[resource] = 0.001
    return [own] * part.hosts


def strategy(part: Part) -> str:
    """How the hosts of a part are chosen."""
    return "STRICT_SPREAD" if part.apart else "PACK"


class _Placed:
    """The parts of a run, on the hosts that Ray has chosen for them."""

    def __init__(self, ray: Any, run: tuple[str, str], parts: Sequence[Part], resource: str):
        self._ray = ray
        place = ray.remote(Place)
        lasting = {"max_restarts": -1, "max_task_retries": -1, "max_concurrency": _CALLS_AT_ONCE}
        self.controller: Any = None
        self.hosts: list[tuple[Part, int, Any]] = []
        for part in parts:
            group = ray.util.placement_group(bundles(part, resource), strategy=strategy(part))
            for number in range(part.hosts):
                where = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(
                    group, placement_group_bundle_index=number
                )
                if self.controller is None:
                    here = {**lasting, "num_cpus": 0, "scheduling_strategy": where}
                    self.controller = place.options(**here).remote(*run)
                here = {**lasting, "num_cpus": part.cores, "num_gpus": part.gpus}
                actor = place.options(**here, scheduling_strategy=where).remote(*run)
                self.hosts.append((part, number, actor))

    def refuse_strangers(self) -> None:
        """Raises UserError unless the controller and those that train see the run's folder."""
        trainers = [actor for part, _, actor in self.hosts if part.controls]
        asked = [actor.trouble.remote() for actor in (self.controller, *trainers)]
        if troubles := {trouble for trouble in self._ray.get(asked) if trouble}:
            raise UserError("; ".join(sorted(troubles)))

    def run(self) -> None:
        """Runs the controller and the supervisors, until the controller has ended."""
        controlled = self.controller.serve.remote()
        supervised = [
            actor.supervise.remote(part, number, self.controller)
            for part, number, actor in self.hosts
        ]
        waiting = [controlled, *supervised]
        while controlled in waiting:
            ended, waiting = self._ray.wait(waiting, timeout=_ROUND_SECONDS)
            for call in ended:
                said = self._ray.get(call)
                if call != controlled and said:
                    self.controller.say.remote(said)


def refuse_too_much(ray: Any, parts: Sequence[Part], resource: str) -> None:
    """Raises UserError where the cluster, even when idle, has less than the parts take."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    there = sum((Counter(node) for node in nodes), Counter())
    wanted = Counter()
    for part in parts:
        for bundle in bundles(part, resource):
            wanted.update(bundle)
            if not any(all(node.get(k, 0) >= v for k, v in bundle.items()) for node in nodes):
                raise UserError(f"no host of the Ray cluster has {bundle}, for {part.fragment}")
        if part.apart and part.hosts > len(nodes):
            raise UserError(
                f"{part.fragment} is to have {part.hosts} hosts; the Ray cluster has {len(nodes)}"
            )
    for kind, amount in wanted.items():
        if amount > there[kind]:
            raise UserError(
                f"the plan takes {amount:g} {kind} in all; the Ray cluster has {there[kind]:g}"
            )


def main() -> int:
    """Runs the job; 0 when the run's folder tells how the run has ended."""
    ray: Any = importlib.import_module("ray")
    importlib.import_module("ray.util.scheduling_strategies")
    run = os.environ[FOLDER], os.environ[CONFIG]
    parts = [Part(**values) for values in json.loads(os.environ[PARTS])]
    resource = os.environ.get(RESOURCE, "")
    ray.init()
    try:
        refuse_too_much(ray, parts, resource)
        placed = _Placed(ray, run, parts, resource)
        signal.signal(signal.SIGTERM, lambda *_: placed.controller.stop.remote())
        placed.refuse_strangers()
        placed.run()
    except UserError as error:
        sys.stderr.write(f"srl: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
