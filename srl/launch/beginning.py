"""Decides when a run begins: which of its workers have to be there."""

from __future__ import annotations

from collections.abc import Sequence

from srl.config.experiment import Experiment
from srl.dataflow.nodes import ANSWERING
from srl.dataflow.plan import Plan
from srl.launch.gang import Member


def why_all_that_step(experiment: Experiment) -> str:
    """Why a run needs all workers that step to begin, or to go on; empty if it does not.

    Otherwise a group of environments that is there takes the tickets of those that are absent.
    """
    plan = experiment.settled_plan
    if "learn" in plan.fragment("step").nodes:  # they are added up
        return f"the plan {plan.name}"
    if experiment.max_staleness == 0:
        return "--max-staleness 0"
    return "self-play" if experiment.self_play is not None else ""


class Beginning:
    """The workers that a run waits for before it begins.

    Of workers that only answer calls one is enough, and of those that step, unless all are needed,
    one for each learner. Awaited are then those that had a process when there were enough of them:
    any that come later take part as soon as they are there.
    """

    def __init__(self, plan: Plan, members: Sequence[Member], all_that_step: bool) -> None:
        """Takes all workers of the plan; `all_that_step` if the run waits for each that steps."""
        self._plan, self._members = plan, members
        self._few = {name for name, f in plan.fragments.items() if {*f.nodes} <= {*ANSWERING}}
        if not all_that_step:
            self._few.add(plan.home("step"))
        self._first: list[Member] = []

    def complete(self) -> bool:
        """Tells if all workers that the run waits for have registered."""
        self._first = [member for member in self._first if member.process is not None]
        if not self._enough(self._first):
            few = (member for member in self._members if member.fragment in self._few)
            self._first = [member for member in few if member.process is not None]
        rest = [member for member in self._members if member.fragment not in self._few]
        awaited = [*self._first, *rest]
        return self._enough(self._first) and all(m.addresses is not None for m in awaited)

    def _enough(self, members: Sequence[Member]) -> bool:
        """Tells if a run could begin with no others of the fragments that need not be whole."""
        there = {member.fragment for member in members}
        step = self._plan.home("step")
        if not self._few <= there or step not in self._few:
            return self._few <= there
        learners = self._plan.fragment("learn").replicas
        actors = self._plan.fragment("step").replicas
        served = set[int]()
        for member in members:
            if member.fragment == step:
                first, end = member.replica * learners, (member.replica + 1) * learners
                served.update(range(first // actors, -(-end // actors)))
        return len(served) == learners
