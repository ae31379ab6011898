"""Runs on a GPU that is none: JAX's default device, which the CPU computes for."""

import json
import subprocess
import sys

import pytest

SMALL = [
    *("--num-envs", "8", "--algorithm.unroll-length", "16", "--algorithm.epochs", "2"),
    *("--algorithm.network.mlp.width", "16", "--updates", "2"),
]


@pytest.fixture
def run(fake_gpu, tmp_path):
    """Trains with some options; gives what each process that has taken the GPU was given."""

    def run(*options):
        words = ["run", "native:CartPole-v1", *SMALL, "--run-dir", str(tmp_path / "run"), *options]
        done = subprocess.run([sys.executable, "-m", "srl", *words], stderr=subprocess.PIPE)
        assert done.returncode == 0, done.stderr.decode()
        return [json.loads(path.read_text()) for path in fake_gpu.glob("*.json")]

    return run


def test_fractions_and_choices_of_the_user_reach_both_processes_on_a_gpu(run, monkeypatch):
    monkeypatch.setenv("SRL_GPU", "act=cpu,copies=apart,prefetch=off")
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    options = "--plan decoupled --plan.learner.gpus 0.7 --plan.policies.gpus 0.2 --max-staleness 1"
    taken = run(*options.split())
    assert sorted(each["memory_fraction"] for each in taken) == [0.18, 0.63]
    assert [each["preallocate"] for each in taken] == [False, False]
    assert {each["choices"] for each in taken} == {"act=cpu,copies=apart,prefetch=off"}


@pytest.mark.parametrize("choices", ["", pytest.param("act=cpu", marks=pytest.mark.slow)])
def test_one_process_acts_and_learns_on_a_gpu_that_no_other_takes(run, monkeypatch, choices):
    monkeypatch.setenv("SRL_GPU", choices)
    (taken,) = run()
    assert taken["choices"] == choices
    assert "memory_fraction" not in taken  # it has JAX's share, which is for one process
