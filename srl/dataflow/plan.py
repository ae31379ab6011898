"""Plans: which nodes of the training loop run together, and how many times over.

    plan = Plan("mine", {"actors": Fragment(("step", "act", "collect"), replicas=4),
                         "learner": Fragment(("learn",), gpus=1)})

A plan names the loop's nodes and never an algorithm, so it serves them all. Importing this loads
nothing: experiment files do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from srl.core.backends import backend_of
from srl.core.errors import PlanError, expect, expect_number, nearest
from srl.core.settings import AtLeastOne, Count, NotNegative, Settings, expect_settings
from srl.dataflow.nodes import ANSWERING, NODES, TABLE

if TYPE_CHECKING:
    from srl.config.experiment import Experiment

_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?([kKMGT])i?B?")
_UNITS = {unit: 1024**power for power, unit in enumerate("KMGT", start=1)}


@dataclass(frozen=True)
class Fragment(Settings):
    """Nodes that run together in one worker."""

    nodes: tuple[str, ...]
    """Some of step, act, collect and learn, and of teach where the loop has a teacher."""
    replicas: AtLeastOne = 1
    """Workers, each with these nodes for a part of the environments."""
    cores: NotNegative = 0
    """Cores of each replica; 0 shares the machine's evenly, and on a cluster takes the usual number
    for such workers."""
    gpus: NotNegative = 0
    """GPUs of each replica; a fraction shares one."""
    memory: str = ""
    """Memory of each replica on a cluster, such as 2GB or 500MB; by default an estimate."""
    hosts: Count = 0
    """Hosts for the replicas on a cluster, with equally many on each; 0 takes any with room."""
    compiled: bool | None = None
    """Step native environments, or those in JAX, from inside a compiled program: the whole loop if
    one replica has all nodes, otherwise an unroll. By default actors that act for themselves on the
    CPU do so with native environments, and in one process with environments in JAX."""
    batch: Count = 0
    """Groups of environments in one call of `act`, for replicas that act for other workers, and for
    actors whose environments step as they get ready; 0 takes half of those that a replica serves.
    Smaller batches are padded to this size."""
    deadline: NotNegative = 0.001
    """Longest wait of a request for a full batch, in seconds."""

    @property
    def answers(self) -> bool:
        """True if it has compiled calls of a step, for its own environments or other workers'."""
        return not set(self.nodes).isdisjoint(ANSWERING)

    @property
    def memory_bytes(self) -> int:
        """Memory of each replica in bytes; 0 leaves it to an estimate.

        Raises:
            ValueError: If `memory` is no size.
        """
        if not self.memory:
            return 0
        found = _SIZE.fullmatch(self.memory.strip())
        if found is None:
            raise ValueError(f"{self.memory!r} is no size")
        return int(float(found[1]) * _UNITS[found[2].upper()])


@dataclass(frozen=True)
class Plan(Settings):
    """A partition of the loop's nodes into fragments."""

    name: str
    """The name in reports."""
    fragments: Mapping[str, Fragment]
    """The fragments by name, such as actors or learner."""
    one_process: bool = False
    """Workers are threads of the trainer's process."""

    def __hash__(self) -> int:
        return hash((self.name, frozenset(self.fragments.items()), self.one_process))

    def home(self, node: str) -> str:
        """The name of the fragment that holds a node.

        Raises:
            PlanError: If none does.
        """
        default = TABLE[node].by_default if node in TABLE else ""
        for placed in (node, default):
            for name, fragment in self.fragments.items():
                if placed in fragment.nodes:
                    return name
        nodes = [n for fragment in self.fragments.values() for n in fragment.nodes]
        raise PlanError(
            f"node {node!r} is in no fragment of the plan {self.name!r}, which places "
            f"{', '.join(nodes) or 'none'}; add it to one"
        )

    def fragment(self, node: str) -> Fragment:
        """The fragment that holds a node."""
        return self.fragments[self.home(node)]

    def nodes_in(self, name: str, nodes: Iterable[str]) -> tuple[str, ...]:
        """Gives those of a loop's nodes that a fragment holds."""
        return tuple(node for node in nodes if self.home(node) == name)

    @property
    def processes(self) -> int:
        """Processes that train: one, or one for each replica of each fragment."""
        replicas = sum(fragment.replicas for fragment in self.fragments.values())
        return 1 if self.one_process else replicas

    @property
    def is_one_program(self) -> bool:
        """True if the whole loop is one compiled program."""
        first, *others = self.fragments.values()
        return bool(first.compiled) and first.replicas == 1 and not others

    def validate(self, nodes: Iterable[str] = NODES) -> None:
        """Raises PlanError where the plan is no partition of these nodes.

        Whether it can run a loop follows from the loop's edges: see `srl.dataflow.rules`.
        """
        _validate_values(self)
        _validate_places(self, tuple(nodes))


