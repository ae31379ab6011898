"""A loop is run as it is written, in every plan that accepts it."""

from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plan_runs import PLAIN, assert_agree, trained

from srl.dataflow.plans import PLANS
from srl.errors import PlanError


@st.composite
def programs(draw):
    """Loops with one or two policies a pass, unrolls of several lengths, and several learns."""
    parts = []
    for _ in range(draw(st.integers(1, 2))):
        lengths = draw(st.lists(st.sampled_from(["4", "8"]), min_size=1, max_size=2))
        parts.append(f"{','.join(lengths)}:{draw(st.integers(1, 2))}")
    return " ".join(parts)


def options_of(program, repeat=1, taught=0.0):
    words = {"program": program, "repeat": repeat, "taught": taught}
    return [part for name, x in words.items() for part in (f"--algorithm.{name}", str(x))]


@pytest.fixture(scope="module")
def agrees(tmp_path_factory):
    """Trains by a plan and, once for each loop, by the plain loop, and compares."""
    plain = cache(lambda *options: trained(tmp_path_factory.mktemp("plain"), "drawn", *options))

    def compare(plan, *loop):
        options = options_of(*loop)
        try:
            ours = trained(tmp_path_factory.mktemp("plans"), "drawn", plan, *options)
        except PlanError:
            return False
        assert_agree(plain(*PLAIN, *options), ours)
        return True

    return compare


TWO_POLICIES = ("8:1 4:2", 3, 0.5)
"""With frame skip and a teacher, as the next but one."""
TWO_UNROLLS = ("4,8:1",)
EQUAL_UNROLLS = ("8,8:1 8:2", 2, 0.5)


@pytest.mark.parametrize("plan", ["fused", "threads", "inline", "decoupled", "replicated"])
@pytest.mark.parametrize("loop", [TWO_POLICIES, TWO_UNROLLS])
def test_a_loop_of_several_unrolls_and_learns_trains_alike(agrees, plan, loop):
    assert agrees(plan, *loop)


@pytest.mark.parametrize("plan", ["central", "env_servers", "replicated"])
def test_equal_unrolls_are_collected_elsewhere_too(agrees, plan):
    assert agrees(plan, *EQUAL_UNROLLS)


def test_a_parameter_server_adds_up_what_repeats_and_is_taught(agrees):
    assert agrees("parameter_server", "8:1", 3, 0.5)


@pytest.mark.parametrize("plan", ["central", "env_servers", "parameter_server"])
def test_a_plan_that_cannot_run_a_loop_refuses_it(agrees, plan):
    assert not agrees(plan, *TWO_UNROLLS)


@pytest.mark.slow
@pytest.mark.parametrize("plan", PLANS)
@settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(program=programs(), repeat=st.integers(1, 3), taught=st.sampled_from([0.0, 0.5]))
def test_drawn_loops_train_alike_in_every_plan_that_accepts_them(
    agrees, plan, program, repeat, taught
):
    agrees(plan, program, repeat, taught)
