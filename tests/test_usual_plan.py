"""The plan of an experiment that names none, by what the machine has."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from srl import SelfPlay
from srl.config.experiment import load_experiment
from srl.config.overrides import override
from srl.dataflow import plans
from srl.launch.auto import candidates
from srl.run.folder import create_run, recorded_experiment
from srl.system.cores import cores_to_fill

NATIVE, IN_JAX, PYTHON = "native:CartPole-v1", "jax:gymnax:CartPole-v1", "CartPole-v1"
ATARI = "atari:Pong"


def load(env, *words):
    return load_experiment(env, words).experiment


def test_without_a_gpu_programs_step_what_they_can(monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    assert load(NATIVE).plan == load(IN_JAX).plan == plans.fused()
    assert load(PYTHON).plan == plans.replicated(1)


def test_environments_step_while_the_learner_learns_where_staleness_is_allowed(monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    for bound in ("1", "none"):
        assert load(NATIVE, "--max-staleness", bound).plan == plans.threads()
        assert load(PYTHON, "--max-staleness", bound).plan.name == "inline"
        assert load(IN_JAX, "--max-staleness", bound).plan == plans.fused()
    assert load(NATIVE, "--max-staleness", "1", "--num-envs", "9").plan == plans.fused()
    assert load(PYTHON, "--max-staleness", "0").plan == plans.replicated(1)
    stale = replace(load(PYTHON), plan=None, max_staleness=1)
    made_here = replace(stale, env=lambda: None)
    assert made_here.settled_plan == plans.replicated(1)
    assert replace(made_here, workers=4).settled_plan == plans.threads(1)


@pytest.mark.parametrize(
    ("env", "plan", "cores", "actors"),
    [
        (NATIVE, plans.decoupled(), 2, 1),
        (NATIVE, plans.central(), 2, 1),
        (NATIVE, plans.decoupled(), 8, 2),
        (NATIVE, plans.inline(), 8, 2),
        (NATIVE, plans.env_servers(), 2, 2),
        (NATIVE, plans.threads(), 2, 2),
        (PYTHON, plans.decoupled(), 2, 2),
        (PYTHON, plans.inline(), 8, 8),
        (PYTHON, plans.central(), 7, 4),
        (PYTHON, plans.inline(), 96, 16),
        (PYTHON, plans.inline(), None, 2),
        (NATIVE, plans.decoupled(), None, 2),
        (PYTHON, plans.replicated(), 96, 2),
    ],
)
def test_actors_of_a_named_plan_follow_from_the_cores(env, plan, cores, actors):
    sized = plans.sized(plan, load(env), cores, accelerated=False)
    assert sized.fragment("step").replicas == actors
    assert plans.sized(plan, load(NATIVE), cores, accelerated=True) == plan


def inline_actors(cores, *words, **changes):
    experiment = replace(load(PYTHON, *words), **changes)
    return plans.sized(plans.inline(), experiment, cores, accelerated=False).fragment("step")


def test_a_host_of_many_cores_gets_32_actors_at_most():
    assert inline_actors(256, "--num-envs", "1024").replicas == 32


def test_groups_of_more_actors_keep_their_past_matches():
    assert inline_actors(16, self_play=SelfPlay(past=0.2)).replicas == 2
    assert inline_actors(16, self_play=SelfPlay(past=0.5)).replicas == 8
    playing = replace(load(PYTHON), plan="inline", self_play=SelfPlay(past=0.0))
    sized = override(playing, ["--self-play.past", "0.5"]).settled_plan
    assert sized.fragment("step").replicas <= 8


def test_actors_with_worker_processes_are_not_multiplied(no_control_group, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    for words, actors in ((("--workers", "8"), 2), (("--workers", "0"), 8), ((), 8)):
        plan = load(PYTHON, "--plan", "inline", *words).plan
        assert plan.fragments["actors"].replicas == actors


@pytest.fixture
def no_control_group(tmp_path, monkeypatch):
    """A folder for the limits of this process's control group, which has none."""
    (tmp_path / "own").write_text("0::/\n")
    monkeypatch.setattr("srl.system.control_group.ROOT", tmp_path)
    monkeypatch.setattr("srl.system.control_group.OWN", tmp_path / "own")
    return tmp_path


