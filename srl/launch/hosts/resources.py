"""Cores and GPUs of each worker of a plan on this machine."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from srl.dataflow.nodes import ANSWERING
from srl.dataflow.plan import Fragment, Plan
from srl.pools.memory_check import MEMORY
from srl.system.cores import SHARE
from srl.system.gpus import memory_variable
from srl.system.open_files import expect_room

Worker = tuple[str, int]
"""Fragment and replica."""
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS")
_MEMORY = 0.9  # of a GPU, that the workers on it take together


@dataclass(frozen=True)
class Share:
    """The resources of one worker."""

    cores: tuple[int, ...]
    """The cores to stay on; none where workers go where there is room, as those of a plan that
    asks for no cores, or for more than there are."""
    environment: Mapping[str, str]
    """Variables that keep its libraries to its share."""


def expect_open_files(plan: Plan, groups: int, fragments: Sequence[str] = ()) -> None:
    """Raises UserError where a process of a plan would have more files open than it may.

    What each stream takes at either end was counted in runs (/proc/PID/fd). Without the fragments
    that run on this host, all run here, and so does the controller.
    """
    counts = {name: _open_files(plan, groups, name) for name in fragments or plan.fragments}
    if not fragments:
        counts["the controller"] = 3 * plan.processes
    name, count = max(counts.items(), key=lambda item: item[1])
    who = f"under the plan {plan.name!r}, {name} would"
    expect_room(who, count, "take fewer replicas or groups")


def _open_files(plan: Plan, groups: int, name: str) -> int:
    """The files and sockets that a worker has open for the others, as far as they grow with these.

    Unix sockets, and shared memory; between hosts it is the sockets alone.
    """
    fragment = plan.fragments[name]
    nodes, own = fragment.nodes, math.ceil(groups / fragment.replicas)
    if "step" in nodes:
        return own * (1 + 4 * len({plan.home(node) for node in ANSWERING} - {name}))
    sends = "collect" in nodes and "learn" not in nodes  # unrolls, to a learner
    return own * ((8 if sends else 3) if fragment.answers else 1)


def shares(
    plan: Plan,
    cores: Sequence[int],
    gpus: Sequence[str],
    memory: int,
    *,
    pinned: bool | None = None,
) -> dict[Worker, Share]:
    """Divides a machine among the workers of a plan.

    Args:
        plan: Its fragments have the resources that each of their replicas asks for.
        cores: Numbers of the machine's.
        gpus: Names of the machine's, as CUDA_VISIBLE_DEVICES takes them.
        memory: Bytes that are free before any worker is started.
        pinned: Whether each worker stays on cores; by default as `binds` tells.
    """
    pinned = binds(plan) if pinned is None else pinned
    workers = [(name, k) for name, f in plan.fragments.items() for k in range(f.replicas)]
    own_cores = _cores(plan, workers, cores) if pinned else dict.fromkeys(workers, ())
    own_gpus = _gpus(plan, workers, gpus)
    steppers = [worker for worker in workers if "step" in plan.fragments[worker[0]].nodes]
    result = {}
    for worker in workers:
        threads = len(own_cores[worker]) or max(1, len(cores) // len(workers))
        environment = dict.fromkeys(_THREADS, str(threads)) | own_gpus[worker]
        if not own_cores[worker]:
            environment[SHARE] = str(max(1, len(cores) // plan.fragments[worker[0]].replicas))
        if worker in steppers:
            environment[MEMORY] = str(memory // len(steppers))
        result[worker] = Share(own_cores[worker], environment)
    return result


def binds(plan: Plan) -> bool:
    """Tells if workers stay on cores: a plan asks for some, or all its workers are whole loops.

    Parts of the loop mostly wait for one another, and on cores of their own leave others idle;
    whole loops compute at the same time (docs/tuning.md).
    """
    return len(plan.fragments) == 1 or any(f.cores for f in plan.fragments.values())


def _cores(plan: Plan, workers: list[Worker], cores: Sequence[int]) -> dict[Worker, tuple]:
    """Neighbouring cores for each worker; none for any if there are too few."""
    wanted = {w: math.ceil(plan.fragments[w[0]].cores) for w in workers}
    sharing = [w for w in workers if not wanted[w]]
    left = len(cores) - sum(wanted.values())
    if left < len(sharing):
        return dict.fromkeys(workers, ())
    for k, worker in enumerate(reversed(sharing)):  # learners come last and take what is over
        wanted[worker] = left // len(sharing) + (k < left % len(sharing))
    result, used = {}, 0
    for worker in workers:
        result[worker] = tuple(cores[used : used + wanted[worker]])
        used += wanted[worker]
    return result


def _gpus(plan: Plan, workers: list[Worker], gpus: Sequence[str]) -> dict[Worker, dict[str, str]]:
    """Variables for each worker; where no fragment asks, those that learn or act alone share."""
    wanted = {w: plan.fragments[w[0]].gpus for w in workers}
    if not any(wanted.values()):
        sharing = [w for w in workers if _likes_gpus(plan.fragments[w[0]])]
        wanted |= dict.fromkeys(sharing, len(gpus) / max(len(sharing), 1))
    chosen: dict[Worker, list[str]] = {}
    taken = dict.fromkeys(gpus, 0.0)
    for worker in workers:
        count = wanted[worker] if gpus else 0
        emptiest = sorted(gpus, key=lambda gpu: taken[gpu])
        chosen[worker] = emptiest[: max(1, int(count))] if count else []
        for gpu in chosen[worker]:
            taken[gpu] += min(count, 1.0)
    return {worker: _variables(own, wanted[worker], taken) for worker, own in chosen.items()}


def _variables(gpus: Sequence[str], wanted: float, taken: Mapping[str, float]) -> dict[str, str]:
    """Variables that keep a worker to its GPUs, and to its share of the memory of the fullest.

    Args:
        gpus: The worker's.
        wanted: GPUs that it asks for; a fraction of one is a share of it.
        taken: What all workers ask of each GPU, which may be more than there is.
    """
    if not gpus:
        return {"JAX_PLATFORMS": "cpu"}
    variables = {"CUDA_VISIBLE_DEVICES": ",".join(gpus)}
    share, fullest = min(wanted, 1.0), max(taken[gpu] for gpu in gpus)
    if fullest > share or share < 1:
        variables[memory_variable()] = f"{_MEMORY * share / max(fullest, 1.0):.3f}"
    return variables


def _likes_gpus(fragment: Fragment) -> bool:
    nodes = fragment.nodes
    return "learn" in nodes or (fragment.answers and "step" not in nodes)
