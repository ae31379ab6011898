"""No action that is learned from is older than the bound, however long who takes."""

import signal
import time
from functools import partial

import pytest
from real_runs import GROUPS, Delays, RealRun

NATIVE = repr("native:CartPole-v1")


def staleness(run):
    """The greatest of each batch; there is a line of metrics for each."""
    lines = run.metrics()
    assert [line["updates"] for line in lines] == list(range(1, len(lines) + 1))
    return [line["staleness_max"] for line in lines]


@pytest.mark.parametrize(
    "bound", [pytest.param(1, marks=pytest.mark.slow), pytest.param(4, marks=pytest.mark.slow)]
)
def test_the_bound_holds_for_environments_that_take_random_times(tmp_path, bound):
    words = ["--plan", "threads", "--max-staleness", bound, "--updates", 30]
    with RealRun(tmp_path, *words, pace="0.002") as run:
        assert run.end() == 0, run.told
    found = staleness(run)
    assert len(found) == 30
    assert min(found) == 0
    assert min(bound, 1) <= max(found) <= bound


def check_delays(path, bound, seconds):
    """All workers are stopped at random moments, for so many seconds."""
    words = ["--plan", "decoupled", "--max-staleness", bound, "--updates", 10**7]
    words += ["--plan.actors.replicas", 2]
    with RealRun(path, *words, "--plan.policies.replicas", 2, env=NATIVE) as run:
        run.wait(lambda: run.updates >= 1)
        end = time.monotonic() + seconds
        with Delays(run, seed=bound) as delays:
            while time.monotonic() < end:  # it never stands still
                run.wait(partial(run.has_passed, run.updates), 30)
        run.process.send_signal(signal.SIGINT)
        assert run.end() == 130, run.told
    assert delays.count > seconds
    assert "started again" not in run.told
    assert 0 <= max(staleness(run)) <= bound
    produced, learned, in_flight, lost, rolled_back = run.account()
    assert produced == learned + in_flight
    assert (lost, rolled_back) == (0, 0)
    assert in_flight <= GROUPS * (bound + 1)


def test_the_bound_holds_among_delayed_workers(tmp_path):
    check_delays(tmp_path, bound=1, seconds=4)


@pytest.mark.slow
@pytest.mark.parametrize("bound", [0, 1, 4])
def test_the_bound_holds_among_delayed_workers_for_minutes(tmp_path, bound):
    check_delays(tmp_path, bound, seconds=200)
