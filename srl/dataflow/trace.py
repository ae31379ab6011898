"""Gives a training loop's graph by running it once on values that are not there yet."""

from __future__ import annotations

from typing import Any, Protocol

from srl.dataflow.graph import UNKNOWN, Edge, Every, Graph, Kind, Shapes
from srl.dataflow.loop import Interact, Loop
from srl.dataflow.plan import NODES
from srl.errors import PlanError


class Looping(Protocol):
    """An algorithm, as far as tracing needs it."""

    def loop(self, run: Loop, /) -> None:
        """The training loop."""


def trace(algorithm: Looping, shapes: Shapes = UNKNOWN) -> Graph:
    """Gives the graph of an algorithm's loop.

    Args:
        algorithm: Whose `loop` is run once; it calls nodes and does nothing else with what they
            give.
        shapes: What the values are made of; by default edges carry names alone.

    Raises:
        PlanError: If the loop looks into a value, or gives a node what no node gave.
    """
    tracer = _Tracer(shapes)
    algorithm.loop(tracer)
    nodes = tuple(node for node in NODES if node in tracer.nodes)
    sizes = (shapes.num_envs, shapes.unroll_length, shapes.rounds)
    return Graph(nodes, tuple(dict.fromkeys(tracer.edges)), *sizes)


class Value:
    """Stands for what a node will give: it can be handed on, and its parts taken."""

    def __init__(self, kind: str, source: str, parts: tuple[str, ...] = (), name: str = "") -> None:
        """Of a kind such as decision, from the node `source`."""
        self._kind, self._source, self._parts, self._name = kind, source, parts, name or kind

    def __getattr__(self, part: str) -> Value:
        if part.startswith("__"):
            raise AttributeError(part)
        if part not in self._parts:
            has = f"it has {', '.join(self._parts)}" if self._parts else "it has no parts"
            raise PlanError(f"the loop takes `{part}` of `{self._name}`; {has}")
        return Value(part, self._source, name=f"{self._name}.{part}")

    def __repr__(self) -> str:
        return f"`{self._name}`"

    __hash__ = object.__hash__


def _looks_into(value: Value, *_: object) -> Any:
    raise PlanError(
        f"the loop looks into {value!r}, which is known only while its nodes run: no `if`, sum or "
        "index can stand on it there; do that within a node, in the algorithm's functions"
    )


_OPERATORS = (
    *("bool", "iter", "len", "getitem", "contains", "float", "int", "index", "array", "next"),
    *("eq", "ne", "lt", "le", "gt", "ge", "add", "radd", "sub", "rsub", "mul", "rmul", "matmul"),
    *("truediv", "rtruediv", "floordiv", "mod", "pow", "neg", "abs", "invert", "and", "or", "xor"),
)
for _name in _OPERATORS:
    setattr(Value, f"__{_name}__", _looks_into)


_CARRIED = "the last step"
_READ_BY_ACT = ("observation", "terminated", "truncated")
_GIVEN_BY = {
    "policy": "run.latest() gives",
    "timestep": "run.step(...) gives, or an unroll begins a step with",
    "memory": "a decision holds, or an unroll begins a step with",
    "decision": "run.act(...) gives",
    "action": "is a decision's `action`",
    "unroll": "run.unroll(...) gives",
    "batch": "run.gather(unroll) gives",
    "row": "run.collect(...) gives",
}


class _Tracer(Loop):
    """Notes who gives what to whom."""

    def __init__(self, shapes: Shapes) -> None:
        self.shapes = shapes
        self.nodes: set[str] = set()
        self.edges: list[Edge] = []

    def latest(self) -> Any:
        return Value("policy", "update")

    def act(self, policy: Any, timestep: Any, memory: Any) -> Any:
        self._take("act", "policy", policy, "latest", "update")
        self._take("act", "timestep", timestep, "call", "step", parts=_READ_BY_ACT)
        self._take("act", "memory", memory, "call", "step")
        return Value("decision", "act", self._parts("decision"))

    def step(self, action: Any) -> Any:
        self._take("step", "action", action, "call", "step")
        return Value("timestep", "step", self._parts("timestep"))

    def collect(self, timestep: Any, decision: Any) -> Any:
        self._take("collect", "timestep", timestep, "call", "step")
        self._take("collect", "decision", decision, "call", "step")
        return Value("row", "collect")

    def unroll(self, interact: Interact, length: int) -> Any:
        """One step stands for all of them."""
        if isinstance(length, Value) or length < 1:
            raise PlanError(f"the loop unrolls {length!r} steps; expected a whole number from 1 up")
        begun: Any = Value("timestep", _CARRIED, self._parts("timestep"))
        memory: Any = Value("memory", _CARRIED)
        ended: Any = interact(begun, memory)
        if not isinstance(ended, tuple) or len(ended) != 3:
            raise PlanError(
                f"a step of the unroll gives {ended!r}; expected three things: the next timestep, "
                "the next memory, and what run.collect(...) gave"
            )
        for expected, value in zip(("timestep", "memory", "row"), ended, strict=True):
            self._expect("the end of a step", expected, value)
        sources = {value._kind: value._source for value in ended[:2]}
        for kind, source in sources.items():
            if source == _CARRIED:
                raise PlanError(f"a step of the unroll gives back the {kind} that it began with")
        self.edges = [self._resolved(edge, sources) for edge in self.edges]
        return Value("unroll", "collect", self._parts("unroll"))

    def gather(self, unroll: Any) -> Any:
        self._expect("gather", "unroll", unroll)
        return Value("batch", "collect")

    def learn(self, batch: Any) -> None:
        """Two nodes, and what passes between them in each round."""
        self._take("gradient", "batch", batch, "gather", "update", name="unroll")
        self._take("gradient", "state", Value("state", "update"), "latest", "round")
        self._take("update", "sums", Value("sums", "gradient"), "sum", "round")

    def _parts(self, value: str) -> tuple[str, ...]:
        names = [field.name.split("/")[0] for field in UNKNOWN.part(value)]
        return tuple(dict.fromkeys(names))

    def _take(
        self,
        node: str,
        expected: str,
        value: Any,
        kind: Kind,
        every: Every,
        name: str = "",
        parts: tuple[str, ...] = (),
    ) -> None:
        """Notes an edge into `node`."""
        self._expect(node, expected, value)
        self.nodes.add(node)
        name = name or expected
        fields = self.shapes.part(name)
        if parts:
            fields = tuple(field for field in fields if field.name.split("/")[0] in parts)
        self.edges.append(Edge(value._source, node, kind, name, fields, every))

    def _expect(self, taker: str, expected: str, value: Any) -> None:
        if not isinstance(value, Value) or value._kind != expected:
            given = f"{value!r}" if isinstance(value, Value) else f"{value!r:.60}"
            raise PlanError(
                f"the loop gives {given} to {taker} as its {expected}; "
                f"expected what {_GIVEN_BY[expected]}"
            )

    def _resolved(self, edge: Edge, sources: dict[str, str]) -> Edge:
        """An edge from the last step, which now is known to come from one of the nodes."""
        if edge.source != _CARRIED:
            return edge
        return Edge(sources[edge.name], edge.target, "carry", edge.name, edge.fields, edge.every)
