import pytest
from hypothesis import given
from hypothesis import strategies as st

from srl.loop.learning.bottleneck import LEAST, bottleneck

ACTIVITIES = ("step", "act", "inference wait", "send wait", "idle")


def shares_of(*names):
    """Shares of these activities, which add up to 1."""
    parts = st.tuples(*[st.integers(0, 1000)] * (len(names) - 1), st.integers(1, 1000))
    shares = parts.map(lambda values: [value / sum(values) for value in values])
    return shares.map(lambda values: dict(zip(names, values, strict=True)))


def actors(step=0.0, act=0.0, actions=0.0, tickets=0.0):
    idle = 1 - step - act - actions - tickets
    return dict(zip(ACTIVITIES, (step, act, actions, tickets, idle), strict=True))


def learner(learn, wait):
    return {"learn": learn, "batch wait": wait, "idle": 1 - learn - wait}


@pytest.mark.parametrize(
    ("shares", "told"),
    [
        (
            {"learner": learner(0.97, 0.02), "actors": actors(0.2, 0.19, tickets=0.61)},
            "learner-bound: actors wait 61 % of the time",
        ),
        (
            {"learner": learner(0.25, 0.74), "actors": actors(0.6, 0.12, tickets=0.25)},
            "actor-bound: the learner waits 74 % of the time",
        ),
        (
            {
                "learner": learner(0.13, 0.85),
                "actors": actors(0.01, actions=0.81, tickets=0.17),
                "policies": {"act": 0.56, "idle": 0.44},
            },
            "inference-bound: actors wait 81 % of the time for actions",
        ),
        (
            {"learner": learner(0.97, 0.02), "actors": actors(0.5, 0.1, tickets=0.09)},
            "no bottleneck: the learner and actors wait less than 10 % of the time",
        ),
        (
            {"learner": learner(0.4, 0.5), "actors": actors(0.01, actions=0.02)},
            "actor-bound: the learner waits 50 % of the time",
        ),
        (
            {"trainer": {"learn": 0.7, "step": 0.1, "act": 0.15, "idle": 0.05}},
            "learning takes 70 % of the time",
        ),
        (
            {"learner": learner(0.1, 0.9), "actors": {"step": 0.3, "skew": 0.6, "act": 0.1}},
            "actor-bound: the learner waits 90 % of the time, the slowest environments take 60 %",
        ),
        (
            {"trainer": {"learn": 0.4, "step": 0.29, "skew": 0.3, "idle": 0.01}},
            "stepping takes 59 % of the time, the slowest environments take 30 %",
        ),
        ({"learner": learner(0.1, 0.82)}, "waiting for unrolls takes 82 % of the time"),
        ({"trainer": {"update": 0.98, "idle": 0.02}}, "the compiled loop takes 98 % of the time"),
    ],
)
def test_what_holds_a_run_back_is_told_in_words(shares, told):
    assert bottleneck(shares) == told


@given(shares_of("learn", "batch wait", "idle"), shares_of(*ACTIVITIES))
def test_who_waits_less_for_the_other_is_what_holds_the_run_back(learner, actors):
    told = bottleneck({"learner": learner, "actors": actors})
    most = max(actors["send wait"], learner["batch wait"])
    assert told.startswith("no bottleneck") == (most < LEAST)
    acts_wait = actors["send wait"] >= learner["batch wait"]
    assert told.startswith("learner-bound") == (acts_wait and most >= LEAST)
    percent = int(told.partition(" %")[0].rpartition(" ")[2])
    assert 100 * LEAST <= percent <= 100


@given(shares_of("learn", "batch wait", "idle"), shares_of(*ACTIVITIES))
def test_the_order_of_the_kinds_of_worker_does_not_matter(learner, actors):
    one = bottleneck({"learner": learner, "actors": actors})
    assert one == bottleneck({"actors": actors, "learner": learner})


@given(shares_of("learn", "step", "act", "idle"))
def test_where_one_worker_does_everything_its_longest_activity_is_told(shares):
    told = bottleneck({"trainer": shares})
    assert f"{100 * max(shares.values()):.0f} %" in told
