"""`srl bench gpu`, as far as it goes without one."""

import json
import math

import pytest

from srl.bench.gpu_load import GpuLoad, gpu_names
from srl.bench.train import PlanSide
from srl.cli import main

SMALL = ["--num-envs", "4", "--algorithm.unroll-length", "8", "--algorithm.epochs", "1"]
SMI = """#!/bin/sh
case "$*" in
  *name*) echo "NVIDIA H100" ;;
  *) printf '10\\n30\\n[N/A]\\n' ;;
esac
"""


@pytest.fixture
def smi(tmp_path, monkeypatch):
    """A command in the place of nvidia-smi, which reports as that does."""
    (tmp_path / "nvidia-smi").write_text(SMI)
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")


def test_a_plan_has_a_row_with_its_share_of_the_pool_or_the_reason_that_it_has_none(capsys):
    words = ["--game", "cartpole,pong", "--plan", "fused", "--seconds", "0.1", "--rounds", "1"]
    words += ["--algorithm.minibatches", "2", "--json"]
    assert main(["bench", "gpu", *words, *SMALL]) == 2
    assert "JAX has no GPU here; --on-cpu measures on the CPU" in capsys.readouterr().err
    words += ["--on-cpu"]
    assert main(["bench", "gpu", *words, *SMALL]) == 0
    cartpole, pong = map(json.loads, capsys.readouterr().out.splitlines())
    assert cartpole["config"]["learns_on"] == "CPU"
    assert cartpole["value"] > 0
    assert cartpole["ratio"] == pytest.approx(cartpole["value"] / cartpole["vs_value"])
    assert (pong["config"]["game"], pong["value"]) == ("pong", None)
    assert "is not native: take another plan" in pong["refused"]


@pytest.mark.usefixtures("smi")
def test_the_load_is_the_mean_of_what_nvidia_smi_reports():
    load = GpuLoad()
    load._thread.join()  # the command has ended
    assert load.mean(0.0, math.inf) == 20
    assert load.mean(0.0, 0.0) is None
    load.close()
    assert gpu_names() == ["NVIDIA H100"]


def test_a_machine_without_the_command_has_no_load_and_no_names(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    load = GpuLoad()
    load.close()
    assert load.mean(0.0, math.inf) is None
    assert gpu_names() == []


def test_a_run_is_timed_until_its_return_is_reached():
    seconds, report = PlanSide("native:CartPole-v1", SMALL).until(
        lambda report: (report["episode_return"] or 0) >= 5
    )
    assert report["episode_return"] >= 5
    assert seconds > 0
