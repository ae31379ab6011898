"""Cores and memory of workers on a cluster whose plan names none."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from srl.config.experiment import load_experiment
from srl.core.errors import UserError
from srl.dataflow import plans
from srl.dataflow.plan import Fragment
from srl.launch.engines.engine import parts_of
from srl.launch.engines.needs import MIB, fitted, needs_of
from srl.launch.engines.slurm_room import Node, Room, refuse_too_much

GIB = 1024 * MIB


def cores(parts):
    return {part.fragment: part.cores for part in parts}


def test_what_learns_or_acts_for_others_has_several_cores_and_at_most_half_of_a_node():
    parts = parts_of(plans.decoupled())
    assert cores(fitted(parts, 64, 640, whole=True)) == {"learner": 8, "actors": 1, "policies": 4}
    assert cores(fitted(parts, 6, 600, whole=True)) == {"learner": 3, "actors": 1, "policies": 3}


def test_a_teacher_has_the_cores_of_a_policy_worker():
    plan = plans.inline()
    taught = replace(plan, fragments={**plan.fragments, "teacher": Fragment(("teach",))})
    assert cores(fitted(parts_of(taught), 64, 640, whole=True))["teacher"] == 4


def test_usual_cores_are_fewer_where_all_would_not_fit_and_named_ones_stay():
    plan = plans.decoupled()
    named = {**plan.fragments, "actors": replace(plan.fragments["actors"], cores=6)}
    parts = parts_of(replace(plan, fragments=named))
    assert cores(fitted(parts, 16, 16, whole=True)) == {"learner": 2, "actors": 6, "policies": 2}
    assert cores(fitted(parts, 8, 8, whole=True)) == {"learner": 1, "actors": 6, "policies": 1}


def test_a_host_with_a_node_for_itself_has_all_of_its_cores():
    plan = plans.inline(actors=8)
    spread = {**plan.fragments, "actors": replace(plan.fragments["actors"], hosts=2)}
    parts = parts_of(replace(plan, fragments=spread))
    assert cores(fitted(parts, 32, 96, whole=True))["actors"] == 32
    assert cores(fitted(parts, 32, 96, whole=False))["actors"] == 4  # of a machine with others


def memory(*options):
    experiment = load_experiment("native:CartPole-v1", ["--plan", "decoupled", *options]).experiment
    return needs_of(experiment).memory


def test_memory_is_estimated_by_role_with_the_replay_and_may_be_named():
    small = memory("--plan.actors.memory", "1.5GB")
    assert small["actors"] == 1.5 * GIB
    assert small["policies"] < small["learner"]
    words = ("--algorithm", "DQN", "--algorithm.replay", "20_000_000")
    assert memory(*words)["learner"] > small["learner"] + 20_000_000 * 4 * 4


def test_an_environment_that_cannot_be_made_here_costs_the_estimate_alone():
    experiment = load_experiment("gym:CartPole-v1", ["--plan", "inline"]).experiment
    found = needs_of(replace(experiment, env="gym:NoSuchEnvironment-v0"))
    assert "NoSuchEnvironment" in found.unknown
    assert found.memory["actors"] > 0


def test_a_size_that_is_none_is_refused():
    with pytest.raises(UserError, match=r"memory is 'much'; expected a size, such as 2GB"):
        memory("--plan.actors.memory", "much")
    assert Fragment(("act",), memory="512 MiB").memory_bytes == 512 * MIB


def options(*sbatch):
    return SimpleNamespace(sbatch=list(sbatch), partition=None)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((), "asks for 10.6 GiB of memory at a time"),
        (("--exclude=n1",), "asks for 10.6 GiB of memory at a time"),
        (("--mem=1G",), ""),
        (("--mem-per-cpu", "1G"), ""),
    ],
)
def test_options_of_sbatch_switch_off_what_they_override_alone(given, words):
    plan = plans.inline()
    parts = parts_of(plan, {"actors": 3 * GIB, "learner": 4 * GIB})
    room = Room("the partition main", [Node(16, 0, 5 * GIB)] * 2, memory=True, longest_array=1001)
    if not words:
        return refuse_too_much(parts, room, options(*given))
    with pytest.raises(UserError, match=words):
        refuse_too_much(parts, room, options(*given))
