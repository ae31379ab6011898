"""Runs of real workers go on to their end whatever happens to these."""

import pytest
from real_runs import GROUPS, STEPS_OF_UPDATE, RealRun, Trouble, holdings

PLANS = {
    "inline": ["actors-0", "actors-1", "learner-0"],
    "decoupled": ["actors-0", "actors-1", "policies-0", "policies-1", "learner-0"],
}


def check_trouble(path, plan, faults, env_steps, *words, seconds=120):
    """A run among faults: it ends with what was asked for, accounts for it and leaves nothing."""
    words = ["--plan", plan, "--env-steps", env_steps, "--checkpoint-minutes", 0.01, *words]
    with RealRun(path, *words, "--heartbeat-seconds", 5, pace="0.01") as run:
        run.wait(lambda: run.updates >= 1)
        before = holdings(run.pid)
        trouble = Trouble(run, seed=faults)
        trouble.strike_often(PLANS[plan], faults)
        trouble.over()
        after = holdings(run.pid)
        assert run.updates * STEPS_OF_UPDATE < env_steps, "too few steps for so many faults"
        run.go.touch()
        assert run.end(seconds) == 0, run.told
        last = run.metrics()[-1]
        updates = -(-env_steps // STEPS_OF_UPDATE)
        assert (last["env_steps"], last["updates"]) == (updates * STEPS_OF_UPDATE, updates)
        produced, learned, in_flight, lost, rolled_back = run.account()
        assert produced == learned + in_flight + lost + rolled_back
        assert learned == updates * GROUPS
        assert in_flight <= GROUPS
        deaths = run.deaths()
        for name in PLANS[plan]:
            hits = sum(name == hit for hit, _ in trouble.hit.values())
            assert deaths.get(name, 0) >= hits, (name, hits, deaths)
        assert run.told.count("it is started again") == sum(deaths.values())
        assert "Traceback" not in run.told
        assert all(a <= b for a, b in zip(after, before, strict=True)), (before, after)
        assert trouble.traces.addresses
        assert trouble.traces.left(run) == ([], set())


@pytest.mark.parametrize("plan", PLANS)
def test_a_run_survives_kills_and_stops_at_random_moments(tmp_path, plan):
    more = ["--plan.policies.replicas", 2] if plan == "decoupled" else []
    check_trouble(tmp_path, plan, len(PLANS[plan]) + 1, 40_000, *more)


@pytest.mark.slow
def test_a_run_survives_fifty_faults(tmp_path):
    more = ["--plan.policies.replicas", 2]
    check_trouble(tmp_path, "decoupled", 50, 600_000, *more, seconds=600)
