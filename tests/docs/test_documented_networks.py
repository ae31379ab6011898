"""The networks of the documents: a few lines outside srl, and values that see more."""

from contextlib import closing
from dataclasses import replace

import jax
import pytest
from pages import DOCS, python_blocks

from srl.config.experiment import load_experiment
from srl.loop.policy_set import PolicySet
from srl.loop.training import local_training


@pytest.fixture(scope="module")
def blocks():
    return [block.code for block in python_blocks(DOCS / "networks.md")]


def test_a_network_takes_15_lines(blocks):
    assert len([line for line in blocks[0].splitlines() if line]) <= 15


def test_the_asymmetric_one_learns(blocks):
    names = {"__name__": "documents"}
    for code in blocks:
        exec(code, names)
    shown = names["experiment"]
    algorithm = replace(shown.algorithm, unroll_length=4, epochs=1, minibatches=1)
    experiment = replace(shown, num_envs=2, algorithm=algorithm, env_steps=None, updates=1)
    with closing(local_training(experiment)) as training:
        training.start()
        training.update()
        params = training.state()["learners"]["policy"]["params"]
    policy, value = params["policy"]["network"]["features"], params["value"]["features"]
    assert policy["layers_1"]["kernel"].shape == (2, 256)
    assert value["layers_1"]["kernel"].shape == (2 + 4, 512)


@pytest.mark.parametrize(
    "name", ["hidden_velocities.py", "hidden_velocities.py:cheetah", "bit_flip.py"]
)
def test_the_networks_of_the_files_fit_their_environments(name):
    experiment = replace(load_experiment(str(DOCS / name)).experiment, num_envs=2)
    with closing(local_training(experiment)) as training:
        specs = training.environments.make()
        policy_set = PolicySet.of_experiment(experiment, specs, updates=1)
        assert jax.eval_shape(lambda: policy_set.init(jax.random.key(0)))
