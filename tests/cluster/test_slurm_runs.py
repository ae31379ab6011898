"""`srl run --on slurm`, as from a login node."""

import json
import os
import signal
import sys
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from watching import account, processes

from srl.checkpoint import Checkpoints
from srl.cli import main
from srl.experiment import load_experiment
from srl.launch.folder import create_run
from srl.launch.local import train
from srl.tree import leaves_of

SECONDS = 300
CARTPOLE = ("native:CartPole-v1", "--num-envs", "16", "--algorithm.unroll-length", "16")
GAME = (str(Path(__file__).parents[2] / "experiments" / "hide_and_seek.py"), "--num-envs", "16")
APART = (
    *("--plan", "decoupled", "--plan.actors.hosts", "2"),
    *("--plan.policies.hosts", "1", "--plan.learner.hosts", "1"),
)
REPLICATED = ("--plan", "replicated", "--plan.learners.hosts", "2", "--groups", "4")


class SlurmRun:
    """`srl run ... --on slurm` at the login host, and what it has told."""

    def __init__(self, cluster, folder, *options, target=CARTPOLE):
        self.cluster, self.folder = cluster, folder
        self.terminal = folder.with_name("terminal.txt")
        words = ["-m", "srl", "run", *target, "--run-dir", folder, *options]
        with self.terminal.open("w") as file:
            self.process = cluster.popen(
                sys.executable, *words, "--on", "slurm", stdout=file, stderr=file
            )

    @property
    def told(self):
        return self.terminal.read_text()

    def wait(self):
        """Waits for the end; gives the exit code."""
        try:
            return self.process.wait(SECONDS)
        finally:
            self.all = self.told + "".join(
                f"\n== {file}\n{file.read_text()[-2000:]}" for file in self.logs()
            )

    def logs(self):
        return sorted((self.folder / "logs").iterdir()) if self.folder.exists() else []

    def host(self, kind):
        """The host of a fragment's first job."""
        job = json.loads((self.folder / "slurm" / "jobs.json").read_text())[kind]
        name = self.cluster.job(job if kind == "learner" else f"{job}_0")["NodeList"]
        return next(node for node in self.cluster.nodes if node.name == name)

    def metrics(self):
        file = self.folder / "metrics.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def until(self, condition):
        deadline = time.monotonic() + SECONDS
        while not condition(self):
            assert self.process.poll() is None, self.told
            assert time.monotonic() < deadline, self.told
            time.sleep(0.05)


def updates(number):
    return lambda run: any(line["updates"] >= number for line in run.metrics())


def parameters(folder):
    with closing(Checkpoints(folder / "checkpoints")) as checkpoints:
        tree, _ = checkpoints.restore()
    states = {name: state["params"] for name, state in tree["learners"].items()}
    return np.concatenate([np.ravel(leaf) for leaf in leaves_of(states)])


def newest(folder):
    with closing(Checkpoints(folder / "checkpoints")) as checkpoints:
        return checkpoints.latest()


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
    told = run.cluster.run(
        sys.executable, "-m", "srl", "top", run.folder, timeout=SECONDS, check=False
    )
    assert told.returncode == 0, told.stdout
    assert "done; the run is in" in told.stdout
    ours, theirs = parameters(run.folder), parameters(here.path)
    assert np.linalg.norm(ours - theirs) / np.linalg.norm(theirs) < 1e-5


def test_a_run_survives_its_controller_and_its_cables_and_goes_on_on_this_machine(slurm, tmp_path):
    cluster = slurm(4)
    run = SlurmRun(cluster, tmp_path / "run", *APART, "--env-steps", "100_000_000")
    run.until(updates(3))
    before = processes(lambda words: {"srl.launch.serve", str(run.folder)} <= set(words))
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    log = run.folder / "logs" / "controller.log"
    run.until(lambda run: log.read_text().count("found ") == 4)
    for kind in ("actors", "policies", "learner"):
        reached = run.metrics()[-1]["updates"]
        host = run.host(kind)
        host.cut()
        seen = log.read_text().count("is out of reach")
        run.until(lambda run, seen=seen: log.read_text().count("is out of reach") > seen)
        host.heal()
        run.until(updates(reached + 3))
    cluster.run(sys.executable, "-m", "srl", "stop", run.folder)
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
    assert "found actors-0" in (run.folder / "logs" / "controller.log").read_text()
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
    run = SlurmRun(slurm(1), tmp_path / "run", *APART, "--partition", "nowhere")
    assert run.wait() == 2
    assert "invalid partition" in run.told
    assert not run.folder.exists()
