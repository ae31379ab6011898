"""Groups are divided evenly among the policy workers that are there."""

import threading
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srl.algorithms import PPO
from srl.config.experiment import Experiment
from srl.dataflow.plans import decoupled, env_servers
from srl.loop.acting.assignment import assignment
from srl.loop.wiring import Endpoints
from srl.streams.transport.message import Identity


@st.composite
def presences(draw):
    """Groups, replicas, and which replicas are there."""
    replicas = draw(st.integers(1, 12))
    there = draw(st.sets(st.integers(0, replicas - 1), min_size=1))
    return draw(st.integers(1, 200)), replicas, tuple(sorted(there))


@given(presences())
def test_nobody_has_more_groups_than_an_even_division_gives(presence):
    num_groups, _, there = presence
    load = Counter(assignment(*presence))
    assert set(load) <= set(there)
    assert sum(load.values()) == num_groups
    assert max(load.values()) <= -(-num_groups // len(there))


@given(presences())
def test_a_group_whose_own_replica_is_there_is_with_it(presence):
    num_groups, replicas, there = presence
    own = assignment(num_groups, replicas, tuple(range(replicas)))
    now = assignment(*presence)
    assert all(now[group] == own[group] for group in range(num_groups) if own[group] in there)


def endpoints(plan, peers):
    """A endpoints of an actor's, whose peers are at these addresses."""
    experiment = Experiment("a", env="CartPole-v1", num_envs=24, algorithm=PPO(), plan=plan)
    return Endpoints(experiment, "actors", 0, Identity(1, 0, 0), lambda: peers, threading.Event())


def test_the_groups_of_a_policy_worker_that_is_away_spread_over_all_others():
    peers = {"policies": [{"inference": "a"}, {}, {"inference": "c"}, {"inference": "d"}]}
    actor = endpoints(decoupled(actors=12, policies=4), peers)
    found = [actor.other_end(actor.calls("act"), group) for group in range(24)]
    assert Counter(found) == {(0, "a"): 8, (2, "c"): 8, (3, "d"): 8}


@pytest.mark.parametrize(("kind", "plan"), [
    ("sample", decoupled(actors=12, learners=3)),
    ("inference", env_servers(actors=12, learners=3)),
])  # fmt: skip
def test_learners_keep_their_groups_whoever_else_is_there(kind, plan):
    learners = "learner" if kind == "sample" else "learners"
    actor = endpoints(plan, {learners: [{kind: "a"}, {kind: "b"}, {kind: "c"}]})
    name = kind if kind == "sample" else actor.calls("act")
    found = Counter(actor.other_end(name, group) for group in range(24))
    assert found == {(0, "a"): 8, (1, "b"): 8, (2, "c"): 8}
    actor = endpoints(plan, {learners: [{kind: "a"}, {}, {kind: "c"}]})
    assert [actor.other_end(name, group) for group in range(8, 16)] == [None] * 8
