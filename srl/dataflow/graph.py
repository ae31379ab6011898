"""The graph of a training loop: its nodes, and the edges along which values flow."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from srl.core.types import Decision, Timestep, Unroll
from srl.dataflow.nodes import GIVEN_BY, EdgeKind, Every


@dataclass(frozen=True)
class Field:
    """One array among what flows."""

    name: str
    """Such as reward, or observation/position for a part of a nested one."""
    dtype: str = ""
    """NumPy's name of the type; empty where it is not known."""
    shape: tuple[int, ...] = ()
    """The shape, for all environments of the run."""

    @property
    def nbytes(self) -> int:
        """Size in bytes; 0 where it is not known."""
        return np.dtype(self.dtype).itemsize * math.prod(self.shape) if self.dtype else 0


@dataclass(frozen=True)
class Edge:
    """A value that one node gives and another takes."""

    source: str
    """The node that gives it."""
    target: str
    """The node that takes it."""
    kind: EdgeKind
    name: str
    """The value that flows: timestep, action, decision, memory, unroll, policy or sums."""
    fields: tuple[Field, ...]
    """The arrays of the value that the target reads."""
    every: Every
    times: int = 1
    """Crossings in one pass of the loop: two calls of `learn` cross twice as often as one."""

    @property
    def nbytes(self) -> int:
        """Bytes each time, for all environments of the run."""
        return sum(field.nbytes for field in self.fields)


class Unrolled(NamedTuple):
    """An unroll of a pass of the loop."""

    length: int
    """The number of its steps."""
    learns: int
    """Calls of `learn` before it in the pass, each of which makes a version of the policy."""
    calls: tuple[str, ...] = ()
    """The nodes that each step calls, in order."""


@dataclass(frozen=True)
class Graph:
    """A training loop as a value: what it calls, how often, and what flows between the nodes."""

    calls: tuple[tuple[str, int], ...]
    """The nodes that the loop calls, and how often in one pass."""
    edges: tuple[Edge, ...]
    unrolls: tuple[Unrolled, ...] = ()
    """The unrolls of a pass, in order."""
    learns: int = 0
    """Calls of `learn` in a pass, and so versions of the policy that it makes."""
    num_envs: int = 0
    """Environments that the shapes are for; 0 where shapes are not known."""
    gradient_steps: int = 1
    """Gradient steps of one `learn`."""
    action_repeat: int = 1
    """Steps that an environment takes with each action."""
    state_bytes: int = 0
    """The size of all that learning changes."""
    replay_bytes: int = 0
    """The size of what is remembered, of all slots of the run."""

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes that the loop calls, in the order in which data passes them."""
        return tuple(node for node, _ in self.calls)

    @property
    def steps(self) -> int:
        """Steps of each environment in one pass."""
        return dict(self.calls).get("step", 0)

    @property
    def rows(self) -> int:
        """Rows of all unrolls of one pass."""
        return sum(unrolled.length for unrolled in self.unrolls)

    def bytes_per_env_step(self, edge: Edge) -> float:
        """Bytes along an edge for one step of one environment; 0 where shapes are not known."""
        steps = self.num_envs * self.steps
        return edge.nbytes * edge.times / steps if steps else 0.0


def _fields_of(value: str, fields: Iterable[Field]) -> tuple[Field, ...]:
    """Leaves out the fields of other nodes' values, such as a teacher's advice in a decision."""
    others = GIVEN_BY.keys() - {value}
    return tuple(field for field in fields if field.name.split("/")[0] not in others)


_UNROLL = _fields_of("unroll", map(Field, Unroll._fields))


@dataclass(frozen=True)
class Shapes:
    """The arrays of a loop's values, for all environments of a run."""

    timestep: tuple[Field, ...]
    decision: tuple[Field, ...]
    """The action, its log-probability and the next memory, and a teacher's advice."""
    policy: tuple[Field, ...]
    """The parameters that acting needs, of all policies."""
    sums: tuple[Field, ...]
    """The sums over slots of one gradient step, of all policies."""
    unrolls: Mapping[int, tuple[Field, ...]] = field(default_factory=dict)
    """The arrays of unrolls of each length; of other lengths only the names are known."""
    num_envs: int = 0
    gradient_steps: int = 1
    state_bytes: int = 0
    replay_bytes: int = 0

    def part(self, name: str, length: int = 0) -> tuple[Field, ...]:
        """The fields of what is called so: a value, or a part of a timestep or a decision.

        Args:
            name: Such as timestep or action.
            length: Of an unroll.
        """
        if name == "unroll":
            return self.unrolls.get(length, _UNROLL)
        values: Mapping[str, Any] = vars(self)
        if name in values:
            return _fields_of(name, values[name])
        fields = self.timestep + self.decision
        return tuple(f for f in fields if f.name.split("/")[0] == name)


UNKNOWN = Shapes(
    timestep=tuple(map(Field, Timestep._fields)),
    decision=tuple(map(Field, Decision._fields)),
    policy=(Field("policy"),),
    sums=(Field("sums"),),
)
"""The names alone, where sizes are not needed."""
