"""One algorithm, eight plans: what they train is the same."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from srl.checkpoint import Checkpoints
from srl.cli import main
from srl.dataflow.plans import PLANS
from srl.streams.parcel import unpack
from srl.tree import leaves_of

CARTPOLE = """
from srl import Experiment
from srl.algorithms import PPO
from srl.networks import MLP

experiment = Experiment(
    name="cartpole",
    env="native:CartPole-v1",
    num_envs=16,
    groups=4,
    algorithm=PPO(network=MLP(width=16), unroll_length=16, epochs=2),
    updates=3,
)
"""
RECURRENT = CARTPOLE.replace("MLP(width=16)", "MLP(width=16, memory=8), chunk=4")
GAME = """
from srl import Experiment
from srl.algorithms import PPO
from srl.envs.hide_and_seek import HideAndSeek
from srl.networks import EntityAttention

experiment = Experiment(
    name="game",
    env=HideAndSeek(horizon=20),
    num_envs=8,
    groups=4,
    algorithm=PPO(network=EntityAttention(width=8, heads=2), unroll_length=8, epochs=1),
    policies={"hider*": "hiders", "seeker*": "seekers"},
    updates=3,
)
"""
FILES = {"cartpole": CARTPOLE, "recurrent": RECURRENT, "game": GAME}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Trains an experiment by a plan; gives its checkpoint."""

    @cache
    def train(name: str, *options: str):
        folder: Path = tmp_path_factory.mktemp("plans")
        (folder / "experiment.py").write_text(FILES[name])
        run = folder / "run"
        words = ["run", str(folder / "experiment.py"), "--run-dir", str(run), "--plan", *options]
        assert main(words) == 0
        checkpoints = Checkpoints(run / "checkpoints")
        tree, _ = checkpoints.restore()
        checkpoints.close()
        return tree

    return train


def parameters(tree) -> np.ndarray:
    leaves = leaves_of({name: state["params"] for name, state in tree["learners"].items()})
    return np.concatenate([np.ravel(leaf) for leaf in leaves])


def environments(tree) -> list[np.ndarray]:
    """The timesteps that groups go on from, side by side: where the actions have led."""
    groups = unpack(tree["environments"].copy(), 1 << 30)
    assert groups
    parts = [leaves_of(groups[group]["timestep"]) for group in sorted(groups, key=int)]
    return [np.concatenate(leaf) for leaf in zip(*parts, strict=True)]


def assert_same_actions(a, b) -> None:
    # All but env_id, which counts within a group.
    different = [
        not np.array_equal(x, y) for x, y in zip(environments(a), environments(b), strict=True)
    ]
    assert sum(different) <= 1


@pytest.mark.parametrize("plan", [plan for plan in PLANS if plan != "replicated"])
@pytest.mark.parametrize("name", FILES)
def test_every_plan_trains_as_the_plain_loop_does(trained, name, plan):
    plain = trained(name, "replicated", "--plan.learners.replicas", "1")
    other = trained(name, plan)
    assert_same_actions(plain, other)
    a, b = parameters(plain), parameters(other)
    assert np.linalg.norm(a - b) / np.linalg.norm(a) < 1e-5


@pytest.mark.parametrize("name", ["cartpole", "game"])
def test_two_replicas_train_as_one_does(trained, name):
    plain = trained(name, "replicated", "--plan.learners.replicas", "1")
    other = trained(name, "replicated")
    assert_same_actions(plain, other)
    a, b = parameters(plain), parameters(other)
    assert np.linalg.norm(a - b) / np.linalg.norm(a) < 1e-5
