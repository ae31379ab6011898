"""What runs of a sweep get on a cluster: enough for each of them, whatever is searched."""

import os
import re
from types import SimpleNamespace

from srl.extras.sweep.trainers.memory import RunMemory
from srl.extras.sweep.trainers.slurm_array import SlurmArray, sizes_of
from srl.run.managed_run import ManagedRun

WIDE = ("--algorithm.network.mlp.width", "4096")
MANY = ("--plan", "inline", "--plan.actors.replicas", "16")
WRONG = ("--algorithm", "SAC")  # which needs continuous actions


def run(folder, *words):
    return ManagedRun(folder / "-".join(("run", *words)), ("CartPole-v1", *words))


def test_an_array_requests_what_the_largest_of_its_runs_takes(tmp_path, monkeypatch):
    program = tmp_path / "sbatch"  # prints the job's number, as Slurm's does, and keeps its options
    program.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/options\necho 7\n')
    (tmp_path / "scontrol").write_text("#!/bin/sh\n")
    for name in ("sbatch", "scontrol"):
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    runs = [run(tmp_path, *words) for words in ((), WIDE, MANY, WRONG)]
    options = SimpleNamespace(sbatch=["--clusters=other"], partition=None)
    options.account = options.constraint = options.time = None
    SlurmArray(tmp_path, 3, options).begin(runs)

    known = RunMemory()
    small, wide, many, wrong = (sizes_of(each, None, known) for each in runs)
    assert wrong[2] == 0
    assert wide[2] > small[2] + 500
    assert many[0] > small[0]
    given = (tmp_path / "options").read_text()
    cores, memory = (int(re.search(rf"--{n}=(\d+)", given)[1]) for n in ("cpus-per-task", "mem"))
    assert (cores, memory) == (many[0], max(wide[2], many[2]))


def test_memory_is_estimated_once_for_runs_of_the_same_sizes(tmp_path):
    known, words = RunMemory(), ("--seed", "3", "--algorithm.learning-rate", "1e-5")
    first, second = (known.of(run(tmp_path, *each).experiment) for each in ((), words))
    assert first is second
    assert known.of(run(tmp_path, *WIDE).experiment) != first
