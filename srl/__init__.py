"""srl: distributed reinforcement learning for simulators.

Write a training loop once, as a dataflow graph; run it on one core or on ten thousand by choosing
a plan. This package exports what an experiment file needs, each name loaded at its first use;
importing it loads neither jax nor flax nor numpy.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from srl.system.open_files import raise_limit

if TYPE_CHECKING:
    from srl.api.from_python import Run, train
    from srl.config.curriculum import Lesson
    from srl.config.evaluation import Evaluation
    from srl.config.experiment import Experiment
    from srl.config.fixed import Fixed
    from srl.config.self_play import SelfPlay
    from srl.config.tracking import Tracking
    from srl.core.errors import PlanError, RunError, SrlError, UserError
    from srl.core.headers import get_include
    from srl.core.schedule import Schedule
    from srl.dataflow import Fragment, Plan, plans
    from srl.evaluation.evaluate import evaluate
    from srl.policies.agent import Agent, load
    from srl.pools import EnvConfig, Mixture, make_pool, make_vec
    from srl.run.hooks import Event

__all__ = [
    "Agent",
    "EnvConfig",
    "Evaluation",
    "Event",
    "Experiment",
    "Fixed",
    "Fragment",
    "Lesson",
    "Mixture",
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
    "Agent": "srl.policies.agent",
    "EnvConfig": "srl.pools",
    "Evaluation": "srl.config.evaluation",
    "Event": "srl.run.hooks",
    "Experiment": "srl.config.experiment",
    "Fixed": "srl.config.fixed",
    "Fragment": "srl.dataflow",
    "Lesson": "srl.config.curriculum",
    "Mixture": "srl.pools",
    "Plan": "srl.dataflow",
    "PlanError": "srl.core.errors",
    "Run": "srl.api.from_python",
    "RunError": "srl.core.errors",
    "Schedule": "srl.core.schedule",
    "SelfPlay": "srl.config.self_play",
    "SrlError": "srl.core.errors",
    "Tracking": "srl.config.tracking",
    "UserError": "srl.core.errors",
    "evaluate": "srl.evaluation.evaluate",
    "get_include": "srl.core.headers",
    "load": "srl.policies.agent",
    "make_pool": "srl.pools",
    "make_vec": "srl.pools",
    "plans": "srl.dataflow",
    "train": "srl.api.from_python",
}

raise_limit()  # here, as every process of srl's passes by


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
