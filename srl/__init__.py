"""srl: distributed reinforcement learning for simulators.

Write a training loop once, as a dataflow graph; run it on one core or on ten thousand by choosing
a plan. This package exports what an experiment file needs, each name loaded at its first use;
importing it loads neither jax nor flax nor numpy.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from srl.system.open_files import raise_limit

if TYPE_CHECKING:
    from srl.agent import Agent, load
    from srl.dataflow import Fragment, Plan, plans
    from srl.errors import PlanError, RunError, SrlError, UserError
    from srl.evaluating import Evaluation
    from srl.evaluation.evaluate import evaluate
    from srl.experiment import Experiment
    from srl.from_python import Run, train
    from srl.headers import get_include
    from srl.pools import EnvConfig, make_pool, make_vec
    from srl.run.hooks import Event
    from srl.schedule import Schedule
    from srl.self_play import Fixed, SelfPlay
    from srl.tracking import Tracking

__all__ = [
    "Agent",
    "EnvConfig",
    "Evaluation",
    "Event",
    "Experiment",
    "Fixed",
    "Fragment",
    "Plan",
    "PlanError",
    "Run",
    "RunError",
    "Schedule",
    "SelfPlay",
    "SrlError",
    "Tracking",
    "UserError",
    "evaluate",
    "get_include",
    "load",
    "make_pool",
    "make_vec",
    "plans",
    "train",
]

_HOMES = {
    "Agent": "srl.agent",
    "EnvConfig": "srl.pools",
    "Evaluation": "srl.evaluating",
    "Event": "srl.run.hooks",
    "Experiment": "srl.experiment",
    "Fixed": "srl.self_play",
    "Fragment": "srl.dataflow",
    "Plan": "srl.dataflow",
    "PlanError": "srl.errors",
    "Run": "srl.from_python",
    "RunError": "srl.errors",
    "Schedule": "srl.schedule",
    "SelfPlay": "srl.self_play",
    "SrlError": "srl.errors",
    "Tracking": "srl.tracking",
    "UserError": "srl.errors",
    "evaluate": "srl.evaluation.evaluate",
    "get_include": "srl.headers",
    "load": "srl.agent",
    "make_pool": "srl.pools",
    "make_vec": "srl.pools",
    "plans": "srl.dataflow",
    "train": "srl.from_python",
}

raise_limit()  # here, as every process of srl's passes by


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
