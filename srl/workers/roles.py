"""The code that a worker runs: it follows from what pins its fragment."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from srl.dataflow.nodes import TABLE
from srl.dataflow.plan import Fragment

if TYPE_CHECKING:
    from srl.workers.worker import WorkerContext

Role = Callable[["WorkerContext"], None]
"""Runs until its work is done or `context.stopping` is set."""


_ROLES = {
    "environments": "actor_role:run_actor",
    "environments, parameters": "learner_role:run_whole_loop",
    "parameters": "learner_role:run_learner",
    "": "policy_role:run_policy",
}
"""The roles, by what pins the fragment to its place."""


def role_of(fragment: Fragment) -> Role:
    """The role of a fragment's workers; its module is imported here and not before."""
    pins = ", ".join(sorted({TABLE[node].pinned_by for node in fragment.nodes} - {""}))
    return named_role(f"srl.workers.{_ROLES[pins]}")


def named_role(name: str) -> Role:
    """The role that `module:function` names."""
    module, _, function = name.partition(":")
    return getattr(importlib.import_module(module), function)
