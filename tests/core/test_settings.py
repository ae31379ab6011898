"""Settings: values that do not fit their annotations are refused by name."""

from dataclasses import dataclass, field, replace
from typing import Annotated

import numpy as np
import pytest

from srl import Evaluation, Experiment
from srl.algorithms import DQN, PPO, SAC
from srl.core.errors import UserError
from srl.core.schedule import Schedule
from srl.core.settings import Range, Settings, expect_settings
from srl.networks import CNN, MLP, AutoNetwork, EntityAttention, SimBa
from srl.pools import NamedEnv

EXPERIMENT = Experiment(name="e", env="native:CartPole-v1")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"algorithm": PPO(anneal="no")}, "algorithm.anneal is 'no'; expected true or false"),
        ({"algorithm": DQN(double=2)}, "algorithm.double is 2; expected true or false"),
        ({"algorithm": PPO(rewards="half")}, "algorithm.rewards is 'half'; expected usual, raw"),
        ({"algorithm": PPO(privileged="state")}, "algorithm.privileged is 'state'; expected a tu"),
        ({"algorithm": PPO(network=3)}, "algorithm.network is 3; expected a Network"),
        ({"algorithm": PPO(network=MLP(memory=-1))}, "network.memory is -1; expected a whole numb"),
        ({"algorithm": PPO(network=MLP(cell="rnn"))}, "network.cell is 'rnn'; expected gru or lst"),
        ({"algorithm": PPO(network=MLP(depth=-2))}, "network.depth is -2; expected a whole number"),
        ({"algorithm": PPO(network=MLP(width=2.5))}, "network.width is 2.5; expected a whole numb"),
        ({"algorithm": PPO(network=MLP(activation=3))}, "network.activation is 3; expected a text"),
        ({"algorithm": PPO(network=MLP(widths=(8, 0)))}, r"network.widths\[1\] is 0; expected a w"),
        ({"algorithm": PPO(network=AutoNetwork(mlp=MLP(0)))}, "network.mlp.width is 0; expected"),
        ({"algorithm": PPO(network=CNN(strides=(4, 0, 1)))}, r"network.strides\[1\] is 0; expect"),
        ({"algorithm": PPO(network=EntityAttention(heads=0))}, "network.heads is 0; expected a w"),
        ({"algorithm": SAC(network=SimBa(blocks=0))}, "network.blocks is 0; expected a whole num"),
        ({"algorithm": PPO(learning_rate=Schedule(3))}, "learning_rate.points is 3"),
        (
            {"algorithm": SAC(value_range=(1.0,))},
            r"algorithm.value_range is \(1.0,\); expected a tuple of 2 values",
        ),
        ({"evaluation": Evaluation(video="yes")}, "evaluation.video is 'yes'; expected true or fa"),
        ({"evaluation": 3}, "evaluation is 3; expected an Evaluation, or none"),
        ({"env": NamedEnv("native:CartPole-v1", 3)}, "env.arguments is 3; expected values by name"),
        ({"team_reward": {"*": ["sum"]}}, "team_reward is .*; expected sum or mean"),
        ({"policies": {1: "policy"}}, "policies: a pattern is 1; expected a text"),
        ({"checkpoint_minutes": float("nan")}, "checkpoint_minutes is nan; expected"),
        ({"workers": True}, "workers is True; expected a whole number"),
    ],
)
def test_a_setting_of_another_type_or_out_of_range_is_named(changes, message):
    with pytest.raises(UserError, match=message):
        replace(EXPERIMENT, **changes).validate()


def test_networks_are_checked_where_they_are_built_without_an_experiment():
    from gymnasium import spaces

    with pytest.raises(UserError, match=r"network.width is 0; expected a whole number from 1 up"):
        MLP(width=0).build(spaces.Box(-1, 1, (3,)), 2)


def test_convolutions_need_as_many_kernels_as_filters():
    from gymnasium import spaces

    image = spaces.Box(0, 255, (84, 84, 4), "uint8")
    with pytest.raises(UserError, match="filters, kernels and strides have 2, 3 and 3 numbers"):
        CNN(filters=(8, 8)).build(image, 2)


def test_defaults_of_own_settings_may_be_of_another_type():
    @dataclass(frozen=True)
    class Own(Settings):
        label: str = None
        layers: tuple[int, ...] = field(default_factory=lambda: [8])

    expect_settings("own", Own())
    expect_settings("own", Own(layers=(8, 8, 8)))
    with pytest.raises(UserError, match=r"own.label is 3; expected a text"):
        expect_settings("own", Own(3))


@dataclass(frozen=True)
class Loose(Settings):
    sizes: tuple[int] = (64, 64)
    depth: tuple[int, ...] = 1000
    least: Annotated[int, Range(1)] = 0


def test_values_of_a_runs_folder_that_equal_defaults_pass_as_these_do():
    expect_settings("loose", Loose(sizes=(*[64, 64],), depth=int("1000"), least=int("0")))
    expect_settings("loose", Loose(sizes=(32, 32, 32)))


def test_numpys_values_are_taken_as_pythons():
    kinds = PPO(anneal=np.bool_(True), epochs=np.int64(3), clip=np.float32(0.2))
    expect_settings("algorithm", kinds)
    expect_settings("algorithm", DQN(atoms=51, value_range=np.array([-1.0, 1.0])))
    with pytest.raises(UserError, match="rewards is"):
        expect_settings("algorithm", PPO(rewards=np.array(["raw", "sign"])))
