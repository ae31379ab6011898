"""The cores and the memory that workers get on a cluster where their plan names none.

Measured (docs/scaling.md): an actor without JAX has 31 MB, a policy worker 100 to 160, a learner
150 to 500 and its replay. About twice as much is asked for: too little may cost a worker its life.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from srl.config.experiment import Experiment
from srl.core.types import Specs
from srl.dataflow.plan import Fragment, num_groups
from srl.loop.policy_set import PolicySet
from srl.pools import make_pool
from srl.pools.memory_check import Growth
from srl.streams.tickets import StalenessLimiter

if TYPE_CHECKING:
    from srl.launch.engines.engine import Part

EVALUATOR = "evaluator"
"""The name of the part that evaluates versions."""
MIB = 1 << 20
_LEARNER_CORES, _ACTING_CORES, _EVALUATOR_CORES = 8, 4, 2
_STEPPING, _ACTING, _LEARNING, _GPU = 64 * MIB, 256 * MIB, 1024 * MIB, 2048 * MIB
_STEP = 64 * MIB  # to which memory is rounded up
_STATES = 4  # the learner's, its update's result, what a checkpoint writes, what is published
_BATCHES = 2  # copies of what is learned from, besides those that unrolls are written into
_SAMPLE = 4  # environments whose growth is measured


@dataclass(frozen=True)
class Needs:
    """Bytes that each worker of a fragment takes, by fragment, and the evaluator."""

    memory: Mapping[str, int]
    unknown: str = ""
    """Why environments are not counted; empty if they are."""


@dataclass(frozen=True)
class _Sizes:
    """Bytes of an experiment's parts, for all environments."""

    first: int = 0
    """The first environment in a process, with the modules that it loads."""
    each: int = 0
    """Any further one."""
    state: int = 0
    replay: int = 0
    batches: int = 0


def needs_of(experiment: Experiment) -> Needs:
    """Estimates memory; makes a few environments unless the plan names the memory of all.

    Raises:
        UserError: If the algorithm does not suit the environment.
    """
    fragments = experiment.settled_plan.fragments
    sizes, unknown = _Sizes(), ""
    evaluates = experiment.evaluation is not None
    if evaluates or not all(fragment.memory for fragment in fragments.values()):
        known: list[Specs] = []
        try:
            sizes = _sizes(experiment, known.append)
        except Exception as error:  # whatever an environment raises: nodes may have what it needs
            for specs in known:
                PolicySet.of_experiment(experiment, specs)  # the algorithm does not suit it
            unknown = f"{type(error).__name__}: {error}"
    memory = {
        name: fragment.memory_bytes or _memory(fragment, experiment, sizes)
        for name, fragment in fragments.items()
    }
    memory[EVALUATOR] = _rounded(_ACTING + sizes.first + _SAMPLE * sizes.each + sizes.state)
    return Needs(memory, unknown)


def _sizes(experiment: Experiment, use_specs: Callable[[Specs], object]) -> _Sizes:
    from srl.loop.shapes import shapes_of

    plan = experiment.settled_plan
    groups = num_groups(plan, experiment)
    growth = Growth()
    with make_pool(experiment.env, 1) as pool:
        use_specs(pool.specs)
        timestep = pool.reset(seed=0)
        first, growth = growth.nbytes, Growth()
        with make_pool(experiment.env, _SAMPLE) as more:
            more.reset(seed=0)
            each = growth.nbytes // _SAMPLE
        shapes = shapes_of(experiment, pool.specs, timestep, groups)
    batch = sum(field.nbytes for unroll in shapes.unrolls.values() for field in unroll)
    blocks = StalenessLimiter(groups, experiment.max_staleness).batches
    batches = batch * (blocks + _BATCHES)
    return _Sizes(max(0, first), max(0, each), shapes.state_bytes, shapes.replay_bytes, batches)


def _memory(fragment: Fragment, experiment: Experiment, sizes: _Sizes) -> int:
    nodes, replicas = fragment.nodes, fragment.replicas
    count = _STEPPING
    if "step" in nodes:
        each = sizes.each * -(-experiment.num_envs // replicas)
        count += sizes.first * max(1, experiment.workers or 1) + each
    if fragment.answers:
        count += _ACTING + sizes.state
    if "learn" in nodes:
        count += (sizes.replay + sizes.batches) // replicas
        count += _LEARNING + _STATES * sizes.state
    return _rounded(count + (_GPU if fragment.gpus else 0))


def _rounded(count: float) -> int:
    return -(-int(count) // _STEP) * _STEP


def usual_cores(fragment: Fragment | None) -> int:
    """The cores of a worker whose plan names none, on a large node; of the evaluator for None."""
    if fragment is None:
        return _EVALUATOR_CORES
    if "learn" in fragment.nodes:
        return _LEARNER_CORES
    return _ACTING_CORES if fragment.answers and "step" not in fragment.nodes else 1


def fitted(parts: Sequence[Part], node: int, all_cores: int, *, whole: bool) -> list[Part]:
    """The parts with cores as nodes have them, where the plan names none.

    No host takes more than half of a node, or less where all would not fit at a time.

    Args:
        parts: With the cores that they would have on large nodes.
        node: Cores of the smallest node.
        all_cores: Cores of all nodes together.
        whole: Whether a host that is to be apart has a node for itself.
    """
    limit = max(1, node // 2)
    while True:
        sized = [_sized(part, node if whole and part.apart else limit, whole) for part in parts]
        if limit == 1 or sum(part.hosts * part.cores for part in sized) <= all_cores:
            return sized
        limit //= 2


def _sized(part: Part, limit: int, whole: bool) -> Part:
    if not part.least_cores:
        return part
    cores = limit if whole and part.apart else min(limit, part.cores)
    return replace(part, cores=max(part.least_cores, cores))
