"""The nodes of a training loop: what each takes and gives, how values reach it, and what pins it.

Tracing, shapes, the rules for plans, the cut and the drawings are derived from this table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

EdgeKind = Literal["call", "carry", "gather", "latest", "sum"]
"""The ways in which a value passes from node to node:

- call: within a step, from one node to the next;
- carry: from one step to the next;
- gather: the unrolls of all environments, to the node that learns from them;
- latest: the newest value that exists, replaced as a whole;
- sum: added up over all replicas of the node.
"""
Every = Literal["step", "update", "gradient step"]
"""The rate of an edge: each step of all environments, each update, each gradient step."""


@dataclass(frozen=True)
class Input:
    """A value that a node takes."""

    value: str
    """Such as timestep or decision."""
    kind: EdgeKind
    every: Every
    parts: tuple[str, ...] = ()
    """The parts of the value that the node reads; none for all of it."""


@dataclass(frozen=True)
class Node:
    """A function of the training loop."""

    takes: tuple[Input, ...]
    gives: tuple[str, ...]
    pinned_by: Literal["environments", "parameters", ""] = ""
    """The state that the node changes, and that has to be where it runs."""
    by_default: str = ""
    """The node that this one is with under a plan that does not place it."""


TABLE: dict[str, Node] = {
    "step": Node(
        takes=(Input("action", "call", "step"),),
        gives=("timestep",),
        pinned_by="environments",
    ),
    "act": Node(
        takes=(
            Input("policy", "latest", "update"),
            Input("timestep", "call", "step", ("observation", "terminated", "truncated")),
            Input("memory", "call", "step"),
        ),
        gives=("decision",),
    ),
    "teach": Node(
        takes=(Input("timestep", "call", "step", ("observation",)),),
        gives=("advice",),
        by_default="act",
    ),
    "collect": Node(
        takes=(
            Input("timestep", "call", "step"),
            Input("decision", "call", "step"),
            Input("advice", "call", "step"),
        ),
        gives=("row", "unroll"),
    ),
    "learn": Node(
        takes=(
            Input("unroll", "gather", "update"),
            Input("sums", "sum", "gradient step"),
        ),
        gives=("policy", "sums"),
        pinned_by="parameters",
    ),
}
"""The nodes, in the order in which data passes them."""

GIVEN_BY = {value: node for node, row in TABLE.items() for value in row.gives}
"""The node that gives each value."""
NODES = tuple(TABLE)
"""The nodes that a plan may place."""

_TAKEN = [taken for row in TABLE.values() for taken in row.takes]
_CALLED_FOR = {taken.value for taken in _TAKEN if taken.kind == "call"}
ANSWERING = tuple(
    node for node, row in TABLE.items() if not row.pinned_by and _CALLED_FOR.intersection(row.gives)
)
"""The nodes that are compiled calls within a step, which a worker may answer for others."""


def read_by(*nodes: str) -> tuple[str, ...]:
    """Gives the parts of a timestep, and the other values, that nodes read in each step."""
    taken = [taken for node in nodes for taken in TABLE[node].takes if taken.every == "step"]
    return tuple(dict.fromkeys(part for each in taken for part in each.parts or (each.value,)))
