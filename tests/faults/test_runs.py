"""Runs of real workers go on to their end whatever happens to these."""

import os
import re
import signal
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from real_runs import GROUPS, STEPS_OF_UPDATE, Delays, RealRun, Trouble, holdings
from small_runs import CARTPOLE, resolved, save

TAUGHT = Path(__file__).parents[1] / "loop" / "drawn.py"
NATIVE = repr("native:CartPole-v1")
SMALL = ["--plan", "inline", "--plan.actors.replicas", 1]
EVERYONE = ["actors-0", "actors-1", "policies-0", "policies-1", "learner-0"]


def check_trouble(path, plan, names, faults, env_steps, *words):
    """A run among faults: it ends with what was asked for, accounts for it and leaves nothing."""
    words = ["--plan", plan, "--env-steps", env_steps, "--checkpoint-minutes", 0.01, *words]
    with RealRun(path, *words, "--heartbeat-seconds", 5, pace="0.01") as run:
        run.wait(lambda: run.updates >= 1)
        before = holdings(run.pid)
        trouble = Trouble(run, seed=faults)
        trouble.strike_often(names, faults)
        trouble.over()
        after = holdings(run.pid)
        assert run.updates * STEPS_OF_UPDATE < env_steps, "too few steps for so many faults"
        run.order("go")
        assert run.end(600) == 0, run.told
        sys.stdout.write(run.told[run.told.index("started again: ") :])
        check_account(run, -(-env_steps // STEPS_OF_UPDATE))
        deaths = run.deaths()
        for name in names:
            hits = sum(name == hit for hit, _ in trouble.hit.values())
            assert deaths.get(name, 0) >= hits, (name, hits, deaths)
        assert run.told.count("it is started again") == sum(deaths.values())
        assert "Traceback" not in run.told
        assert all(a <= b for a, b in zip(after, before, strict=True)), (before, after)
        assert trouble.traces.addresses
        assert trouble.traces.left(run) == ([], set())


def check_account(run, updates, max_staleness=0):
    """The run has done so many updates, and knows where every unroll went."""
    last = run.metrics()[-1]
    assert (last["env_steps"], last["updates"]) == (updates * STEPS_OF_UPDATE, updates)
    produced, learned, in_flight, lost, rolled_back = run.account()
    assert produced == learned + in_flight + lost + rolled_back
    assert learned == updates * GROUPS
    assert in_flight <= GROUPS * (max_staleness + 1)


@pytest.mark.slow
def test_a_run_survives_the_death_of_an_actor_and_of_the_learner(tmp_path):
    check_trouble(tmp_path, "inline", ["actors-0", "learner-0"], 2, 20_000)


@pytest.mark.parametrize("plan", [pytest.param("decoupled", marks=pytest.mark.slow), "serving"])
def test_a_run_survives_kills_and_stops_at_random_moments(tmp_path, plan):
    two = ["--plan.policies.replicas", 2]
    check_trouble(tmp_path, plan, EVERYONE[1:], 2, 20_000, *two)


@pytest.mark.slow
def test_a_run_survives_fifty_faults(tmp_path):
    two = ["--plan.policies.replicas", 2]
    check_trouble(tmp_path, "decoupled", EVERYONE, 50, 200_000, *two)


def test_a_killed_teacher_is_started_again_and_the_run_goes_on(tmp_path):
    teacher, file = save(resolved(CARTPOLE), tmp_path / "teacher").path, tmp_path / "experiment.py"
    file.write_text(TAUGHT.read_text().replace("TEACHER", str(teacher)))
    command = ["run", f"{file}:teacher_inline", "--run-dir", f"{tmp_path}/run"]
    words = ["--updates", 10**6, "--report-every", 1]
    with RealRun(tmp_path, *words, command=command) as run:
        run.wait(lambda: run.updates >= 1)
        os.kill(run.workers()["teacher-0"], signal.SIGKILL)
        run.wait(lambda: "teacher-0 was killed by SIGKILL; it is started again" in run.told)
        run.wait(lambda: "teacher-0" in run.workers())
        run.wait(partial(run.has_passed, run.updates))
        run.wait(lambda: run.metrics()[-1].get("time/teacher/teach"))
        run.process.send_signal(signal.SIGINT)
        assert run.end() == 130, run.told
        assert run.deaths() == {"teacher-0": 1}
        produced, learned, in_flight, lost, rolled_back = run.account()
        assert produced == learned + in_flight
        assert (lost, rolled_back) == (0, 0)


@pytest.mark.parametrize(
    ("slow", "wait"),
    [
        pytest.param("policies-0", "inference", marks=pytest.mark.slow),
        ("learner-0", "send"),
    ],
)
def test_a_slow_worker_makes_the_others_wait_and_nothing_pile_up(tmp_path, slow, wait):
    words = ["--plan", "decoupled", "--plan.actors.replicas", 1, "--max-staleness", 2]
    words += ["--checkpoint-minutes", 0.001]  # whose threads begin with the first ones
    with RealRun(tmp_path, *words, env=NATIVE) as run:
        run.wait(lambda: run.updates >= 5 and run.checkpoint() >= 5)
        pids = run.workers().values()
        most = np.max([[holdings(pid) for pid in pids] for _ in range(100)], axis=0)
        with Delays(run, 1, [slow], longest=0.5) as delays:
            since = run.updates
            run.wait(lambda: delays.count >= 10 and run.updates > since)
        run.wait(lambda: np.all([holdings(pid) for pid in pids] <= most))
        run.process.send_signal(signal.SIGINT)
        assert run.end() == 130, run.told
        assert max(line["staleness_max"] for line in run.metrics()) <= 2
        # More than half of the time on an idle machine; on a busy one, all activities take longer.
        assert max(line.get(f"time/actors/{wait} wait", 0) for line in run.metrics()) > 0.15
        produced, learned, in_flight, lost, rolled_back = run.account()
        assert produced == learned + in_flight + lost + rolled_back
        assert (in_flight <= 3 * GROUPS, lost, rolled_back) == (True, 0, 0)


@pytest.mark.slow
def test_two_runs_at_once_one_of_them_after_its_controller_was_killed(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    words = [*SMALL, "--updates", 60, "--checkpoint-minutes", 0.01]
    with RealRun(tmp_path / "one", *words, env=NATIVE) as killed:
        killed.wait(lambda: killed.checkpoint() > 0)
        workers = killed.workers().values()
        killed.process.kill()
        killed.process.wait()
        with (
            RealRun(tmp_path / "two", *words, env=NATIVE) as two,
            RealRun(tmp_path / "one", command=["resume", str(killed.folder)]) as one,
        ):
            for run in (one, two):
                assert run.end() == 0, run.told
                check_account(run, 60)
        assert not [pid for pid in workers if os.path.exists(f"/proc/{pid}")]


@pytest.mark.slow
def test_a_lack_of_shared_memory_ends_the_run_with_its_size_and_a_cure(tmp_path):
    words = [*SMALL, "--algorithm.unroll-length", 400_000]
    with RealRun(tmp_path, *words, env=NATIVE, most_memory=30_000_000) as run:
        assert run.end() == 1, run.told
        assert re.search(r"cannot reserve [\d,]+ bytes of shared memory: File too large", run.told)
        assert "take smaller batches" in run.told
