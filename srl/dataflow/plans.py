"""The built-in plans; each divides the nodes of the loop in a few lines.

    experiment = Experiment(..., plan=plans.inline(actors=4))

`srl plan FILE --plan NAME` draws one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from srl.core.backends import backend_of
from srl.core.errors import PlanError, nearest
from srl.dataflow.nodes import NODES, TABLE
from srl.dataflow.plan import Fragment, Plan, num_groups
from srl.system.background.cpu_limit import whole_cores_granted
from srl.system.gpus import jax_gpus

if TYPE_CHECKING:
    from srl.config.experiment import Experiment

_STEP, _INTERACT = ("step",), ("step", "act", "collect")
_LEARN, _ALL = ("learn",), ("step", "act", "collect", "learn")
_STEPPED = {node for node, row in TABLE.items() if row.pinned_by != "parameters"}


def fused() -> Plan:
    """The whole loop is one compiled program, which steps a native pool from inside."""
    return Plan("fused", {"trainer": Fragment(_ALL, compiled=True)}, one_process=True)


def threads(actors: int = 2) -> Plan:
    """Actor threads and the learner, in one process (as in Sebulba)."""
    fragments = {"actors": Fragment(_INTERACT, actors), "learner": Fragment(_LEARN)}
    return Plan("threads", fragments, one_process=True)


def inline(actors: int = 2) -> Plan:
    """Actor processes that act for themselves, and a learner (as in IMPALA)."""
    return Plan("inline", {"actors": Fragment(_INTERACT, actors), "learner": Fragment(_LEARN)})


def central(actors: int = 2) -> Plan:
    """Actor processes that only step; the learner acts for all of them (as in SEED RL)."""
    learner = Fragment(("act", "collect", "learn"))
    return Plan("central", {"actors": Fragment(_STEP, actors), "learner": learner})


def decoupled(actors: int = 2, policies: int = 1, learners: int = 1) -> Plan:
    """Actors, policy workers that act for them, and learners (as in SRL)."""
    fragments = {
        "actors": Fragment(("step", "collect"), actors),
        "policies": Fragment(("act",), policies),
        "learner": Fragment(_LEARN, learners),
    }
    return Plan("decoupled", fragments)


def serving(actors: int = 2, policies: int = 1, learners: int = 1) -> Plan:
    """Actors that only step, policy workers that act and write the unrolls, and learners."""
    fragments = {
        "actors": Fragment(_STEP, actors),
        "policies": Fragment(("act", "collect"), policies),
        "learner": Fragment(_LEARN, learners),
    }
    return Plan("serving", fragments)


def env_servers(actors: int = 2, learners: int = 2) -> Plan:
    """Actor processes that only step, for several learners that act and average gradients."""
    learner = Fragment(("act", "collect", "learn"), learners)
    return Plan("env_servers", {"actors": Fragment(_STEP, actors), "learners": learner})


def replicated(learners: int = 2) -> Plan:
    """Several whole loops that average their gradients (as in DD-PPO); one is the plain loop."""
    return Plan("replicated", {"learners": Fragment(_ALL, learners)}, one_process=learners == 1)


def parameter_server(actors: int = 2) -> Plan:
    """Actors that average their gradients, as those of a synchronous parameter server do.

    The sum is an all-reduce, as under `replicated`: each actor holds the parameters, and no server
    is in between.
    """
    return Plan("parameter_server", {"actors": Fragment(_ALL, actors)}, one_process=actors == 1)


_BUILT_IN = fused, threads, inline, central, decoupled, serving, env_servers, replicated
PLANS: dict[str, Callable[[], Plan]] = {
    plan.__name__: plan for plan in (*_BUILT_IN, parameter_server)
}
"""The plans by name, as `--plan` takes it."""


def named(name: str) -> Plan:
    """The plan of this name, with its default sizes.

    Raises:
        PlanError: Naming the nearest, if there is none.
    """
    if name not in PLANS:
        raise PlanError(f"there is no plan {name!r}; {nearest(name, (*PLANS, 'auto'))}")
    return PLANS[name]()


def resolve(
    plan: Plan | str | None, experiment: Experiment, *, here: bool = True
) -> Plan | Literal["auto"]:
    """The plan that an experiment means by its field `plan`; auto is left as it is.

    Args:
        plan: A plan, the name of one, or None for the usual one.
        experiment: The experiment.
        here: Whether this machine runs it, so that the cores that it may use decide the sizes of a
            named plan; otherwise these stay as they are.

    Raises:
        PlanError: If there is no plan of this name.
    """
    if plan == "auto":
        return "auto"
    accelerated = bool(jax_gpus())
    cores = whole_cores_granted() if here else None
    if isinstance(plan, str):
        return sized(named(plan), experiment, cores, accelerated=accelerated)
    if plan is not None:
        return plan
    return usual(experiment, cores, accelerated=accelerated)


_FEW_CORES = 4
"""Cores up from which processes that step, act and learn have a core each."""
_ENVS_EACH = 4
"""Environments in Python for each actor, before there are more actors than two."""
_MOST_ACTORS = 32
"""Most actors without a request for more: each that acts compiles for itself and takes some 200 MB,
and nobody has measured what many gain on one host."""


def sized(plan: Plan, experiment: Experiment, cores: int | None, *, accelerated: bool) -> Plan:
    """A plan with the number of actors for this machine, in place of two.

    One, where actions come from another process and a pool in C++ fills all of a few cores: more
    processes only wake each other (docs/tuning.md). One for each core, where Python steps: as many
    as leave enough past matches in each group, and two where each has worker processes.

    Args:
        plan: A plan with two actors; others stay as they are.
        experiment: The experiment.
        cores: The machine's; None leaves all plans as they are.
        accelerated: Whether JAX has an accelerator, for which one group steps while it acts.
    """
    name, actors = plan.home("step"), plan.fragment("step")
    if (
        cores is None
        or plan.one_process
        or "learn" in actors.nodes
        or plan.fragment("learn").replicas > 1
    ):
        return plan
    backend = backend_of(experiment.env)

    def of(replicas: int) -> Plan:
        return replace(plan, fragments={**plan.fragments, name: replace(actors, replicas=replicas)})

    if backend.threaded:
        crosses = "act" not in actors.nodes
        return of(1) if crosses and cores < _FEW_CORES and not accelerated else plan
    if backend.language == "Python" and not experiment.workers:
        most = min(cores, _MOST_ACTORS, experiment.num_envs // _ENVS_EACH)
        larger = map(of, range(most, actors.replicas, -1))
        return next((each for each in larger if _divides(each, experiment)), plan)
    return plan


def usual(experiment: Experiment, cores: int | None, *, accelerated: bool) -> Plan:
    """The plan for an experiment that names none; it learns on the accelerator where there is one.

    The loop of a native environment, or of one in JAX, is compiled whole if the program can run
    there. Next to an accelerator any other pool in C++ is stepped by two threads, of a group each:
    one steps while the accelerator acts for the other. All else is the plain loop in one process.

    With a staleness above 0 environments step while the learner learns: pools in C++ in threads,
    environments in Python with an id, which other processes can make, in processes. Of a class or
    function, worker processes step them for a thread, if there are any.
    """
    env, stale = experiment.env, experiment.max_staleness != 0
    backend = backend_of(env)
    if backend.language == "C++" and (accelerated or stale):
        overlapping = threads()
    elif backend.language == "Python" and stale and not callable(env):
        overlapping = sized(inline(), experiment, cores, accelerated=accelerated)
    elif backend.language == "Python" and stale and experiment.workers:
        overlapping = threads(actors=1)
    else:
        overlapping = None
    if overlapping is not None and _divides(overlapping, experiment):
        return overlapping
    if backend.compiled and not (accelerated and programs_need_cpu(env)):
        return fused()
    return replicated(learners=1)


def turns_text(plan: Plan, max_staleness: int | None) -> str:
    """Describes if a plan's environments step while it learns, and why."""
    if len(plan.fragments) == 1:
        useless = ", so max_staleness has no effect (--plan threads or inline steps meanwhile)"
        return f"steps and learns in turns{'' if max_staleness == 0 else useless}"
    if max_staleness == 0:
        return "steps and learns in turns, as max_staleness is 0"
    age = "of any age" if max_staleness is None else f"up to {max_staleness} updates old"
    return f"steps while it learns, with parameters {age} (max_staleness)"


