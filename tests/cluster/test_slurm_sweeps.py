"""`srl sweep --on slurm`: an array job whose elements are the runs."""

import json
import os
import shutil
import signal
import time

import pytest
from slurm_run import CARTPOLE, SECONDS

from srl.run.metrics import read_metrics
from srl.system.child_process import program_command


def test_an_array_job_trains_the_trials_and_a_later_command_finds_it(slurm, tmp_path):
    cluster, folder = slurm(2), tmp_path / "sweep"
    words = ("--algorithm.epochs", "1,2", "--env-steps", "30000", "--report-every", "1")
    command = program_command("srl", "sweep", *CARTPOLE, *words, "--on", "slurm", "--json")
    command += ["--sweep-dir", str(folder)]
    terminal = tmp_path / "terminal.txt"
    with terminal.open("w") as file:
        process = cluster.popen(*command, stdout=file, stderr=file)
    deadline = time.monotonic() + SECONDS
    while not all((folder / f"trial-00{k}" / "metrics.jsonl").exists() for k in (0, 1)):
        assert process.poll() is None, terminal.read_text()
        assert time.monotonic() < deadline, terminal.read_text()
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert process.wait(SECONDS) == 130
    assert "left running; the same command shows the sweep again" in terminal.read_text()
    jobs = json.loads((folder / "slurm" / "jobs.json").read_text())
    (job,) = {element.partition("_")[0] for element in jobs.values()}
    assert jobs == {"trial-000": f"{job}_0", "trial-001": f"{job}_1"}

    done = cluster.run(*command, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["state"] for row in rows] == ["done", "done"]
    assert json.loads((folder / "slurm" / "jobs.json").read_text()) == jobs
    for name in jobs:
        reports = [report["env_steps"] for report in read_metrics(folder / name)]
        assert reports == sorted(set(reports))  # trained once
        assert reports[-1] >= 30000


KILLED = {  # the command that the sweep is killed by, and when
    "sbatch": '{real} "$@"; kill -KILL $PPID',
    "scontrol": '[ $1 = release ] && kill -KILL $PPID && exit; {real} "$@"',
}


@pytest.mark.parametrize("deadly", [pytest.param("sbatch", marks=pytest.mark.slow), "scontrol"])
def test_a_sweep_that_is_killed_while_it_submits_trains_each_run_once(deadly, slurm, tmp_path):
    cluster, folder = slurm(1), tmp_path / "sweep"
    words = ("--algorithm.epochs", "1,2", "--env-steps", "2000", "--on", "slurm")
    command = program_command("srl", "sweep", *CARTPOLE, *words, "--sweep-dir", str(folder))
    program, real = tmp_path / "bin" / deadly, shutil.which(deadly)
    program.parent.mkdir()
    program.write_text(f"#!/bin/bash\n{KILLED[deadly].format(real=real)}\n")
    program.chmod(0o755)
    path = {"PATH": f"{program.parent}:{os.environ['PATH']}"}
    killed = cluster.run(*command, env=path, timeout=SECONDS, check=False)
    assert killed.returncode == -signal.SIGKILL
    waiting = cluster.run("squeue", "--noheader", "--array", "--format=%j %r").stdout
    assert waiting == 2 * "srl-sweep-native-CartPole-v1 JobHeldUser\n"

    done = cluster.run(*command, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for name in ("trial-000", "trial-001"):
        assert len(list((folder / "slurm").glob(f"*-{name[-1]}.log"))) == 1
        reports = [report["env_steps"] for report in read_metrics(folder / name)]
        assert reports == sorted(set(reports))
