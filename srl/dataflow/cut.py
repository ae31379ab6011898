"""The cut: an edge whose ends lie in different fragments becomes a stream."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from srl.dataflow.graph import Edge, Field, Graph
from srl.dataflow.nodes import EdgeKind
from srl.dataflow.plan import Plan
from srl.dataflow.rules import check

StreamKind = Literal["inference", "sample", "parameters", "gradients"]
Transport = Literal["reference", "shared memory", "ZeroMQ", "collective"]

_KINDS: dict[EdgeKind, StreamKind] = {
    "call": "inference",
    "carry": "inference",
    "gather": "sample",
    "latest": "parameters",
    "sum": "gradients",
}


@dataclass(frozen=True)
class Stream:
    """Values that cross from one fragment to another, or among the replicas of one.

    Besides its fields, the header of a message names the group, its clock and the policy's version.
    """

    kind: StreamKind
    source: str
    """The fragment that sends; of an inference stream, the one that asks."""
    target: str
    """The fragment that receives; of an inference stream, the one that answers."""
    edges: tuple[Edge, ...]
    """The cut edges that it stands for."""
    request: tuple[Field, ...]
    """The fields that cross from source to target."""
    reply: tuple[Field, ...]
    """The fields of the reply; only an inference stream has any."""
    transport: Transport
    bytes_per_env_step: float
    """Both ways, for one step of one environment; 0 where shapes are not known."""

    @property
    def name(self) -> str:
        """The name among the plan's streams; a fragment may have calls answered by several."""
        return call_stream(self.target) if self.kind == "inference" else self.kind


def call_stream(answering: str) -> str:
    """Gives the name of the inference stream to a fragment that answers."""
    return f"inference by {answering}"


def cut(graph: Graph, plan: Plan) -> tuple[Stream, ...]:
    """Gives the streams that a plan needs: those of exactly the edges that it cuts.

    Raises:
        PlanError: If the plan cannot work for this loop.
    """
    check(graph, plan)
    groups: dict[tuple[StreamKind, str, str], list[Edge]] = {}
    for edge in routes(graph):
        ends = plan.home(edge.source), plan.home(edge.target)
        collective = edge.kind == "sum" and plan.fragments[ends[1]].replicas > 1
        if ends[0] == ends[1] and not collective:
            continue
        kind = _KINDS[edge.kind]
        if kind == "inference" and ends[1] == plan.home("step"):
            ends = ends[1], ends[0]  # an answer
        groups.setdefault((kind, *ends), []).append(edge)
    return tuple(_stream(graph, plan, key, edges) for key, edges in groups.items())


def routes(graph: Graph) -> tuple[Edge, ...]:
    """The edges as workers lay them.

    They are the graph's own, but for one: recurrent memory is kept where the unroll is written,
    goes with each request and comes back with the decision, and so reaches the next `act`.
    """
    return tuple(
        replace(edge, source="collect") if (edge.name, edge.kind) == ("memory", "carry") else edge
        for edge in graph.edges
    )


def _stream(
    graph: Graph,
    plan: Plan,
    key: tuple[StreamKind, str, str],
    edges: list[Edge],
) -> Stream:
    kind, source, target = key
    back = [edge for edge in edges if plan.home(edge.source) == target] if source != target else []
    there = [edge for edge in edges if edge not in back]
    request, reply = _union(there), _union(back)
    # Every replica gives sums of its own; everything else is divided among them, or sent once.
    senders = plan.fragments[source].replicas if kind == "gradients" else 1
    # What crosses at a time crosses together, each field once; but unrolls one after the other.
    together = there if kind == "sample" else [replace(there[0], fields=request + reply)]
    return Stream(
        kind,
        source,
        target,
        tuple(edges),
        request,
        reply,
        _transport(plan, source, target),
        senders * sum(map(graph.bytes_per_env_step, together)),
    )


def _union(edges: list[Edge]) -> tuple[Field, ...]:
    return tuple(dict.fromkeys(field for edge in edges for field in edge.fields))


def _transport(plan: Plan, source: str, target: str) -> Transport:
    if source == target:
        return "collective"
    if plan.one_process:
        return "reference"
    # Fragments with hosts have whole hosts of their own, where there is a cluster.
    apart = plan.fragments[source].hosts or plan.fragments[target].hosts
    return "ZeroMQ" if apart else "shared memory"