_FEWEST_PAST = 4
"""Past matches of a group, as many as there may be sides, each of which needs one."""


def _divides(plan: Plan, experiment: Experiment) -> bool:
    """Tells if the experiment's environments can be divided into the plan's groups."""
    try:
        groups = num_groups(plan, experiment)
    except PlanError:
        return False
    past = experiment.self_play.past if experiment.self_play is not None else 0
    return not past or past * experiment.num_envs / groups >= _FEWEST_PAST


def programs_need_cpu(env: Any) -> bool:
    """Tells if a program that steps such environments runs on the CPU alone, as native ones do."""
    backend = backend_of(env)
    return backend.compiled and backend.language == "C++"


def compiles_unrolls(plan: Plan, env: Any) -> bool:
    """Tells if compiled programs take the unrolls of these environments; see `Fragment.compiled`.

    In a process of its own an actor of environments in JAX shows progress only from unroll to
    unroll, which the controller might take for a hang. It computes on the CPU, unless it is given
    a GPU.
    """
    actors, name = plan.fragment("step"), plan.home("step")
    if actors.compiled is not None:
        return actors.compiled and not plan.is_one_program
    together = {*plan.nodes_in(name, NODES)}
    if together != _STEPPED or actors.gpus or (plan.one_process and jax_gpus()):
        return False
    return backend_of(env).compiled if plan.one_process else programs_need_cpu(env)


def idle_gpu(plan: Plan, env: Any) -> str:
    """A sentence for a plan that leaves this machine's GPU idle; empty for any other."""
    if not (plan.is_one_program and programs_need_cpu(env) and jax_gpus()):
        return ""
    return (
        f"the plan {plan.name} runs on the CPU alone, as a program that steps native environments "
        "does; the GPU is idle: without --plan, or under threads, it acts and learns"
    )
