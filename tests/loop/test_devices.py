"""What is on which device, what an update moves, and what memory it takes."""

import os
import subprocess

import jax
import numpy as np
import pytest

from srl import Experiment
from srl.core.errors import UserError
from srl.core.tree import map_tree
from srl.dataflow import plans
from srl.loop.stepping.threads import ThreadEnvironments
from srl.system.child_process import child_command
from srl.system.gpu_switches import CHOICES, gpu_choice


@pytest.mark.parametrize(
    "name",
    [
        "all_devices",
        "fused_in_jax",
        "acting_on_cpu",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("one", "fused_native")),
    ],
)
def test_an_update_leaves_everything_on_its_device_and_in_its_memory(name):
    environment = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
        "SRL_GPU": "act=cpu" if name == "acting_on_cpu" else "",
    }
    command = child_command("srl.extras.bench.gpu_placement", name)
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr


def test_arrays_come_to_the_host_the_same_together_or_apart():
    tree = {"a": jax.numpy.arange(3.0), "b": (jax.numpy.ones((2, 2), bool),)}
    for found in (map_tree(np.asarray, tree), jax.device_get(tree)):
        jax.tree.map(np.testing.assert_array_equal, tree, found)
        assert all(type(x) is np.ndarray for x in jax.tree.leaves(found))


@pytest.mark.parametrize("text", ["act=tpu", "speed=high", "act"])
def test_a_choice_that_there_is_not_is_refused(monkeypatch, text):
    monkeypatch.setenv("SRL_GPU", f"copies=apart,{text}")
    with pytest.raises(UserError, match=f"SRL_GPU holds '{text}'; expected some of convolutions"):
        gpu_choice("copies")


def test_choices_have_defaults(monkeypatch):
    monkeypatch.setenv("SRL_GPU", "act=cpu, prefetch=off")
    assert [gpu_choice(name) for name in CHOICES] == ["xla", "cpu", "together", "off", "whole"]


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(("choice", "parts"), [("whole", 1), ("shared", 2)])
def test_next_to_a_gpu_the_pool_of_each_actor_thread_has_all_cores(monkeypatch, choice, parts):
    monkeypatch.setenv("SRL_GPU", f"pools={choice}")
    plan = plans.threads()
    experiment = Experiment(name="cartpole", env="native:CartPole-v1", num_envs=512, plan=plan)
    environments = ThreadEnvironments(experiment)
    environments.make()
    pools = [pool for own in environments._pools for pool in own]
    cores = len(os.sched_getaffinity(0))
    assert [pool.threads for pool in pools] == [max(1, cores // parts)] * 2
    for pool in pools:
        pool.close()
