"""Runs on a GPU that is none: JAX's default device, which the CPU computes for."""

import json
import subprocess
import sys

import pytest

PLUGIN = """
import json
import os
from pathlib import Path

from jax._src import xla_bridge
from jaxlib import xla_client


def client():
    opened = {"gpus": os.environ["CUDA_VISIBLE_DEVICES"], "choices": os.environ.get("SRL_GPU", "")}
    opened |= xla_client.generate_pjrt_gpu_plugin_options()  # which NVIDIA's plugin gives to XLA
    Path(__file__).with_name(f"{os.getpid()}.json").write_text(json.dumps(opened))
    return xla_bridge.make_cpu_client()


def initialize():
    xla_bridge.register_backend_factory("gpu_of_cpu", client, priority=400, fail_quietly=False)
"""
SMALL = ["--num-envs", "8", "--algorithm.unroll-length", "8", "--updates", "2"]


@pytest.fixture
def run(gpu, tmp_path):
    """Trains with some options; gives a line for each process that has taken the GPU."""
    folder = tmp_path / "plugins" / "jax_plugins" / "xla_cuda12"
    (folder / "__init__.py").write_text(PLUGIN)

    def run(*options):
        words = ["run", "native:CartPole-v1", *SMALL, "--run-dir", str(tmp_path / "run"), *options]
        done = subprocess.run([sys.executable, "-m", "srl", *words], stderr=subprocess.PIPE)
        assert done.returncode == 0, done.stderr.decode()
        return [json.loads(path.read_text()) for path in folder.glob("*.json")]

    return run


def test_two_processes_on_one_gpu_take_shares_of_its_memory(run):
    taken = run("--plan", "decoupled")
    assert [each["gpus"] for each in taken] == ["0", "0"]
    assert [each["memory_fraction"] for each in taken] == [0.45, 0.45]
    assert all("preallocate" not in each for each in taken)


def test_fractions_and_choices_of_the_user_reach_both_processes_on_a_gpu(run, monkeypatch):
    monkeypatch.setenv("SRL_GPU", "act=cpu,copies=apart,prefetch=off")
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    options = "--plan decoupled --plan.learner.gpus 0.7 --plan.policies.gpus 0.2 --max-staleness 1"
    taken = run(*options.split())
    assert sorted(each["memory_fraction"] for each in taken) == [0.18, 0.63]
    assert [each["preallocate"] for each in taken] == [False, False]
    assert {each["choices"] for each in taken} == {"act=cpu,copies=apart,prefetch=off"}


@pytest.mark.parametrize("choices", ["", "act=cpu"])
def test_one_process_acts_and_learns_on_a_gpu_that_no_other_takes(run, monkeypatch, choices):
    monkeypatch.setenv("SRL_GPU", choices)
    (taken,) = run()
    assert taken["choices"] == choices
    assert "memory_fraction" not in taken  # it has JAX's share, which is for one process
