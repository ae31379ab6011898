"""`srl run --on slurm`, as from a login node."""

import json
import signal
from pathlib import Path

import numpy as np
import pytest
from slurm_run import APART, CARTPOLE, SECONDS, SlurmRun, newest, parameters, updates
from watching import account

from srl.api.cli import main
from srl.config.experiment import load_experiment
from srl.launch.local import train
from srl.run.folder import create_run
from srl.system.child_process import program_command

GAME = (str(Path(__file__).parents[2] / "experiments" / "hide_and_seek.py"), "--num-envs", "32")
REPLICATED = ("--plan", "replicated", "--plan.learners.hosts", "2", "--groups", "4")


@pytest.mark.parametrize(
    ("target", "plan"),
    [
        pytest.param(CARTPOLE, APART, id="cartpole, decoupled"),
        pytest.param(CARTPOLE, REPLICATED, marks=pytest.mark.slow, id="cartpole, replicated"),
        pytest.param(GAME, APART, marks=pytest.mark.slow, id="game, decoupled"),
        pytest.param(GAME, REPLICATED, marks=pytest.mark.slow, id="game, replicated"),
    ],
)
def test_a_run_is_spread_over_hosts_and_trains_as_on_this_machine(slurm, tmp_path, target, plan):
    run = SlurmRun(slurm(4), tmp_path / "run", *plan, "--updates", "3", target=target)
    run.until(lambda run: "jobs: " in run.told)
    run.process.send_signal(signal.SIGINT)
    assert run.wait() == 130
    assert "left running; `srl top" in run.told
    resolved = load_experiment(target[0], [*target[1:], *plan, "--updates", "3"])
    here = create_run(resolved, tmp_path / "here")
    assert train(resolved.experiment, here) == 0
    told = run.cluster.run(*program_command("srl", "top", run.folder), timeout=SECONDS, check=False)
    assert told.returncode == 0, told.stdout
    assert "done; the run is in" in told.stdout
    ours, theirs = parameters(run.folder), parameters(here.path)
    assert np.linalg.norm(ours - theirs) / np.linalg.norm(theirs) < 1e-5


@pytest.mark.slow
def test_a_run_survives_its_controller_and_its_cables_and_goes_on_on_this_machine(slurm, tmp_path):
    cluster = slurm(4)
    run = SlurmRun(cluster, tmp_path / "run", *APART, "--env-steps", "100_000_000")
    run.until(updates(3))
    run.kill_controller()
    run.until(lambda run: run.log.count("found ") == 4)
    for kind in ("actors", "policies", "learner"):
        reached = run.metrics()[-1]["updates"]
        host = run.host(kind)
        host.cut()
        seen = run.log.count("is out of reach")
        run.until(lambda run, seen=seen: run.log.count("is out of reach") > seen)
        host.heal()
        run.until(updates(reached + 3))
    run.stop()
    assert run.wait() == 130, run.all
    assert "started again" not in run.told
    learned = account(run.told).learned
    assert learned == 4 * newest(run.folder)
    assert all(line["staleness_max"] == 0 for line in run.metrics())

    done = run.metrics()[-1]["env_steps"]
    assert main(["resume", str(run.folder), "--env-steps", str(done + 10_000)]) == 0
    assert newest(run.folder) > learned // 4


@pytest.mark.slow
def test_a_learner_whose_host_loses_power_goes_on_elsewhere(slurm, tmp_path):
    cluster = slurm(5)
    words = ("--updates", "400", "--checkpoint-minutes", "0.02")
    run = SlurmRun(cluster, tmp_path / "run", *APART, *words)
    run.until(lambda run: len(list((run.folder / "checkpoints").glob("[0-9]*"))) > 1)
    lost = run.host("learner")
    cluster.power_off(lost)
    assert run.wait() == 0, run.all
    assert "found actors-0" in run.log
    assert account(run.told).learned == 4 * 400
    assert all(line["staleness_max"] == 0 for line in run.metrics())


