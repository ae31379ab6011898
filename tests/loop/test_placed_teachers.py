"""A teacher that a plan places apart from `act` teaches as one does within its call."""

from functools import cache

import pytest
from plan_runs import PLAIN, assert_agree
from plan_runs import trained as train

QUICK = ("teacher_inline", "teacher_decoupled", "actors_central")
SLOW = (
    *("teacher_central", "learner_inline", "learner_decoupled"),
    *("actors_decoupled", "actors_writing", "actors_serving"),
)
"""Plans that do not wait for `make slow`, and those that do; see `drawn.py`."""
TAUGHT = ("--algorithm.taught", "0.5")


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """Trains by the plain loop, once for each experiment."""
    return cache(lambda name: train(tmp_path_factory.mktemp("plain"), name, *PLAIN, *TAUGHT))


@pytest.mark.parametrize(
    "placed", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]
)
def test_a_loop_trains_alike_wherever_its_teacher_is(plain, tmp_path, placed):
    assert_agree(plain("drawn"), train(tmp_path, f"drawn:{placed}", *TAUGHT))
