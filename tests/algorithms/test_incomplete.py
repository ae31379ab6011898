"""Algorithms of users that lack something are refused when they are loaded."""

import pytest

from srl.config.experiment import load_experiment
from srl.core.errors import UserError

ALGORITHM = """
from dataclasses import dataclass
from srl import Experiment
from srl.algorithms import PPO, Algorithm, Instance

{body}

experiment = Experiment(name="mine", env="native:CartPole-v1", algorithm={made})
"""
INCOMPLETE = """
@dataclass(frozen=True)
class Mine(Algorithm):
    tau: float = 0.5

    @property
    def instance(self):
        return MineInstance

@dataclass(frozen=True)
class MineInstance(Instance):
    config: Mine

    def init(self, key):
        return key

    def policy(self, state):
        return state
"""


@pytest.mark.parametrize(
    ("body", "made", "told"),
    [
        (INCOMPLETE, "Mine()", r"MineInstance has no actor, gradient_step: write them"),
        (
            "@dataclass(frozen=True)\nclass Mine(Algorithm):\n    tau: float = 0.5",
            "Mine()",
            r"the algorithm Mine has no property `instance`, which gives the",
        ),
        (
            "class Mine(PPO):\n    tau: float = 0.5",
            "Mine()",
            r"experiment.algorithm is a Mine, whose tau would be ignored: put @dataclass",
        ),
        (
            "@dataclass(frozen=True)\nclass Mine(PPO):\n    learning_rate = 0.5",
            "Mine()",
            r"whose learning_rate would be ignored: write `learning_rate: float = 0.5`",
        ),
        (
            "from srl.networks import MLP\nclass Deep(MLP):\n    layers: int = 9",
            "PPO(network=Deep())",
            r"experiment.algorithm.network is a Deep, whose layers would be ignored",
        ),
    ],
)
def test_an_algorithm_that_is_not_complete_is_refused_when_it_is_loaded(tmp_path, body, made, told):
    path = tmp_path / "mine.py"
    path.write_text(ALGORITHM.format(body=body, made=made))
    for words in ([], ["--algorithm.tau", "0.1"]):  # which is no option of the last ones
        if words and "tau" not in body:
            continue
        with pytest.raises(UserError, match=told):
            load_experiment(str(path), words)


def test_a_class_that_changes_no_setting_needs_no_decorator(tmp_path):
    path = tmp_path / "mine.py"
    body = "class Mine(PPO):\n    def loop(self, run):\n        super().loop(run)\n"
    path.write_text(ALGORITHM.format(body=body, made="Mine()"))
    assert type(load_experiment(str(path)).experiment.algorithm).__name__ == "Mine"


def test_an_option_for_a_setting_without_a_type_says_so(tmp_path):
    path = tmp_path / "mine.py"
    body = "@dataclass(frozen=True)\nclass Mine(PPO):\n    tau = 0.5"
    path.write_text(ALGORITHM.format(body=body, made="Mine()"))
    told = "Mine.tau has no type annotation, and so is no setting: write `tau: float = 0.5`"
    with pytest.raises(UserError, match=told):
        load_experiment(str(path), ["--algorithm.tau", "0.1"])
