"""Every way to divide the loop's nodes into fragments."""

import itertools

from srl.algorithms import PPO
from srl.core.errors import PlanError
from srl.dataflow import NODES, Fragment, Plan
from srl.dataflow.rules import check
from srl.dataflow.trace import trace

GRAPH = trace(PPO())


def partitions():
    """Plans of one replica each, by how they divide the nodes."""
    found = {}
    for homes in itertools.product(range(len(NODES)), repeat=len(NODES)):
        parts = [tuple(n for n, its in zip(NODES, homes, strict=True) if its == k) for k in homes]
        parts = tuple(dict.fromkeys(parts))
        fragments = {"_".join(part): Fragment(part) for part in parts}
        found[parts] = Plan(" | ".join(fragments), fragments)
    return list(found.values())


def works(plan):
    """Whether a plan is not refused."""
    try:
        check(GRAPH, plan)
    except PlanError:
        return False
    return True


PARTITIONS = partitions()
WORKING = [plan for plan in PARTITIONS if works(plan)]
