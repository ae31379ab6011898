"""Addresses at which the processes of a run listen: none that another host can reach."""

import pytest
from real_runs import RealRun
from watching import family, listening

NATIVE = repr("native:CartPole-v1")
SUMMING = ("replicated", "env_servers")
"""Plans with several learners, which Gloo's sockets connect."""

OTHERS = ("replicated", "inline", "central", "serving")


@pytest.mark.parametrize(
    "plan",
    ["env_servers", "decoupled", *(pytest.param(x, marks=pytest.mark.slow) for x in OTHERS)],
)
def test_a_run_on_one_host_listens_at_loopback_alone(tmp_path, plan):
    with RealRun(tmp_path, "--plan", plan, "--env-steps", 10**9, env=NATIVE) as run:
        run.wait(lambda: run.updates >= 1)
        processes = family(run.pid)
        assert len(processes) > 2
        found = set().union(*map(listening, processes))
    assert found == ({"127.0.0.1"} if plan in SUMMING else set())
