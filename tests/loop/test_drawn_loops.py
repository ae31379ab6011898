"""A loop is run as it is written, in every plan that accepts it."""

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


def agrees(folder, plan, program):
    """Trains by the plain loop and by a plan that accepts the loop, and compares."""
    options = ("--algorithm.program", program)
    name = program.replace(" ", "_")
    try:
        ours = trained(folder / f"{plan} {name}", "drawn", plan, *options)
    except PlanError:
        return False
    assert_agree(trained(folder / f"plain {name}", "drawn", *PLAIN, *options), ours)
    return True


TWO_POLICIES = "8:1 4:2"
TWO_UNROLLS = "4,8:1"


@pytest.mark.parametrize("plan", ["fused", "threads", "inline", "decoupled", "replicated"])
@pytest.mark.parametrize("program", [TWO_POLICIES, TWO_UNROLLS])
def test_a_loop_of_several_unrolls_and_learns_trains_alike(tmp_path, plan, program):
    assert agrees(tmp_path, plan, program)


@pytest.mark.parametrize("plan", ["central", "env_servers", "replicated"])
def test_equal_unrolls_are_collected_elsewhere_too(tmp_path, plan):
    assert agrees(tmp_path, plan, "8,8:1 8:2")


@pytest.mark.parametrize("plan", ["central", "env_servers", "parameter_server"])
def test_a_plan_that_cannot_run_a_loop_refuses_it(tmp_path, plan):
    assert not agrees(tmp_path, plan, TWO_UNROLLS)


@pytest.mark.slow
@pytest.mark.parametrize("plan", PLANS)
@settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(program=programs())
def test_drawn_loops_train_alike_in_every_plan_that_accepts_them(tmp_path_factory, plan, program):
    agrees(tmp_path_factory.mktemp("drawn"), plan, program)
