import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from partitions import GRAPH, TAUGHT, WITH_TEACHER, WORKING, works

from srl.core.errors import PlanError
from srl.dataflow import Fragment, Plan, plans
from srl.dataflow.cut import cut, routes


@st.composite
def working_plans(draw):
    """Any way to divide the nodes that is not refused, with replicas."""
    plan = draw(st.sampled_from(WORKING))
    fragments = {
        name: dataclasses.replace(fragment, replicas=draw(st.integers(1, 3)))
        for name, fragment in plan.fragments.items()
    }
    made = dataclasses.replace(plan, fragments=fragments)
    return made if works(made) else plan


def names(fields):
    return [field.name for field in fields]


def streams_of(plan):
    return {(s.kind, s.source, s.target): s for s in cut(GRAPH, plan)}


@given(working_plans())
def test_streams_are_exactly_the_cut_edges(plan):
    crossing = [e for e in routes(GRAPH) if plan.home(e.source) != plan.home(e.target)]
    summed = [e for e in GRAPH.edges if e.kind == "sum" and plan.fragment(e.target).replicas > 1]
    streamed = [edge for stream in cut(GRAPH, plan) for edge in stream.edges]
    assert sorted(map(str, streamed)) == sorted(map(str, {*crossing, *summed}))


@given(working_plans())
def test_every_stream_joins_two_fragments_of_the_plan_or_the_replicas_of_one(plan):
    for stream in cut(GRAPH, plan):
        assert {stream.source, stream.target} <= plan.fragments.keys()
        assert (stream.source == stream.target) == (stream.transport == "collective")
        assert bool(stream.reply) <= (stream.kind == "inference")
        assert stream.request


@given(working_plans(), st.data())
def test_merging_two_fragments_never_adds_a_stream(plan, data):
    if len(plan.fragments) < 2:
        return
    one, other = data.draw(st.permutations(sorted(plan.fragments)))[:2]
    rest = {name: f for name, f in plan.fragments.items() if name not in (one, other)}
    nodes = plan.fragments[one].nodes + plan.fragments[other].nodes
    merged = dataclasses.replace(plan, fragments={**rest, one: Fragment(nodes)})
    try:
        fewer = cut(GRAPH, merged)
    except PlanError:
        return  # such as collect, now apart from both step and act
    assert len(fewer) <= len(cut(GRAPH, plan))


def test_a_plan_of_one_fragment_cuts_nothing():
    assert cut(GRAPH, plans.fused()) == ()
    assert cut(GRAPH, plans.replicated(1)) == ()


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        (plans.threads(), {"parameters learner actors", "sample actors learner"}),
        (plans.inline(), {"parameters learner actors", "sample actors learner"}),
        (plans.central(), {"inference actors learner"}),
        (
            plans.decoupled(),
            {"inference actors policies", "parameters learner policies", "sample actors learner"},
        ),
        (
            plans.serving(),
            {"inference actors policies", "parameters learner policies", "sample policies learner"},
        ),
        (plans.env_servers(), {"inference actors learners", "gradients learners learners"}),
        (plans.replicated(), {"gradients learners learners"}),
        (plans.parameter_server(), {"gradients actors actors"}),
    ],
)
def test_each_plan_has_the_streams_that_it_is_known_for(plan, expected):
    assert {f"{s.kind} {s.source} {s.target}" for s in cut(GRAPH, plan)} == expected


def test_a_request_for_actions_carries_what_acting_reads_and_memory():
    stream = streams_of(plans.decoupled())["inference", "actors", "policies"]
    assert names(stream.request) == ["observation", "terminated", "truncated", "memory"]
    assert names(stream.reply) == ["action", "log_prob", "memory"]


def test_where_the_unroll_is_written_at_the_policy_whole_timesteps_go_and_actions_come_back():
    stream = streams_of(plans.central())["inference", "actors", "learner"]
    assert {"observation", "reward", "terminated", "truncated", "lost"} <= {*names(stream.request)}
    assert names(stream.reply) == ["action"]


APART = Plan(
    "apart",
    {
        "actors": Fragment(("step", "collect"), 2),
        "policies": Fragment(("act",)),
        "teachers": Fragment(("teach",), 2),
        "learner": Fragment(("learn",)),
    },
)


def test_a_teacher_of_its_own_is_sent_observations_and_gives_advice_and_takes_no_parameters():
    streams = cut(TAUGHT, APART)
    (teaching,) = (s for s in streams if "teachers" in (s.source, s.target))
    assert (teaching.kind, teaching.source) == ("inference", "actors")
    assert names(teaching.request) == ["observation"]
    assert names(teaching.reply) == ["advice"]
    (acting,) = (s for s in streams if s.kind == "inference" and s.target == "policies")
    assert "advice" not in names(acting.reply)


def test_an_actor_that_teaches_sends_the_advice_to_who_collects():
    fragments = {
        "actors": Fragment(("step", "teach")),
        "all": Fragment(("act", "collect", "learn")),
    }
    (stream,) = cut(TAUGHT, Plan("own", fragments))
    assert {"advice", "observation", "reward"} <= {*names(stream.request)}
    assert names(stream.reply) == ["action"]


@pytest.mark.parametrize("plan", WITH_TEACHER, ids=lambda plan: plan.name)
def test_no_two_streams_of_a_plan_have_the_same_name(plan):
    streams = cut(TAUGHT, plan)
    assert len({stream.name for stream in streams}) == len(streams)


def test_transports_follow_from_where_the_ends_are():
    def transports(plan):
        return {s.kind: s.transport for s in cut(GRAPH, plan)}

    assert set(transports(plans.threads()).values()) == {"reference"}
    assert set(transports(plans.inline()).values()) == {"shared memory"}
    decoupled = plans.decoupled()
    actors = dataclasses.replace(decoupled.fragments["actors"], hosts=2)
    apart = dataclasses.replace(decoupled, fragments={**decoupled.fragments, "actors": actors})
    assert transports(apart) == {
        "inference": "ZeroMQ",
        "sample": "ZeroMQ",
        "parameters": "shared memory",
    }


def test_a_plan_that_does_not_fit_the_loop_is_refused():
    without = dataclasses.replace(GRAPH, calls=(("step", 8), ("act", 8), ("collect", 8)))
    with pytest.raises(PlanError, match="has the node 'learn'"):
        cut(without, plans.inline())
    with pytest.raises(PlanError, match="node 'step' is in no fragment"):
        cut(GRAPH, Plan("mine", {"learner": Fragment(("act", "collect", "learn"))}))
