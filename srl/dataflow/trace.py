"""Gives a training loop's graph by running it once on values that are not there yet."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from srl.core.errors import PlanError
from srl.dataflow.graph import UNKNOWN, Edge, Graph, Shapes, Unrolled
from srl.dataflow.loop import Interact, Loop
from srl.dataflow.nodes import GIVEN_BY, TABLE

if TYPE_CHECKING:
    from srl.algorithms import Algorithm

STEPS_TRACED = 4096
"""Steps of an unroll that are traced at most: a step that is not as the first one is among them, or
is found where it runs."""


def trace(algorithm: Algorithm, shapes: Shapes = UNKNOWN) -> Graph:
    """Gives the graph of an algorithm's loop.

    Args:
        algorithm: Whose `loop` is run, for two passes; it calls nodes and does nothing else with
            what they give.
        shapes: What the values are made of; by default edges carry names alone.

    Raises:
        PlanError: If the loop looks into a value, gives a node what no node gave, or is not the
            same in all steps of an unroll and in all passes.
    """
    tracer, again = _Tracer(shapes), _Tracer(shapes)
    for each in (tracer, again):
        algorithm.loop(each)
        each.finish()
    if again.program != tracer.program:
        first, second = _difference(tracer.program, again.program)
        raise PlanError(
            f"the loop is not the same in every pass: where the first one has {first}, the second "
            f"has {second}; workers elsewhere run it as it was first, so let no `if` and no length "
            "in it change from pass to pass"
        )
    return tracer.graph


def _difference(one: list[str], other: list[str]) -> tuple[str, str]:
    """The first calls in which they differ."""
    pairs = zip_longest(one, other, fillvalue="no further call")
    return next((a, b) for a, b in pairs if a != b)


class Value:
    """Stands for what a node will give: it can be handed on, and its parts taken."""

    def __init__(
        self,
        kind: str,
        source: str,
        parts: tuple[str, ...] = (),
        name: str = "",
        step: int | None = None,
    ) -> None:
        self._kind, self._source, self._parts, self._name = kind, source, parts, name or kind
        self._step = step

    def __getattr__(self, part: str) -> Value:
        if part.startswith("__"):
            raise AttributeError(part)
        if not self._parts:
            return _looks_into(self)
        if part not in self._parts:
            has = ", ".join(self._parts)
            raise PlanError(f"the loop takes `{part}` of `{self._name}`; it has {has}")
        return Value(part, self._source, name=f"{self._name}.{part}", step=self._step)

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
    "call",
    *("eq", "ne", "lt", "le", "gt", "ge", "add", "radd", "sub", "rsub", "mul", "rmul", "matmul"),
    *("truediv", "rtruediv", "floordiv", "mod", "pow", "neg", "abs", "invert", "and", "or", "xor"),
)
for _name in _OPERATORS:
    setattr(Value, f"__{_name}__", _looks_into)


_CARRIED = "the last step"
_EXPECTED = {
    "policy": "run.latest() gives",
    "timestep": "run.step(...) gives, or an unroll begins a step with",
    "memory": "a decision holds, or an unroll begins a step with",
    "action": "is a decision's `action`",
    "unroll": "run.unroll(...) gives",
    "batch": "run.gather(unroll) gives",
}
_UNUSED = {
    "policy": "is never acted with: pass it to run.act(...), or leave that run.latest() out",
    "timestep": "is neither collected nor acted on: its reward would be lost; collect each step, "
    "or repeat an action by run.step(action, repeat=N)",
    "decision": "is never collected: what was decided would not be learned from",
    "row": "is not given back: return what run.collect(...) gives as the step's third value",
    "unroll": "is never gathered: pass it to run.gather(...)",
    "batch": "is never learned from: pass it to run.learn(...)",
}
_COLLECTED = {taken.value for taken in TABLE["collect"].takes}
_UNUSED |= {
    value: f"is never collected: pass it to run.collect(timestep, decision, {value})"
    for value in _COLLECTED - _UNUSED.keys()
}


class _Tracer(Loop):
    """Notes which node gives what to which, and how often in one pass of the loop."""

    def __init__(self, shapes: Shapes) -> None:
        self.shapes = shapes
        self.calls: Counter[str] = Counter()
        self.crossings: Counter[Edge] = Counter()
        self.unrolls: list[Unrolled] = []
        self.learns = 0
        self.program: list[str] = []
        """The calls of a pass in their order."""
        self._step = 0
        """The number of the step that is traced, from 1, in the pass."""
        self._script: list[str] = []
        """The calls in it so far."""
        self._first_step = True
        """True in the first step of an unroll, which stands for all."""
        self._steps = 0
        """Steps that one call stands for: those of the unroll that it is within."""
        self._action_repeat: int | None = None
        self._policy: Value | None = None
        """The newest, until it is learned from."""
        self._begun_at: dict[Value, int] = {}
        """Calls of `learn` before each unroll."""
        self._numbers: dict[Value, int] = {}  # of unrolls in the pass, and of their batches
        self._unused: dict[Value, None] = {}
        self._made_for: dict[Value, Value] = {}  # decisions and advice, by timestep

    @property
    def graph(self) -> Graph:
        """The graph of one pass of the loop."""
        return Graph(
            calls=tuple((node, self.calls[node]) for node in TABLE if node in self.calls),
            edges=tuple(replace(edge, times=times) for edge, times in self.crossings.items()),
            unrolls=tuple(self.unrolls),
            learns=self.learns,
            num_envs=self.shapes.num_envs,
            gradient_steps=self.shapes.gradient_steps,
            action_repeat=self._action_repeat or 1,
            state_bytes=self.shapes.state_bytes,
            replay_bytes=self.shapes.replay_bytes,
        )

    def finish(self) -> None:
        """Raises PlanError where a value is given and never used, or a pass makes no version."""
        for value in self._unused:
            raise PlanError(f"the loop's {value!r} {_UNUSED[value._kind]}")
        if not self.unrolls or not self.learns:
            raise PlanError(
                f"the loop has {len(self.unrolls)} unrolls and {self.learns} calls of learn in a "
                "pass; a pass needs one of each at least, or training would never end"
            )

    # ---- the operations of a loop ----

    def latest(self) -> Any:
        if self._steps:
            raise PlanError(
                "the loop calls run.latest() within a step of an unroll; call it before the "
                "unroll: one policy acts in the whole of it"
            )
        for value in self._unused:
            if value._kind == "unroll" and self._begun_at[value] < self.learns:
                raise PlanError(
                    "the loop calls run.latest() after run.learn(...) while an earlier unroll is "
                    "not gathered: who acts elsewhere would go on in it with the newer policy; "
                    "gather it first"
                )
        self.program.append("a latest")
        self._policy = self._given("policy")
        return self._policy

    def act(self, policy: Any, timestep: Any, memory: Any) -> Any:
        self._within_unroll("act")
        self._expect("act", "policy", policy)
        if policy is not self._policy:
            raise PlanError(
                f"the loop acts with {policy!r} of an earlier run.latest(), after a later one or "
                "after run.learn(...); call run.latest() before the unroll and act with what it "
                "gives"
            )
        crosses = policy if policy in self._unused else None  # once, however often it acts
        self._call("act", policy=crosses, timestep=timestep, memory=memory)
        decision = self._given("decision")
        self._made_for[decision] = timestep
        return decision

    def step(self, action: Any, repeat: int = 1) -> Any:
        self._within_unroll("step")
        if not isinstance(repeat, int) or repeat < 1:
            raise PlanError(f"the loop steps {repeat!r} times; expected a whole number from 1 up")
        if self._action_repeat not in (None, repeat):
            raise PlanError(
                f"the loop steps {self._action_repeat} times with one action and {repeat} times "
                "with another; environments repeat all actions alike: give each run.step(...) the "
                "same repeat"
            )
        self._action_repeat = repeat
        self._call("step", action=action)
        if self._first_step:
            self.calls["step"] += self._steps * (repeat - 1)
        return self._given("timestep")

    def teach(self, timestep: Any) -> Any:
        self._within_unroll("teach")
        if any(call.startswith("teach(") for call in self._script):
            raise PlanError("the loop calls run.teach(...) twice in a step; call it once")
        self._call("teach", timestep=timestep)
        advice = self._given("advice")
        self._made_for[advice] = timestep
        return advice

    def collect(self, timestep: Any, decision: Any, advice: Any = None) -> Any:
        self._within_unroll("collect")
        self._call("collect", timestep=timestep, decision=decision, advice=advice)
        for value in (decision, advice):
            if value is not None and self._made_for[value] is not timestep:
                raise PlanError(
                    f"the loop collects {value!r} with another timestep than the one that it was "
                    "made for; collect the timestep that was passed to run.act(...)"
                )
        return self._given("row")

    def unroll(self, interact: Interact, length: int) -> Any:
        """One step stands for all of them; some more are compared with it."""
        if not isinstance(length, int) or length < 1:
            raise PlanError(f"the loop unrolls {length!r} steps; expected a whole number from 1 up")
        if self._steps:
            raise PlanError("the loop unrolls within a step of an unroll; call it between unrolls")
        self._steps = length
        script = self._trace_step(interact)
        for number in range(1, min(length, STEPS_TRACED)):
            if (other := self._trace_step(interact, first=False)) != script:
                one, another = _difference(script, other)
                raise PlanError(
                    f"step {number + 1} of the loop's unroll is not as the first one: in place of "
                    f"{one} it has {another}; one step is compiled, or sent to other workers, for "
                    "all: decide such things within a node, in the algorithm's functions"
                )
        self._steps = 0
        self.program.append(f"an unroll of {length} steps with {', '.join(script)}")
        calls = tuple(call.partition("(")[0] for call in script[:-1])
        self.unrolls.append(Unrolled(length, self.learns, calls))
        given = self._given("unroll")
        self._begun_at[given] = self.learns
        self._numbers[given] = len(self.unrolls) - 1
        return given

    def gather(self, unroll: Any) -> Any:
        self._expect("gather", "unroll", unroll)
        if unroll not in self._unused:
            raise PlanError("the loop gathers an unroll twice; learn from its batch twice instead")
        self._use("gather", "unroll", unroll)
        number = self._numbers[unroll]
        self._cross("learn", "unroll", unroll._source, self.unrolls[number].length)
        batch = self._given("batch")
        self._numbers[batch] = number
        self.program.append(f"a gather of unroll {number}")
        return batch

    def learn(self, batch: Any) -> None:
        """The node, and what its replicas add up in each round."""
        self._use("learn", "batch", batch)
        if batch not in self._numbers:
            raise PlanError(
                "the loop learns from a batch that it has kept from an earlier pass; learn from "
                "what run.gather(...) gives in the same pass; a replay keeps what is older"
            )
        self.program.append(f"a learn from unroll {self._numbers[batch]}")
        self.learns += 1
        self._policy = None
        self.calls["learn"] += 1
        self._cross("learn", "sums", "learn")

    # ---- what they share ----

    def _trace_step(self, interact: Interact, *, first: bool = True) -> list[str]:
        """Runs one step; gives the calls that it makes."""
        self._step, self._first_step, self._script = self._step + 1, first, []
        begun: Any = Value("timestep", _CARRIED, self._parts("timestep"), step=self._step)
        memory: Any = Value("memory", _CARRIED, step=self._step)
        ended: Any = interact(begun, memory)
        self._end_step(ended)
        return self._script

    def _given(self, kind: str) -> Any:
        step = self._step if self._steps else None
        source = GIVEN_BY["unroll" if kind == "batch" else kind]  # a batch is what was collected
        value = Value(kind, source, self._parts(kind), step=step)
        if kind in _UNUSED:
            self._unused[value] = None
        return value

    def _call(self, node: str, **values: Any) -> None:
        """Notes a call of a node, and an edge for each value that it is given anew."""
        given = {name: value for name, value in values.items() if value is not None}
        for name, value in given.items():
            self._use(node, name, value)
            if self._first_step:
                self._cross(node, name, value._source)
        if self._first_step:
            self.calls[node] += self._steps
        given.pop("policy", None)  # which the first step alone is given anew
        self._script.append(f"{node}({', '.join(value._name for value in given.values())})")

    def _cross(self, node: str, name: str, source: str, length: int = 0) -> None:
        """Notes that a value crosses into a node; of an unroll its length is given."""
        taken = next(taken for taken in TABLE[node].takes if taken.value == name)
        fields = self.shapes.part(name, length)
        if taken.parts:
            fields = tuple(field for field in fields if field.name.split("/")[0] in taken.parts)
        times = {"step": self._steps, "update": 1, "gradient step": self.shapes.gradient_steps}[
            taken.every
        ]
        self.crossings[Edge(source, node, taken.kind, name, fields, taken.every)] += times

    def _use(self, taker: str, expected: str, value: Any) -> None:
        self._expect(taker, expected, value)
        self._unused.pop(value, None)

    def _expect(self, taker: str, expected: str, value: Any) -> None:
        if not isinstance(value, Value) or value._kind != expected:
            given = f"{value!r}" if isinstance(value, Value) else f"{value!r:.60}"
            raise PlanError(
                f"the loop gives {given} to {taker} as its {expected}; "
                f"expected what {_EXPECTED.get(expected) or f'run.{GIVEN_BY[expected]}(...) gives'}"
            )
        if value._step not in (None, self._step):
            raise PlanError(
                f"the loop gives {value!r} of an earlier step to {taker}; a step has what it "
                "begins with and what its own calls give. To act for several steps with one "
                "action: run.step(action, repeat=N)"
            )

    def _within_unroll(self, node: str) -> None:
        if not self._steps:
            raise PlanError(
                f"the loop calls run.{node}(...) outside of an unroll; call it in the function "
                "that run.unroll(...) repeats"
            )

    def _end_step(self, ended: Any) -> None:
        """Checks what a step gives back, and lets what it carries reach the nodes of the next."""
        if not isinstance(ended, tuple) or len(ended) != 3:
            raise PlanError(
                f"a step of the unroll gives {ended!r}; expected three things: the next timestep, "
                "the next memory, and what run.collect(...) gave"
            )
        carried: dict[str, str] = {}
        for kind, value in zip(("timestep", "memory", "row"), ended, strict=True):
            self._use("the end of a step", kind, value)
            carried[kind] = value._source
            if value._source == _CARRIED:
                raise PlanError(f"a step of the unroll gives back the {kind} that it began with")
        for value in self._unused:
            if value._kind in {*_COLLECTED, "row"}:
                raise PlanError(f"a step's {value!r} {_UNUSED[value._kind]}")
        self._script.append(f"an end with {', '.join(carried.values())}")
        if not self._first_step:
            return
        crossings, self.crossings = self.crossings, Counter()
        for edge, times in crossings.items():
            if edge.source == _CARRIED:
                edge = replace(edge, source=carried[edge.name], kind="carry")
            self.crossings[edge] += times

    def _parts(self, value: str) -> tuple[str, ...]:
        names = [field.name.split("/")[0] for field in UNKNOWN.part(value)]
        return tuple(name for name in dict.fromkeys(names) if name != value)
