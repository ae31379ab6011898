"""Runs that wait in Slurm's queue: ended, gone on with, and what a refused attempt leaves."""

import json
import os
import shutil
import signal
import subprocess
from contextlib import closing

import numpy as np
import pytest
from slurm_run import APART, SECONDS, SlurmRun
from waiting import wait_until

from srl.record.checkpoint import Checkpoints
from srl.record.files import UNFINISHED
from srl.record.run_record import RunFolder
from srl.run.status import read_outcome
from srl.system.child_process import program_command

MISLEADING = {
    "SBATCH_JOB_NAME": "other",
    "SBATCH_NO_REQUEUE": "1",
    "SBATCH_ARRAY_INX": "0-6",
    "SBATCH_WAIT": "1",
}
KEPT = ("keys/curve.secret", "outcome.json", "slurm/jobs.json", "logs/terminal.log", "config.json")


@pytest.fixture
def busy(slurm):
    """A Slurm whose nodes are all taken by a job of another's."""
    cluster = slurm(4)
    script = cluster.folder / "other.sh"
    script.write_text("#!/bin/sh\nsleep 1000\n")
    cluster.run("sbatch", "--nodes=4", "--exclusive", script)
    cluster.wait_nodes({node.name: "allocated" for node in cluster.nodes})
    return cluster


def srl(cluster, *words):
    command = program_command("srl", *words)
    done = cluster.run(*command, timeout=SECONDS, check=False)
    return done.returncode, done.stdout + done.stderr


def save(folder, *versions):
    with closing(Checkpoints(folder / "checkpoints")) as checkpoints:
        for version in versions:
            counts = {"env_steps": 1, "updates": version}
            checkpoints.save(version, {"x": np.zeros(1)}, counts, wait=True)


def contents(folder):
    files = [*(folder / name for name in KEPT), *folder.glob("checkpoints/*")]
    return {str(f.relative_to(folder)): f.read_bytes() for f in files if f.exists()}


def test_a_run_that_waits_is_cancelled_and_what_is_refused_then_changes_nothing(busy, tmp_path):
    run = SlurmRun(busy, tmp_path / "run", *APART, "--updates", "3", env=MISLEADING)
    run.until(lambda run: "PENDING (Dependency)" in run.told)
    number = run.number("learner")
    busy.run("scontrol", "hold", number)
    run.until(lambda run: f"`scontrol release {number}` lets it start" in run.told)
    job = run.job("learner")
    assert (job["JobName"], job["Requeue"]) == ("srl-native-CartPole-v1-learner", "1")
    assert "ArrayTaskId" not in job
    assert srl(busy, "stop", run.folder) == (
        0,
        "cancelled before it began; `srl resume run` begins it\n",
    )
    assert run.wait() == 130
    assert read_outcome(run.folder) == 130
    assert busy.run("squeue", "--noheader", "--format=%j").stdout.split() == ["other.sh"]
    (run.folder / "logs" / "terminal.log").write_text("what was told before\n")
    save(run.folder, 1, 2)
    before = contents(run.folder)
    assert {*KEPT, "checkpoints/1.safetensors", "checkpoints/2.safetensors"} == set(before)

    resume = ("resume", run.folder, "--on", "slurm")
    back = ("--version", "1", "--updates", "9")
    code, told = srl(busy, *resume, *back, "--sbatch=--nodelist=nowhere")
    assert (code, contents(run.folder)) == (2, before), told
    assert "Invalid node name" in told
    assert "checkpoint 2 counts again" in told
    unwritable = run.folder / "slurm" / f"{UNFINISHED}jobs.json"
    unwritable.mkdir()
    code, told = srl(busy, *resume, *back)
    unwritable.rmdir()
    assert (code, contents(run.folder)) == (2, before), told
    assert f"cannot write {run.folder}/slurm/jobs.json" in told
    assert busy.run("squeue", "--noheader", "--format=%j").stdout.split() == ["other.sh"]
    with RunFolder(run.folder).locked():  # as by one that trains on this machine
        code, told = srl(busy, *resume)
    assert (code, contents(run.folder)) == (2, before), told
    assert f"another process is training {run.folder}; stop it first" in told


def test_jobs_that_slurm_has_forgotten_are_ended_without_an_error(busy, tmp_path):
    run = SlurmRun(busy, tmp_path / "run", *APART, "--updates", "3")
    run.until(lambda run: "PENDING" in run.told)
    file = run.folder / "slurm" / "jobs.json"
    jobs = json.loads(file.read_text())
    file.write_text(json.dumps(jobs | {"learner": "4000000"}))
    save(run.folder, 7)
    code, told = srl(busy, "stop", run.folder)
    assert code == 0, told
    assert "cancelled while it waited for a host" in told
    assert "goes on after update 7" in told
    left = busy.run("squeue", "--noheader", "--format=%F").stdout.split()
    assert set(left).isdisjoint({jobs["actors"], jobs["policies"]})


def test_nothing_begins_of_a_submission_that_is_killed_in_the_middle(slurm, tmp_path):
    cluster, real = slurm(4), shutil.which("sbatch")
    sbatch = tmp_path / "bin" / "sbatch"
    sbatch.parent.mkdir()
    sbatch.write_text(f'#!/bin/sh\n{real} "$@"\nkill -KILL $PPID\n')
    sbatch.chmod(0o755)
    path = {"PATH": f"{sbatch.parent}:{os.environ['PATH']}"}
    run = SlurmRun(cluster, tmp_path / "run", *APART, "--updates", "3", env=path)
    assert run.wait() == -signal.SIGKILL
    jobs = cluster.run("squeue", "--noheader", "--format=%j %r").stdout
    assert jobs == "srl-native-CartPole-v1-learner JobHeldUser\n"
    code, told = srl(cluster, "resume", run.folder, "--on", "slurm")
    assert code == 0, told


SLOW = """
import os, time
from pathlib import Path

import gymnasium
from srl import Experiment, plans

folder = Path(os.environ.get("SLOW", "/nowhere"))


def make():
    if folder.exists():
        folder.joinpath("waits").touch()
        while not folder.joinpath("goes_on").exists():
            time.sleep(0.05)
    return gymnasium.make("CartPole-v1")


experiment = Experiment("slow", make, plan=plans.inline(), num_envs=4, updates=3)
"""


def test_a_run_is_submitted_once_though_two_commands_resume_it_at_a_time(busy, tmp_path):
    file, folder, slow = tmp_path / "slow.py", tmp_path / "run", tmp_path / "slow"
    file.write_text(SLOW)
    run = SlurmRun(busy, folder, "--plan", "inline", target=(file,))
    run.until(lambda run: "PENDING" in run.told)
    run.stop()
    assert run.wait() == 130
    slow.mkdir()
    names = folder / "slurm" / "jobs.json"
    before = names.read_text()
    resume, env = program_command("srl", "resume", folder, "--on", "slurm"), {"SLOW": str(slow)}
    later = busy.popen(*resume, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    wait_until((slow / "waits").exists, SECONDS)
    first = busy.popen(*resume, stdout=subprocess.DEVNULL)
    wait_until(lambda: names.exists() and names.read_text() != before, SECONDS)
    jobs = names.read_text()
    (slow / "goes_on").touch()
    told = later.communicate(timeout=60)[0]
    assert (later.returncode, names.read_text()) == (2, jobs), told
    assert "goes on elsewhere; `srl top" in told
    run.stop()
    assert first.wait(SECONDS) == 130
