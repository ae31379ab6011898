"""An experiment put back from its run's record is the one that its command line made."""

from pathlib import Path

import pytest

from srl.config.experiment import load_experiment
from srl.core.config_values import config_values
from srl.run.folder import create_run, open_run, recorded_experiment

FILE = """
from srl import Experiment
from srl.algorithms import PPO
from srl.networks import MLP

experiment = Experiment(
    name="one", env="CartPole-v1", algorithm=PPO(network=MLP(width=32), unroll_length=16)
)
odd = Experiment(name="two", env="CartPole-v1", num_envs=7, plan="inline")
"""
SCHEMAS = [
    "",
    "--num-envs 32 --seed 7 --updates 10",
    "--plan inline --plan.actors.replicas 4 --plan.learner.cores 1.5",
    "--plan decoupled --max-staleness none --groups 4 --env native:CartPole-v1",
    "--algorithm.learning-rate 1e-3 --algorithm.network.activation relu --checkpoint-minutes 0.5",
    "--policies.* team --step-timeout 3",
    "--env.sutton-barto-reward true --seed 3",
]


@pytest.mark.parametrize("words", SCHEMAS)
def test_a_record_gives_the_same_experiment_without_the_command_line(tmp_path, words):
    file = tmp_path / "file.py"
    file.write_text(FILE)
    folder = create_run(load_experiment(str(file), words.split()), tmp_path / "run")
    _, resolved = open_run(tmp_path / "run")
    experiment = recorded_experiment(folder.path)
    assert experiment == resolved.experiment
    assert repr(experiment) == repr(resolved.experiment)


def test_a_file_that_needs_its_command_line_is_read_with_it(tmp_path):
    file = tmp_path / "file.py"
    file.write_text(FILE)
    words = ["--num-envs", "8"]
    folder = create_run(load_experiment(f"{file}:odd", words), tmp_path / "run")
    assert recorded_experiment(folder.path).num_envs == 8


@pytest.mark.parametrize("file", sorted(Path("experiments").glob("*.py")), ids=lambda f: f.stem)
def test_every_experiment_comes_back(tmp_path, file):
    folder = create_run(load_experiment(str(file)), tmp_path / "run")
    # As values: classes and functions of the file are others each time that it is imported.
    made = load_experiment(str(file)).experiment
    assert config_values(recorded_experiment(folder.path)) == config_values(made)
