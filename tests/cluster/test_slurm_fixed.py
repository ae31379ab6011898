"""A fixed policy of another run plays on Slurm's hosts as it does here."""

import shutil

import numpy as np
import pytest
from slurm_run import SlurmRun, parameters

import srl
from srl.run.folder import open_run

GAME = """
from srl import Evaluation, Experiment, Fixed
from srl.algorithms import PPO
from srl.envs.hide_and_seek import HideAndSeek
from srl.networks import MLP

experiment = Experiment(
    name="game",
    env=HideAndSeek(horizon=20),
    num_envs=16,
    algorithm=PPO(network=MLP(width=16), unroll_length=8, epochs=1, minibatches=2),
    policies={{"seeker*": {seekers}, "hider*": "hiders"}},
    evaluation={evaluation},
    updates={updates},
)
"""
PLAN = ("--plan", "decoupled", "--plan.actors.replicas", "2", "--plan.actors.hosts", "2")


@pytest.mark.slow
def test_a_fixed_policy_plays_on_other_hosts_and_in_the_evaluators_job(slurm, tmp_path):
    first, second, source = (tmp_path / name for name in ("first.py", "second.py", "runs/first"))
    first.write_text(GAME.format(seekers='"seekers"', evaluation=None, updates=1))
    srl.train(first, source / "only", quiet=True)
    evaluation = "Evaluation(episodes=2, every=1)"
    seekers = f"Fixed({str(source)!r})"
    second.write_text(GAME.format(seekers=seekers, evaluation=evaluation, updates=3))
    here = srl.train(second, tmp_path / "here", overrides=PLAN, quiet=True)

    run = SlurmRun(slurm(5), tmp_path / "run", *PLAN, target=(str(second),))
    run.until(lambda run: "jobs: " in run.told)
    shutil.rmtree(source)
    assert run.wait() == 0, run.all
    fixed = open_run(run.folder)[1].experiment.fixed["seeker*"]
    assert (fixed.run, fixed.version) == (str(source / "only"), 1)
    ours, theirs = parameters(run.folder), parameters(here.path)
    assert np.linalg.norm(ours - theirs) / np.linalg.norm(theirs) < 1e-5
    last = [
        [line for line in r.metrics if "eval/return" in line][-1]
        for r in (here, srl.Run(run.folder))
    ]
    assert last[0]["eval/return/hider"] == last[1]["eval/return/hider"] != 0
