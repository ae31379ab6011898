"""A loop is run as it is written, in every plan that accepts it."""

from functools import cache
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from plan_runs import PLAIN, assert_agree, loaded, trained

from srl.core.errors import PlanError
from srl.dataflow.plans import PLANS, named
from srl.dataflow.rules import check


class Looped(NamedTuple):
    """A small experiment and its loop; see `drawn.py`."""

    experiment: str = "drawn"
    program: str = "8:1"
    order: str = "backward"
    repeat: int = 1
    taught: float = 0.0

    @property
    def options(self):
        """As on the command line."""
        words = zip(self._fields[1:], self[1:], strict=True)
        return [part for name, x in words for part in (f"--algorithm.{name}", str(x))]


@st.composite
def loops(draw):
    """With one or two policies a pass, unrolls of several lengths, and several learns of each."""
    experiment = draw(st.sampled_from(["drawn", "drawn:with_memory", "drawn:with_replay"]))
    replay = experiment == "drawn:with_replay"
    length = st.just("8") if replay else st.sampled_from(["4", "8"])
    parts = []
    for _ in range(draw(st.integers(1, 2))):
        lengths = draw(st.lists(length, min_size=1, max_size=2))
        parts.append(f"{','.join(lengths)}:{draw(st.integers(1, 2))}")
    order = draw(st.sampled_from(["forward", "backward", "interleaved"]))
    taught = 0.0 if replay else draw(st.sampled_from([0.0, 0.5]))
    return Looped(experiment, " ".join(parts), order, draw(st.integers(1, 3)), taught)


@pytest.fixture(scope="module")
def agrees(tmp_path_factory):
    """Trains by a plan and, once for each loop, by the plain loop, and compares."""

    @cache
    def plain(loop):
        folder = tmp_path_factory.mktemp("plain")
        return trained(folder, loop.experiment, *PLAIN, *loop.options)

    def compare(plan, loop):
        """Whether the plan accepts the loop; where it does, it has to train alike."""
        folder = tmp_path_factory.mktemp("plans")
        options = *plan.split(), *loop.options
        try:
            loaded(folder, loop.experiment, *options)
        except PlanError:
            return False
        ours = trained(folder, loop.experiment, *options)
        assert_agree(plain(loop), ours)
        return True

    return compare


def accepts(folder, plan, loop):
    """Whether the rules about edges let the plan run the loop."""
    experiment = loaded(folder, loop.experiment, *PLAIN, *loop.options).experiment
    try:
        check(experiment.graph, named(plan))
    except PlanError:
        return False
    return True


TWO_POLICIES = Looped("drawn", "8:1 4:2", "backward", 3, 0.5)
"""With frame skip and a teacher, as the next but two."""
TWO_UNROLLS = Looped("drawn", "4,8:1")
INTERLEAVED = Looped("drawn:with_memory", "4,8:2", "interleaved")
EQUAL_UNROLLS = Looped("drawn", "8,8:1 8:2", "backward", 2, 0.5)
REPLAYED = Looped("drawn:with_replay", "8,8:1", "forward", 2)


@pytest.mark.parametrize(
    "plan",
    [
        "decoupled",
        *(
            pytest.param(plan, marks=pytest.mark.slow)
            for plan in (
                *("fused", "threads", "inline", "replicated"),
                "inline --plan.actors.compiled true",
            )
        ),
    ],
)
@pytest.mark.parametrize("loop", [TWO_POLICIES, pytest.param(TWO_UNROLLS, marks=pytest.mark.slow)])
def test_a_loop_of_several_unrolls_and_learns_trains_alike(agrees, plan, loop):
    assert agrees(plan, loop)


@pytest.mark.parametrize(
    ("plan", "loop"),
    [
        pytest.param("fused", INTERLEAVED, marks=pytest.mark.slow),
        ("inline", INTERLEAVED),
        ("threads", REPLAYED),
    ],
)
def test_loops_with_memory_or_a_replay_train_alike(agrees, plan, loop):
    assert agrees(plan, loop)


@pytest.mark.parametrize(
    "plan",
    ["central", *(pytest.param(p, marks=pytest.mark.slow) for p in ("env_servers", "replicated"))],
)
def test_equal_unrolls_are_collected_elsewhere_too(agrees, plan):
    assert agrees(plan, EQUAL_UNROLLS)


@pytest.mark.slow
def test_replicas_add_up_what_repeats_and_is_taught(agrees):
    assert agrees("replicated", Looped("drawn", "8:1", "backward", 3, 0.5))


@pytest.mark.parametrize("plan", ["central", "env_servers"])
def test_a_plan_that_cannot_run_a_loop_refuses_it(agrees, plan):
    assert not agrees(plan, TWO_UNROLLS)


def test_a_replay_of_unrolls_of_several_lengths_is_refused(tmp_path):
    loop = Looped("drawn:with_replay", "4,8:1")
    with pytest.raises(PlanError, match="unrolls of 4 and 8 steps, and the replay of DQNInstance"):
        loaded(tmp_path, loop.experiment, "fused", *loop.options)


def test_a_loop_with_a_teacher_needs_one(tmp_path):
    loop = Looped("drawn:with_replay", taught=0.5)
    with pytest.raises(PlanError, match="DQNInstance has no `teach`"):
        loaded(tmp_path, loop.experiment, "fused", *loop.options)


@pytest.mark.slow
@pytest.mark.parametrize("plan", PLANS)
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(loop=loops())
@example(loop=EQUAL_UNROLLS)  # every plan accepts it
def test_drawn_loops_train_alike_in_every_plan_that_accepts_them(
    agrees, tmp_path_factory, plan, loop
):
    assert agrees(plan, loop) == accepts(tmp_path_factory.mktemp("checked"), plan, loop)
