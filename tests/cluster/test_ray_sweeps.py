"""`srl sweep --on ray`: a job for each run, on a host that sees the sweep's folder.

This takes minutes: pip install 'ray[default]' && pytest -m slow tests/cluster/test_ray_sweeps.py
"""

import json
import signal
import time

import pytest

from srl.run.metrics import read_metrics
from srl.system.child_process import program_command

SECONDS = 500
SMALL = ("native:CartPole-v1", "--num-envs", "16", "--algorithm.unroll-length", "16")


@pytest.mark.slow
def test_jobs_train_the_trials_and_an_interrupted_sweep_goes_on(ray, tmp_path):
    cluster = ray(1)
    folder, terminal = cluster.runs / "sweep", tmp_path / "terminal.txt"
    words = ("--algorithm.epochs", "1,2", "--env-steps", "100000", "--report-every", "1")
    where = ("--on", "ray", "--ray-address", cluster.address, "--ray-resource", "folder")
    command = program_command(
        "srl", "sweep", *SMALL, *words, *where, "--json", "--sweep-dir", str(folder)
    )

    def begin():
        with terminal.open("w") as file:
            return cluster.popen(*command, stdout=file, stderr=file)

    process, metrics = begin(), folder / "trial-000" / "metrics.jsonl"
    deadline = time.monotonic() + SECONDS
    while not (metrics.exists() and metrics.read_text().count("\n") > 3):
        assert process.poll() is None, terminal.read_text()
        assert time.monotonic() < deadline, terminal.read_text()
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert process.wait(SECONDS) == 130, terminal.read_text()
    before = read_metrics(metrics.parent)
    assert before[-1]["env_steps"] < 100_000
    assert begin().wait(SECONDS) == 0, terminal.read_text()
    rows = [json.loads(line) for line in terminal.read_text().splitlines() if line[:1] == "{"]
    assert [row["state"] for row in rows] == ["done", "done"]
    assert read_metrics(metrics.parent)[: len(before)] == before
