"""The built-in plans; each is a few lines that give which nodes of the loop run where.

    experiment = Experiment(..., plan=plans.inline(actors=4))

`srl plan FILE --plan NAME` draws one.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any, Literal

from srl.dataflow.plan import Fragment, Plan
from srl.errors import PlanError

_STEP, _INTERACT = ("step",), ("step", "act", "collect")
_LEARN, _ALL = ("learn",), ("step", "act", "collect", "learn")


def fused() -> Plan:
    """The whole loop is one compiled program, which steps a native pool from inside."""
    return Plan("fused", {"trainer": Fragment(_ALL, compiled=True)}, one_process=True)


def threads(actors: int = 2) -> Plan:
    """Actor threads beside the learner, in one process (as in Sebulba)."""
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


def env_servers(actors: int = 2, learners: int = 2) -> Plan:
    """Actor processes that only step, for several learners that act and average gradients."""
    learner = Fragment(("act", "collect", "learn"), learners)
    return Plan("env_servers", {"actors": Fragment(_STEP, actors), "learners": learner})


def replicated(learners: int = 2) -> Plan:
    """Several whole loops that average their gradients (as in DD-PPO); one is the plain loop."""
    return Plan("replicated", {"learners": Fragment(_ALL, learners)}, one_process=learners == 1)


def parameter_server(actors: int = 2) -> Plan:
    """Actors that send gradients, and a server that holds the parameters (as in A3C).

    The server waits for all of them, so staleness is 0 whatever `max_staleness` allows.
    """
    fragments = {
        "actors": Fragment(("step", "act", "collect", "gradient"), actors),
        "server": Fragment(("update",)),
    }
    return Plan("parameter_server", fragments)


PLANS: dict[str, Callable[[], Plan]] = {
    "fused": fused,
    "threads": threads,
    "inline": inline,
    "central": central,
    "decoupled": decoupled,
    "env_servers": env_servers,
    "replicated": replicated,
    "parameter_server": parameter_server,
}
"""The plans by name, as `--plan` takes it."""


def named(name: str) -> Plan:
    """The plan of this name, with its default sizes.

    Raises:
        PlanError: Naming the nearest, if there is none.
    """
    if name not in PLANS:
        near = difflib.get_close_matches(name, PLANS, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(PLANS)} and auto"
        raise PlanError(f"there is no plan {name!r}; {hint}")
    return PLANS[name]()


def resolve(plan: Plan | str | None, env: Any) -> Plan | Literal["auto"]:
    """The plan that an experiment means by its fields `plan` and `env`; auto is left as it is.

    Raises:
        PlanError: If there is no plan of this name.
    """
    if plan == "auto":
        return "auto"
    if isinstance(plan, str):
        return named(plan)
    return usual(env) if plan is None else plan


IN_PROGRAMS = ("native:", "jax:")
"""Prefixes of environments that a compiled program can step."""


def usual(env: Any) -> Plan:
    """The plan for an experiment that names none.

    The loop of a native environment, or of one in JAX, is compiled whole; any other is stepped by
    the plain loop in one process.

    Args:
        env: What the experiment trains on.
    """
    name = env if isinstance(env, str) else getattr(env, "pool_id", "")
    return fused() if name.startswith(IN_PROGRAMS) else replicated(learners=1)
