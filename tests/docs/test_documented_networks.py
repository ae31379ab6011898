"""The networks of docs/networks.md: a few lines outside srl, with a value that sees more."""

from contextlib import closing
from dataclasses import replace

import pytest
from pages import DOCS, python_blocks

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