@pytest.mark.slow
def test_an_actor_whose_host_loses_power_comes_back_with_another(slurm, tmp_path):
    cluster = slurm(5)
    run = SlurmRun(cluster, tmp_path / "run", *APART, "--updates", "400")
    run.until(updates(3))
    lost = run.host("actors")
    cluster.power_off(lost)
    assert run.wait() == 0, run.all
    assert f"was lost with its host, {lost.name}" in run.told
    assert account(run.told).learned == 4 * 400


def test_a_dry_run_shows_the_jobs_and_submits_none(capsys):
    words = ["run", "native:CartPole-v1", *APART, "--on", "slurm", "--partition", "gpu"]
    assert main([*words, "--plan.learner.gpus", "1", "--dry-run"]) == 0
    told = capsys.readouterr().out
    assert told.count("#SBATCH --partition=gpu") == 3
    assert "#SBATCH --array=0-1" in told
    assert "#SBATCH --gpus-per-node=1" in told


def test_what_slurm_refuses_leaves_no_run(slurm, tmp_path):
    cluster = slurm(1)
    none = "--partition nowhere: Slurm has none with nodes; it has main"
    for options, words in (
        ([*APART, "--partition=nowhere"], none),
        ([*APART, "--sbatch=--partition=nowhere"], none),
        (["--plan", "inline", "--sbatch=--nodelist=nowhere"], "Invalid node name specified"),
    ):
        run = SlurmRun(cluster, tmp_path / "run", *options)
        assert run.wait() == 2
        assert words in run.told
        assert not run.folder.exists()
    run = SlurmRun(cluster, tmp_path / "run", *APART, "--partition=nowhere", "--dry-run")
    assert run.wait() == 2
    assert none in run.told
    run = SlurmRun(cluster, tmp_path / "run", *APART, env={"SBATCH_PARTITION": "nowhere"})
    assert run.wait() == 2
    assert "SBATCH_PARTITION=nowhere: Slurm has none with nodes; it has main" in run.told


@pytest.mark.slow
def test_a_run_that_is_resumed_as_soon_as_it_has_stopped_is_left_to_the_new_jobs(slurm, tmp_path):
    cluster = slurm(4)
    run = SlurmRun(cluster, tmp_path / "run", *APART, "--env-steps", "100_000_000")
    run.until(updates(3))
    before = json.loads((run.folder / "slurm" / "jobs.json").read_text())
    run.stop()
    assert run.wait() == 130, run.all
    done = run.metrics()[-1]["env_steps"]
    resume = ("resume", run.folder, "--env-steps", str(done + 50_000), "--on", "slurm")
    told = cluster.run(*program_command("srl", *resume), timeout=SECONDS, check=False)
    assert told.returncode == 0, told.stdout
    assert "taken this run over" not in told.stdout + told.stderr
    assert "srun: error" not in told.stdout + run.told
    assert json.loads((run.folder / "slurm" / "jobs.json").read_text()) != before
    cluster.wait_nodes({node.name: "idle" for node in cluster.nodes})


@pytest.mark.slow
def test_a_job_that_somebody_cancels_is_told_of_and_ends_nothing(slurm, tmp_path):
    cluster = slurm(4)
    run = SlurmRun(cluster, tmp_path / "run", *APART, "--env-steps", "100_000_000")
    run.until(updates(3))
    job = json.loads((run.folder / "slurm" / "jobs.json").read_text())["actors"]
    cluster.run("scancel", job)
    lacking = f"the job of actors, {job}, is not there any more"
    run.until(lambda run: lacking in run.told)
    terminal = tmp_path / "top.txt"
    other = run.follow(terminal)
    run.until(lambda run: lacking in terminal.read_text())
    other.send_signal(signal.SIGINT)
    assert other.wait(SECONDS) == 130
    assert "stopping after this update" not in run.told
    assert run.job("learner")["JobState"] == "RUNNING"
    run.stop()
    assert run.wait() == 130, run.all