def steps_as_ready(plan: Plan, experiment: Experiment) -> bool:
    """Tells if actors step each environment as it gets ready, as a group of one.

    So do actors that act for themselves, on parameters that may be stale, if each environment has a
    worker process. Otherwise a step of a group lasts as long as its slowest environment. A loop of
    several unrolls, opponents, lessons and a teacher's advice go with a group's step.
    """
    actors, num_envs = plan.fragment("step"), experiment.num_envs
    each = num_envs // actors.replicas
    return (
        experiment.max_staleness != 0
        and experiment.groups in (0, num_envs)
        and 1 < each <= (experiment.workers or 0)
        and num_envs % actors.replicas == 0
        and {"workers", "batch_size"} <= {*backend_of(experiment.env).takes}
        and plan.home("act") == plan.home("collect") == plan.home("step") != plan.home("learn")
        and experiment.self_play is None
        and not experiment.curriculum
        and len(experiment.graph.unrolls) == 1
        and "teach" not in experiment.graph.nodes
    )


def num_groups(plan: Plan, experiment: Experiment) -> int:
    """The number of groups of neighbouring environments that are stepped and acted for together.

    By default one for each worker that steps; two where a node that it calls in each step is
    elsewhere, so that a worker steps one group while it waits for the answer to the other. A single
    worker that others act for has one: both mostly share few cores (docs/tuning.md). One for each
    environment, where these are stepped as they get ready.

    Raises:
        PlanError: If the environments cannot be divided so.
    """
    workers, num_envs = plan.fragment("step").replicas, experiment.num_envs
    count = experiment.groups
    if steps_as_ready(plan, experiment):
        count = num_envs
    if not count:
        away = {node for node in ANSWERING if plan.home(node) != plan.home("step")}
        halves = bool(away) and (workers > 1 or "act" not in away)
        count = 2 * workers if halves and num_envs % (2 * workers) == 0 else workers
    if num_envs % count:
        raise PlanError(
            f"{num_envs} environments cannot be divided into {count} equal groups; "
            f"give num_envs={_next_multiple(num_envs, count)}, or other groups or replicas"
        )
    for node in ("step", "collect", "learn"):
        replicas = plan.fragment(node).replicas
        if count % replicas:
            raise PlanError(
                f"{count} groups cannot be divided among the {replicas} replicas of "
                f"{plan.home(node)}; give groups={_next_multiple(count, replicas)}"
            )
    return count


def shortage(plan: Plan, cores: float, gpus: float) -> str:
    """Gives what a plan asks for beyond the cores and GPUs that there are; nothing if they do."""
    fragments = plan.fragments.values()
    asked = {
        "cores": sum(fragment.replicas * fragment.cores for fragment in fragments),
        "GPUs": sum(fragment.replicas * fragment.gpus for fragment in fragments),
    }
    there = {"cores": cores, "GPUs": gpus}
    return "; ".join(
        f"the plan {plan.name!r} asks for {asked[kind]:g} {kind}, and there are {there[kind]:g}"
        for kind in asked
        if asked[kind] > there[kind]
    )


def _next_multiple(number: int, factor: int) -> int:
    return -(-number // factor) * factor


MOST_LEARNERS = 256
"""The largest number of replicas that learn."""


def _validate_values(plan: Plan) -> None:
    good = isinstance(plan.name, str) and bool(plan.name)
    expect(good, "plan.name", plan.name, "a word for people and reports")
    good = isinstance(plan.fragments, Mapping) and bool(plan.fragments)
    expect(good, "plan.fragments", plan.fragments, "fragments by name")
    for name, fragment in plan.fragments.items():
        where = f"plan.{name}"
        good = isinstance(name, str) and name.isidentifier()
        expect(good, "a fragment's name", name, "a word of letters, digits and '_'")
        expect(isinstance(fragment, Fragment), where, fragment, "a Fragment")
        good = isinstance(fragment.nodes, tuple) and bool(fragment.nodes)
        expect(good, f"{where}.nodes", fragment.nodes, 'a tuple of nodes, such as ("step", "act")')
        expect_settings(where, fragment)
        if "learn" in fragment.nodes:
            expect_number(f"{where}.replicas", fragment.replicas, 1, MOST_LEARNERS)
        good = not fragment.memory or _SIZE.fullmatch(fragment.memory.strip())
        expect(good, f"{where}.memory", fragment.memory, "a size, such as 2GB or 500MB")
        even = fragment.hosts == 0 or fragment.replicas % fragment.hosts == 0
        each = f"a number that divides its {fragment.replicas} replicas"
        expect(even, f"{where}.hosts", fragment.hosts, each)


def _validate_places(plan: Plan, nodes: tuple[str, ...]) -> None:
    """Every node is in one fragment."""
    found: dict[str, str] = {}
    for name, fragment in plan.fragments.items():
        for node in fragment.nodes:
            if node not in nodes:
                raise PlanError(f"fragment {name!r} has the node {node!r}; {_nearest(node, nodes)}")
            if node in found:
                both = f"fragments {found[node]!r} and {name!r}"
                places = f"fragment {name!r} twice" if found[node] == name else both
                raise PlanError(f"node {node!r} is in {places}; leave it in one place")
            found[node] = name
    for node in nodes:
        plan.home(node)


def _nearest(node: str, nodes: tuple[str, ...]) -> str:
    if node == "teach":
        return "the loop has no teacher: give --teacher RUN_DIR, or leave the node out of the plan"
    if node in NODES:
        return f"the loop never calls it, only {', '.join(nodes)}; leave it out of the plan"
    return nearest(node, nodes)