def test_sizes_follow_a_quota_of_processor_time(no_control_group, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    assert load(PYTHON, "--plan", "inline").plan.fragments["actors"].replicas == 16
    (no_control_group / "cpu.max").write_text("450000 100000\n")
    assert load(PYTHON, "--plan", "inline").plan.fragments["actors"].replicas == 4
    assert cores_to_fill() == 4
    resolved = load_experiment(PYTHON, ["--plan", "auto"])
    sizes = {c.experiment.settled_plan.fragment("step").replicas for _, c in candidates(resolved)}
    assert max(sizes) == 4
    (no_control_group / "cpu.max").write_text("50000 100000\n")
    assert cores_to_fill() == 1


@pytest.mark.usefixtures("no_control_group")
def test_a_run_keeps_its_plan_on_machines_with_other_cores(tmp_path, monkeypatch):
    words = ["--plan", "decoupled", "--plan.actors.cores", "0.5"]
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    begun = create_run(load_experiment(NATIVE, words), tmp_path / "run")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    assert load(NATIVE, *words).plan.fragments["actors"].replicas == 2
    actors = recorded_experiment(begun.path).settled_plan.fragments["actors"]
    assert (actors.replicas, actors.cores) == (1, 0.5)


def test_the_machine_that_submits_a_run_decides_no_sizes(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    hosts = ["--plan", "decoupled", "--plan.actors.hosts", "2"]
    plan = load_experiment(NATIVE, hosts, here=False).experiment.settled_plan
    assert plan.fragments["actors"].replicas == 2
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))
    for words in (["--plan", "inline"], ["--max-staleness", "1"]):
        plan = load_experiment(PYTHON, words, here=False).experiment.settled_plan
        assert (plan.name, plan.fragments["actors"].replicas) == ("inline", 2)


@pytest.mark.usefixtures("gpu")
def test_with_a_gpu_the_usual_plan_learns_on_it():
    assert load(IN_JAX).plan == plans.fused()
    assert load(PYTHON).plan == plans.replicated(1)
    assert load(NATIVE, "--plan", "fused").plan == plans.fused()


@pytest.mark.usefixtures("gpu")
def test_one_group_steps_while_the_gpu_acts_for_another_where_groups_can_be_made():
    assert load(NATIVE).plan == load(ATARI).plan == plans.threads()
    assert load(PYTHON, "--env", NATIVE).plan == plans.threads()
    for words in (["--num-envs", "9"], ["--num-envs=9"], ["--num_envs", "9"], ["--groups", "1"]):
        assert load(NATIVE, *words).plan == plans.replicated(1)
    few = replace(load(NATIVE), num_envs=8, plan=None, self_play=SelfPlay(past=0.5))
    assert few.settled_plan == plans.replicated(1)  # a match for each side in each group
    assert replace(few, num_envs=16).settled_plan == plans.threads()


def test_a_gpu_that_jax_or_the_process_may_not_use_is_none(gpu, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert load(NATIVE).plan == plans.fused()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    assert load(NATIVE).plan == plans.fused()


def test_a_run_keeps_the_plan_of_the_machine_that_it_began_on(tmp_path, request):
    begun = create_run(load_experiment(NATIVE, ["--num-envs", "8"]), tmp_path / "run")
    request.getfixturevalue("gpu")
    assert load(NATIVE).plan == plans.threads()
    assert recorded_experiment(begun.path).plan == plans.fused()


@pytest.mark.usefixtures("gpu")
def test_a_plan_that_leaves_the_gpu_idle_is_run_and_reported(tmp_path):
    settings = ["--plan", "fused", "--num-envs", "8", "--updates", "1"]
    for command in (["plan"], ["run", "--run-dir", str(tmp_path / "run")]):
        argv = [sys.executable, "-m", "srl", command[0], NATIVE, *settings, *command[1:]]
        done = subprocess.run(argv, capture_output=True, text=True, env=os.environ, check=False)
        assert done.returncode == 0, done.stderr
        assert "the plan fused runs on the CPU alone" in " ".join(done.stdout.split())
