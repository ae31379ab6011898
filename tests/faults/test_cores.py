"""Workers that wake each other stay on cores of their own where there are few."""

import os
import signal

import pytest
from real_runs import RealRun

DECOUPLED = "--plan", "decoupled", "--groups", 2
CORES = sorted(os.sched_getaffinity(0))[:2]


@pytest.fixture
def two_cores():
    """This process' children may run on two cores alone."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, CORES)
    yield
    os.sched_setaffinity(0, before)


def cores(pid):
    """The cores that the threads of a process may run on."""
    found = {frozenset(os.sched_getaffinity(int(t))) for t in os.listdir(f"/proc/{pid}/task")}
    return set(next(iter(found))) if len(found) == 1 else found


@pytest.mark.skipif(len(CORES) < 2, reason="there is one core")
@pytest.mark.usefixtures("two_cores")
def test_the_policy_worker_and_the_learner_have_a_core_each_also_when_started_again(tmp_path):
    with RealRun(tmp_path, *DECOUPLED, "--updates", 100_000) as run:
        run.wait(lambda: run.has_passed(1))
        workers = run.workers()
        policy, learner = cores(workers["policies-0"]), cores(workers["learner-0"])
        assert len(policy) == len(learner) == 1
        assert policy | learner == set(CORES)
        assert cores(workers["actors-0"]) == set(CORES)

        os.kill(workers["policies-0"], signal.SIGKILL)
        run.wait(lambda: run.workers().get("policies-0") not in (None, workers["policies-0"]))
        again = run.workers()["policies-0"]
        run.wait(lambda: cores(again) == policy)
