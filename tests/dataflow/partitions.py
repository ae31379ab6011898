"""Every way to divide a loop's nodes into fragments."""

import itertools

from srl.algorithms import PPO
from srl.core.errors import PlanError
from srl.dataflow import Fragment, Plan
from srl.dataflow.rules import check
from srl.dataflow.trace import trace


class Taught(PPO):
    """A loop with a teacher."""

    def loop(self, run):
        policy = run.latest()

        def interact(timestep, memory):
            decision = run.act(policy, timestep, memory)
            advice = run.teach(timestep)
            following = run.step(decision.action)
            return following, decision.memory, run.collect(timestep, decision, advice)

        run.learn(run.gather(run.unroll(interact, self.unroll_length)))


GRAPH, TAUGHT = trace(PPO()), trace(Taught())


def partitions(nodes):
    """Plans of one replica each, by how they divide the nodes."""
    found = {}
    for homes in itertools.product(range(len(nodes)), repeat=len(nodes)):
        parts = [tuple(n for n, its in zip(nodes, homes, strict=True) if its == k) for k in homes]
        parts = tuple(dict.fromkeys(parts))
        fragments = {"_".join(part): Fragment(part) for part in parts}
        found[parts] = Plan(" | ".join(fragments), fragments)
    return list(found.values())


def works(plan, graph=GRAPH):
    """Whether a plan is not refused."""
    try:
        check(graph, plan)
    except PlanError:
        return False
    return True


PARTITIONS = partitions(GRAPH.nodes)
WORKING = [plan for plan in PARTITIONS if works(plan)]
WITH_TEACHER = [plan for plan in partitions(TAUGHT.nodes) if works(plan, TAUGHT)]
