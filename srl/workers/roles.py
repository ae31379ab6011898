"""Which code a worker runs: a function of the nodes in its fragment."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from srl.dataflow.plan import Fragment
from srl.errors import RunError

if TYPE_CHECKING:
    from srl.workers.worker import Context

Role = Callable[["Context"], None]
"""Runs until its work is done or `context.stopping` is set."""


def role_of(fragment: Fragment) -> Role:
    """The role of a fragment's workers; its module is imported here and not before."""
    steps, acts = ("step" in fragment.placed, "act" in fragment.placed)
    gradient, update = ("gradient" in fragment.placed, "update" in fragment.placed)
    if steps and not gradient and not update:
        from srl.workers.actor_role import run_actor

        return run_actor
    if steps and gradient and not update:
        from srl.workers.actor_role import run_contributor

        return run_contributor
    if steps and gradient and update:
        from srl.workers.learner_role import run_whole_loop

        return run_whole_loop
    if gradient and update:
        from srl.workers.learner_role import run_learner

        return run_learner
    if update:
        from srl.workers.learner_role import run_server

        return run_server
    if acts and not gradient:
        from srl.workers.policy_role import run_policy

        return run_policy
    raise RunError(f"no worker runs the nodes {', '.join(fragment.placed)} together yet")


def named_role(name: str) -> Role:
    """The role that `module:function` names."""
    module, _, function = name.partition(":")
    return getattr(importlib.import_module(module), function)
