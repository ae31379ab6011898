"""A teacher that a plan places apart from `act` teaches as one does within its call."""

from functools import cache

import numpy as np
import pytest
from plan_runs import PLAIN, assert_agree, loaded, result_of
from plan_runs import trained as train

from srl.launch.local import train as train_run
from srl.run.folder import create_run, open_run
from srl.run.resume import made_ready

QUICK = ("teacher_inline", "teacher_decoupled", "actors_central")
SLOW = (
    *("teacher_central", "learner_inline", "learner_decoupled"),
    *("actors_decoupled", "actors_writing", "actors_serving"),
)
"""Plans that do not wait for `make slow`, and those that do; see `drawn.py`."""


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Trains an experiment, once for each plan."""
    return cache(lambda *words: train(tmp_path_factory.mktemp("run"), *words))


@pytest.mark.parametrize(
    "placed", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]
)
def test_a_loop_trains_alike_wherever_its_teacher_is(trained, placed):
    assert_agree(trained("drawn:teacher_inline", *PLAIN), trained(f"drawn:{placed}"))


@pytest.mark.parametrize("plan", ["fused", pytest.param("replicated", marks=pytest.mark.slow)])
def test_a_teacher_within_the_call_of_act_trains_alike(trained, plan):
    assert_agree(trained("drawn:teacher_inline", *PLAIN), trained("drawn:teacher_inline", plan))


def test_a_run_with_a_placed_teacher_and_schedules_resumes_bitwise(trained, tmp_path):
    whole = trained("drawn:teacher_inline")
    begun = loaded(tmp_path, "drawn:teacher_inline", "--pause-at", "128")
    run = create_run(begun, tmp_path / "run")
    assert train_run(begun.experiment, run) == 0
    paused = result_of(run.checkpoints)
    goes_on = made_ready(*open_run(run.path, to_train=True), print, updates=4)
    assert train_run(goes_on.experiment, run, resume=True) == 0
    resumed = result_of(run.checkpoints)
    assert not np.array_equal(paused.parameters, whole.parameters)
    np.testing.assert_array_equal(resumed.parameters, whole.parameters)
    for field, leaves in whole.timesteps.items():
        for a, b in zip(leaves, resumed.timesteps[field], strict=True):
            np.testing.assert_array_equal(a, b)
