"""Versions of a run on Slurm are evaluated by a job of its own."""

import json
import time

from slurm_run import SECONDS, SlurmRun

EVALUATION = ("--evaluation.episodes", "4", "--evaluation.every", "1", "--updates", "4")


def test_versions_are_evaluated_by_a_job_of_their_own_which_ends_with_the_run(slurm, tmp_path):
    """There are more jobs than nodes, whose memory Slurm shares out."""
    run = SlurmRun(slurm(2), tmp_path / "run", "--plan", "inline", *EVALUATION)
    assert run.wait() == 0, run.all
    lines = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["updates"] for line in lines if "eval/return" in line][-1] == 4, run.all
    assert (run.folder / "checkpoints" / "best.safetensors").exists()
    deadline = time.monotonic() + SECONDS
    while run.job("evaluator")["JobState"] != "COMPLETED":
        assert time.monotonic() < deadline, run.job("evaluator")
        time.sleep(0.1)
