"""The texts and numbers that a picture of a plan shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from srl.core.console.number_text import number_text
from srl.dataflow.cut import Stream, cut, routes
from srl.dataflow.graph import Edge, Field, Graph
from srl.dataflow.plan import Fragment, Plan
from srl.evaluation.background import Beside
from srl.launch.engines.engine import parts_of
from srl.streams.tickets import UNBOUNDED_AHEAD, StalenessLimiter


@dataclass(frozen=True)
class Scene:
    """A loop under a plan."""

    title: str
    """The experiment's name."""
    graph: Graph
    plan: Plan
    groups: int
    max_staleness: int | None
    fps: float
    """Environment steps a second that rates are for."""
    warning: str = ""
    """The resources that the machine lacks; empty if none."""
    beside: Mapping[str, Beside] = field(default_factory=dict)
    """The processes beside those of the plan, by name."""

    @property
    def streams(self) -> tuple[Stream, ...]:
        """The streams of the plan."""
        return cut(self.graph, self.plan)

    def inside(self, name: str) -> list[Edge]:
        """The edges within a fragment that carry anything."""
        return [
            edge
            for edge in routes(self.graph)
            if edge.fields and {self.plan.home(edge.source), self.plan.home(edge.target)} == {name}
        ]

    def nodes(self, fragment: Fragment) -> list[str]:
        """The nodes of a fragment in the order in which data passes them."""
        return [node for node in self.graph.nodes if self.plan.fragment(node) is fragment]

    @property
    def blocks(self) -> int:
        """Batches that memory is held for."""
        return StalenessLimiter(self.groups, self.max_staleness).batches

    @property
    def headline(self) -> list[str]:
        """The division of the environments, and the most that acting may lag behind."""
        graph = self.graph
        block = next((e.nbytes for e in graph.edges if e.kind == "gather"), 0)
        parts = f"in {self.groups} groups" if self.groups > 1 else "in one group"
        none = f"none: unrolls begin up to {UNBOUNDED_AHEAD} updates ahead"
        bound = none if self.max_staleness is None else str(self.max_staleness)
        return [
            f"{graph.num_envs} environments {parts}",
            f"{graph.steps} steps an update",
            f"max_staleness {bound}",
            f"{self.blocks} block{'s' if self.blocks > 1 else ''} of {nbytes(block)}",
        ]

    def held(self, fragment: Fragment) -> dict[str, int]:
        """Bytes that each replica of a fragment keeps from one update to the next, by what."""
        graph, replicas = self.graph, fragment.replicas
        held = {}
        if "learn" in fragment.nodes:
            held["state"] = graph.state_bytes
            if graph.replay_bytes:
                held["replay"] = graph.replay_bytes // replicas
        return held

    def holdings(self, fragment: Fragment) -> str:
        """The same as a text; nothing where nothing is kept."""
        parts = [f"{what} of {nbytes(size)}" for what, size in self.held(fragment).items()]
        return f"holds {', '.join(parts)}" if parts else ""

    def resources(self, fragment: Fragment) -> str:
        """Describes each replica of a fragment and its resources."""
        whole = self.plan.is_one_program
        parts = ["one compiled program" if whole else "compiled unrolls"] * bool(fragment.compiled)
        if fragment.cores:
            parts.append(f"{fragment.cores:g} cores")
        elif not whole:
            parts.append("an even share of the cores")
        if fragment.gpus:
            parts.append(f"{fragment.gpus:g} GPU")
        return ", ".join(parts)

    @property
    def cores_on_a_cluster(self) -> dict[str, float]:
        """Cores of each replica on a cluster of large nodes, by fragment; none in one process."""
        parts = [] if self.plan.one_process else parts_of(self.plan)
        return {part.fragment: part.cores / part.slots for part in parts}

    def rates(self, stream: Stream) -> tuple[str, str]:
        """Bytes for each step of an environment, and each second."""
        per_step = stream.bytes_per_env_step
        return nbytes(per_step), f"{nbytes(per_step * self.fps)}/s"

    def json(self) -> dict[str, Any]:
        """Everything, as values that JSON can hold."""
        graph, plan = self.graph, self.plan
        return {
            "experiment": self.title,
            "plan": plan.name,
            "one_process": plan.one_process,
            "num_envs": graph.num_envs,
            "groups": self.groups,
            "unroll_length": graph.rows,
            "gradient_steps": graph.gradient_steps,
            "max_staleness": self.max_staleness,
            "blocks": self.blocks,
            "warning": self.warning,
            "assumed_fps": self.fps,
            "fragments": {
                name: {
                    "nodes": self.nodes(fragment),
                    "replicas": fragment.replicas,
                    "cores": fragment.cores,
                    "gpus": fragment.gpus,
                    "compiled": bool(fragment.compiled),
                    "holds": self.held(fragment),
                }
                for name, fragment in plan.fragments.items()
            },
            "cores_on_a_cluster": self.cores_on_a_cluster,
            "beside": {name: asdict(process) for name, process in self.beside.items()},
            "edges": [
                {
                    "source": edge.source,
                    "target": edge.target,
                    "kind": edge.kind,
                    "name": edge.name,
                    "every": edge.every,
                    "times": edge.times,
                    "fields": [_field(field) for field in edge.fields],
                    "bytes_per_env_step": graph.bytes_per_env_step(edge),
                }
                for edge in routes(graph)
            ],
            "streams": [
                {
                    "kind": stream.kind,
                    "source": stream.source,
                    "target": stream.target,
                    "transport": stream.transport,
                    "request": [_field(field) for field in stream.request],
                    "reply": [_field(field) for field in stream.reply],
                    "bytes_per_env_step": stream.bytes_per_env_step,
                    "bytes_per_second": stream.bytes_per_env_step * self.fps,
                }
                for stream in self.streams
            ],
        }


def _field(field: Field) -> dict[str, Any]:
    return {"name": field.name, "dtype": field.dtype, "shape": list(field.shape)}


def places(process: Beside) -> list[str]:
    """Gives the places of a background process: on this machine, on Slurm and on Ray."""
    here = f"here: a process with {100 * process.share:.3g} % of all cores' time"
    if process.own_core:
        return [
            here,
            "Slurm: a separate job, with a core",
            "Ray: a separate placement, with a core",
        ]
    return [here, "Slurm, Ray: on the controller's host"]


def names(fields: tuple[Field, ...]) -> list[str]:
    """The names of what crosses, those of a nested value once."""
    return list(dict.fromkeys(field.name.split("/")[0] for field in fields))


def nbytes(count: float) -> str:
    """A number of bytes with a decimal unit."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5 or unit == "GB":
            break
        count /= 1000
    return f"{number_text(count)} {unit}"
