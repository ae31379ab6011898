"""A run in processes that was stopped by Ctrl-C ends as one that never was."""

import shutil
import signal

import numpy as np
import pytest
from real_runs import RealRun

from srl.config.experiment import load_experiment
from srl.core.tree import leaves_of
from srl.record.checkpoint import Checkpoints
from srl.run.folder import create_run
from srl.streams.group_state import unpack

UPDATES = 200
ARGUMENTS = ["--updates", str(UPDATES), "--plan.actors.replicas", "1", "--plan"]
NATIVE = repr("native:CartPole-v1")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The last state of a run that was not stopped."""
    with RealRun(tmp_path_factory.mktemp("whole"), *ARGUMENTS, "inline", env=NATIVE) as run:
        assert run.end() == 0, run.told
        return last_state(run.folder)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A run that was stopped in its midst."""
    with RealRun(tmp_path_factory.mktemp("stopped"), *ARGUMENTS, "inline", env=NATIVE) as run:
        run.wait(lambda: run.updates >= 3)
        run.process.send_signal(signal.SIGINT)
        assert run.end() == 130, run.told
        assert 3 <= run.checkpoint() < UPDATES
        return run


def last_state(folder):
    """What learning and the environments' future depend on."""
    checkpoints = Checkpoints(folder / "checkpoints")
    tree, metadata = checkpoints.restore()
    checkpoints.close()
    assert metadata["updates"] == UPDATES
    return tree


def test_under_the_same_plan_to_the_last_bit(whole, stopped, tmp_path):
    shutil.copytree(stopped.path, tmp_path, dirs_exist_ok=True)
    with RealRun(tmp_path, command=["resume", str(tmp_path / "run")]) as run:
        assert run.end() == 0, run.told
    resumed = last_state(run.folder)
    for name in ("learners", "episodes"):
        for a, b in zip(leaves_of(whole[name]), leaves_of(resumed[name]), strict=True):
            np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(whole["environments"], resumed["environments"])


@pytest.mark.parametrize("plan", [pytest.param("decoupled", marks=pytest.mark.slow), "serving"])
def test_under_another_plan_with_the_same_actions(whole, stopped, tmp_path, plan):
    words = [*ARGUMENTS, plan]
    create_run(load_experiment(str(stopped.path / "experiment.py"), words), tmp_path / "run")
    shutil.copytree(
        stopped.folder / "checkpoints", tmp_path / "run" / "checkpoints", dirs_exist_ok=True
    )
    with RealRun(tmp_path, command=["resume", str(tmp_path / "run")], env=NATIVE) as run:
        assert run.end() == 0, run.told
    resumed = last_state(run.folder)
    a, b = (unpack(tree["environments"].copy(), 1 << 30) for tree in (whole, resumed))
    assert sorted(a) == sorted(b)
    for group in a:  # where the actions have led
        for x, y in zip(
            leaves_of(a[group]["timestep"]), leaves_of(b[group]["timestep"]), strict=True
        ):
            np.testing.assert_array_equal(x, y)
    a, b = (
        np.concatenate([np.ravel(x) for x in leaves_of(parameters(t))]) for t in (whole, resumed)
    )
    assert np.linalg.norm(a - b) / np.linalg.norm(a) < 1e-5


def parameters(tree):
    return {name: state["params"] for name, state in tree["learners"].items()}
