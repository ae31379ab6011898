"""Which cores and GPUs each worker of a plan gets on this machine."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from srl.dataflow.plan import Fragment, Plan
from srl.pools.memory_check import MEMORY
from srl.system.gpus import memory_variable

Worker = tuple[str, int]
"""Fragment and replica."""
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS")
_MEMORY = 0.9  # of a GPU, that the workers on it take together


@dataclass(frozen=True)
class Share:
    """What one worker gets."""

    cores: tuple[int, ...]
    """The cores to stay on; none where there are fewer than workers ask for, and all go where there
    is room."""
    environment: Mapping[str, str]
    """Variables that keep its libraries to its share."""


def shares(
    plan: Plan, cores: Sequence[int], gpus: Sequence[str], memory: int
) -> dict[Worker, Share]:
    """Divides a machine among the workers of a plan.

    Args:
        plan: Its fragments have the resources that each of their replicas asks for.
        cores: Numbers of the machine's.
        gpus: Names of the machine's, as CUDA_VISIBLE_DEVICES takes them.
        memory: Bytes that are free before any worker is started.
    """
    workers = [(name, k) for name, f in plan.fragments.items() for k in range(f.replicas)]
    own_cores = _cores(plan, workers, cores)
    own_gpus = _gpus(plan, workers, gpus)
    steppers = [worker for worker in workers if "step" in plan.fragments[worker[0]].placed]
    result = {}
    for worker in workers:
        threads = len(own_cores[worker]) or max(1, len(cores) // len(workers))
        environment = dict.fromkeys(_THREADS, str(threads)) | own_gpus[worker]
        if worker in steppers:
            environment[MEMORY] = str(memory // len(steppers))
        result[worker] = Share(own_cores[worker], environment)
    return result


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
    nodes = fragment.placed
    return "update" in nodes or ("act" in nodes and "step" not in nodes)
