import threading

import pytest

from srl.algorithms import PPO
from srl.config.experiment import Experiment
from srl.dataflow import Fragment, Plan, plans
from srl.dataflow.cut import cut
from srl.dataflow.trace import trace
from srl.loop.wiring import Endpoints
from srl.streams.transport.message import Identity

GRAPH = trace(PPO())
OWN = Plan(
    "own",
    {
        "actors": Fragment(("step", "collect"), 4),
        "learner": Fragment(("act", "learn")),
    },
)


def listening(plan):
    """The streams that each fragment's workers listen for."""
    experiment = Experiment(name="a", env="CartPole-v1", plan=plan)
    found = set()
    for name in plan.fragments:
        identity, stop = Identity(1, 0, 0), threading.Event()
        listeners = Endpoints(experiment, name, 0, identity, dict, stop, "thread").listen()
        found |= {(kind, name) for kind in listeners}
        for listener in listeners.values():
            listener.close()
    return found


@pytest.mark.parametrize(
    "plan", [*(make() for make in plans.PLANS.values()), OWN], ids=lambda p: p.name
)
def test_workers_listen_for_exactly_the_streams_of_the_cut(plan):
    streams = [stream for stream in cut(GRAPH, plan) if stream.transport != "collective"]
    # Parameters are fetched from where they are changed; all else goes to who asked for it.
    ends = {(s.kind, s.source if s.kind == "parameters" else s.target) for s in streams}
    assert listening(plan) == ends
