"""Checks of an experiment and its plan together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from srl.core.backends import backend_of
from srl.core.errors import PlanError, UserError, expect
from srl.dataflow.plan import Plan, num_groups
from srl.dataflow.rules import check
from srl.pools.mixture import mixture_of

if TYPE_CHECKING:
    from srl.config.experiment import Experiment


def expect_plan(experiment: Experiment) -> None:
    """Raises PlanError where the plan cannot run the experiment, UserError where it is no plan."""
    if experiment.plan == "auto":
        return
    plan = experiment.settled_plan
    good = isinstance(plan, Plan)
    expect(good, "plan", plan, "a plan such as plans.inline(), the name of one, or auto")
    check(experiment.graph, plan)
    experiment.settled_algorithm.expect_fit(experiment.graph)
    if experiment.self_play is not None and experiment.graph.learns > 1:
        raise PlanError(
            f"the loop has {experiment.graph.learns} calls of learn in a pass, and self_play "
            "changes opponents between passes; leave self_play out, or learn once a pass"
        )
    learners = plan.fragment("learn").replicas
    if experiment.self_play is not None and experiment.self_play.choice == "hard" and learners > 1:
        raise PlanError(
            f"self_play.choice='hard' chooses opponents by the matches of one learner, and the "
            f"plan {plan.name!r} has {learners}; take another plan, or choice='uniform'"
        )
    if experiment.fixed and (experiment.self_play is not None or experiment.taught):
        other = (
            "self_play is for"
            if experiment.self_play is not None
            else "the loop calls run.teach for"
        )
        raise PlanError(
            f"policies: a fixed policy plays {', '.join(experiment.fixed)}, and {other} agents "
            "that a trained policy plays; leave out one of the two"
        )
    if experiment.self_play is not None and experiment.taught:
        raise PlanError(
            "the loop calls run.teach, and past versions of policies get no advice; leave out "
            "self_play or that call"
        )
    _expect_whole_periods(experiment, plan)
    _expect_lessons_reach(experiment, plan)
    if plan.fragment("step").compiled and not backend_of(experiment.env_id).compiled:
        whole = plan.is_one_program
        what = f"the plan {plan.name!r}" if whole else plan.home("step")
        cure = "take another plan, such as threads" if whole else "leave compiled off"
        raise PlanError(
            f"{what} is compiled, and only native environments can be stepped from inside a "
            f"program, and those in JAX; {experiment.env_id or experiment.env!r} is not native: "
            f"{cure}"
        )


def _expect_whole_periods(experiment: Experiment, plan: Plan) -> None:
    """Raises an error where a group has not the same share of each task of a mixture."""
    groups, mixture = num_groups(plan, experiment), mixture_of(experiment.env)
    if mixture is None:
        return
    if experiment.self_play is not None:
        raise UserError("self_play is for one game, and the environment is a mixture of tasks")
    period, num_envs = len(mixture.task_of), experiment.num_envs
    if num_envs % (groups * period):
        raise PlanError(
            f"num_envs={num_envs} does not give each group (groups={groups}) the same shares of "
            f"{', '.join(mixture.tasks)}, which are {period} in all; give num_envs="
            f"{-(-num_envs // (groups * period)) * groups * period}, or other groups or shares"
        )


def _expect_lessons_reach(experiment: Experiment, plan: Plan) -> None:
    """Raises PlanError where a curriculum's next lesson would not reach the environments.

    It comes with the ticket for an unroll, which the worker has that collects.
    """
    if not experiment.curriculum:
        return
    experiment.lesson_envs  # noqa: B018 - which raises an error for an option that there is not
    if plan.home("collect") != plan.home("step"):
        raise PlanError(
            f"the plan {plan.name!r} collects steps in another worker than that which takes them, "
            "and lessons of a curriculum begin there; take fused, threads, inline or decoupled"
        )
    if (learners := plan.fragment("learn").replicas) > 1:
        raise PlanError(
            f"the conditions of a curriculum are on one learner's episodes, and the plan "
            f"{plan.name!r} has {learners}; take one"
        )
