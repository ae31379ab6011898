"""Which code a worker runs: it follows from what pins its fragment, and from the sums it cuts."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from srl.dataflow.nodes import GIVEN_BY, TABLE
from srl.dataflow.plan import Fragment

if TYPE_CHECKING:
    from srl.workers.worker import WorkerContext

Role = Callable[["WorkerContext"], None]
"""Runs until its work is done or `context.stopping` is set."""


_ROLES = {
    # What pins the fragment to its place, and whether gradient sums leave it or come to it.
    ("environments", False): "actor_role:run_actor",
    ("environments", True): "actor_role:run_contributor",
    ("environments, parameters", False): "learner_role:run_whole_loop",
    ("parameters", False): "learner_role:run_learner",
    ("parameters", True): "learner_role:run_server",
    ("", False): "policy_role:run_policy",
}
"""The rules for plans (`srl.dataflow.rules`) leave no fragment of another kind."""


def role_of(fragment: Fragment) -> Role:
    """The role of a fragment's workers; its module is imported here and not before."""
    nodes = fragment.placed
    pins = ", ".join(sorted({TABLE[node].pinned_by for node in nodes} - {""}))
    sums_cross = any(
        (taker in nodes) != (GIVEN_BY[taken.value] in nodes)
        for taker, row in TABLE.items()
        for taken in row.takes
        if taken.kind == "sum"
    )
    return named_role(f"srl.workers.{_ROLES[pins, sums_cross]}")


def named_role(name: str) -> Role:
    """The role that `module:function` names."""
    module, _, function = name.partition(":")
    return getattr(importlib.import_module(module), function)
