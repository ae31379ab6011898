"""Rules about the edges that a plan cuts: they decide if a partition of the nodes can run.

A rule looks at cut edges and at the fragments of their ends; none lists partitions. Each gives its
reason.
"""

from __future__ import annotations

from collections.abc import Callable

from srl.core.errors import PlanError
from srl.dataflow.graph import Edge, Graph
from srl.dataflow.plan import Plan


def check(graph: Graph, plan: Plan) -> None:
    """Raises PlanError where a plan cannot run a loop, with the reason and a hint."""
    plan.validate(graph.nodes)
    for rule in _RULES:
        rule(graph, plan)


def _cut(graph: Graph, plan: Plan, *kinds: str) -> list[Edge]:
    """The edges of some kinds whose ends are in different fragments."""
    edges = (edge for edge in graph.edges if edge.kind in kinds)
    return [edge for edge in edges if plan.home(edge.source) != plan.home(edge.target)]


def _ends(plan: Plan, edge: Edge) -> tuple[str, str]:
    return plan.home(edge.source), plan.home(edge.target)


def _collectors_see_equal_unrolls(graph: Graph, plan: Plan) -> None:
    """A worker that collects the steps of another one knows an unroll by its length alone."""
    caller, collector = plan.home("step"), plan.home("collect")
    if collector != caller and len({unrolled.length for unrolled in graph.unrolls}) > 1:
        lengths = ", ".join(str(unrolled.length) for unrolled in graph.unrolls)
        raise PlanError(
            f"{collector} collects what {caller} steps, and the loop's unrolls differ "
            f"(of {lengths} steps): a worker that is started again would not know which one it is "
            f"in; put collect into {caller}"
        )


def _calls_come_back(graph: Graph, plan: Plan) -> None:
    """A call between fragments is a request and its reply, so values cross both ways."""
    calls = _cut(graph, plan, "call", "carry")
    directions = {_ends(plan, edge) for edge in calls}
    for edge in calls:
        source, target = _ends(plan, edge)
        if (target, source) not in directions:
            raise PlanError(
                f"{edge.target} in {target!r} takes the {edge.name} of {edge.source} in "
                f"{source!r} at each step, and {source!r} gets no reply to it: a call that "
                f"crosses is a request and a reply; put {edge.target} with {edge.source}"
            )


def _a_caller_does_not_learn(graph: Graph, plan: Plan) -> None:
    """A fragment that waits for replies within a step has no gradient to compute meanwhile."""
    caller = plan.home("step")
    for edge in _cut(graph, plan, "call", "carry"):
        if plan.home("learn") == caller:
            answering = next(end for end in _ends(plan, edge) if end != caller)
            nodes = " and ".join(plan.nodes_in(answering, graph.nodes))
            raise PlanError(
                f"{caller} steps and learns, and waits within each step for {nodes} in "
                f"{answering!r}; put {nodes} into {caller} too, or step elsewhere"
            )


def _one_learner_in_one_process(graph: Graph, plan: Plan) -> None:
    """One learner of a process uses all its devices."""
    learner = plan.home("learn")
    replicas = plan.fragments[learner].replicas
    if replicas > 1 and plan.one_process:
        raise PlanError(
            f"{learner} has {replicas} replicas in one process, where one learner already uses "
            "every device; give it one replica, or leave one_process off"
        )


def _one_process_answers_no_calls(graph: Graph, plan: Plan) -> None:
    """Threads of one process pass unrolls and parameters by reference, and no calls."""
    if plan.one_process and _cut(graph, plan, "call", "carry"):
        raise PlanError(
            f"the plan {plan.name!r} is for one process, where no worker serves others: put step, "
            "act, collect and teach into one fragment and learn into another, or leave one_process "
            "off"
        )


def _compiled_fragments_make_no_remote_calls(graph: Graph, plan: Plan) -> None:
    """A compiled fragment takes whole unrolls, and so has all nodes of their steps."""
    caller = plan.home("step")
    away = [edge for edge in _cut(graph, plan, "call", "carry") if plan.home(edge.source) == caller]
    for name, fragment in plan.fragments.items():
        if fragment.compiled and name != caller:
            raise PlanError(
                f"{name} is compiled, and the environments are stepped by {caller}: only a program "
                "that steps them has anything to gain; leave compiled off"
            )
        if fragment.compiled and away:
            raise PlanError(
                f"{name} is compiled, and would have to wait within each step for "
                f"{away[0].target} in {plan.home(away[0].target)!r}; put {away[0].target} into "
                f"{name}, or leave compiled off"
            )


_RULES: tuple[Callable[[Graph, Plan], None], ...] = (
    _calls_come_back,
    _a_caller_does_not_learn,
    _collectors_see_equal_unrolls,
    _one_learner_in_one_process,
    _one_process_answers_no_calls,
    _compiled_fragments_make_no_remote_calls,
)
