"""Settings without effect are refused for new runs, and no others."""

import pytest

from srl.api.cli import main
from srl.config.effects import expect_effect
from srl.config.experiment import load_experiment


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--plan inline --plan.actors.batch 4", "no environment steps as it gets ready; leave it"),
        ("--algorithm.network.mlp.memory 8", "belongs to the whole network: give network.memory"),
        ("--algorithm dqn --algorithm.network.value-widths 8", "network.value_widths: DQN has no"),
        ("--algorithm dqn --algorithm.network.mlp.value-widths 8", "network.mlp.value_widths: DQN"),
    ],
)
def test_a_setting_without_effect_is_refused(words, message, capsys):
    assert main(["run", "native:CartPole-v1", *words.split(), "--dry-run"]) == 2
    assert message in capsys.readouterr().err


def test_a_batch_is_of_the_environments_of_an_actor():
    words = "--num-envs 4 --workers 4 --max-staleness 1 --plan inline --plan.actors.replicas 1"

    def batch(number):
        given = [*words.split(), "--plan.actors.batch", str(number)]
        expect_effect(load_experiment("CartPole-v1", given).experiment)

    batch(4)
    with pytest.raises(Exception, match=r"plan.actors.batch is 5; expected a whole number from 1"):
        batch(5)


@pytest.mark.parametrize("words", ["", "--algorithm sac", "--algorithm.network.mlp.width 8"])
def test_usual_settings_have_an_effect(words):
    env = "native:Pendulum-v1"
    expect_effect(load_experiment(env, words.split()).experiment)
