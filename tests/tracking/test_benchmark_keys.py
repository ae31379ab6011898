import json

import pytest

from srl.config.experiment import load_experiment
from srl.run.folder import create_run

MIXED = "mixture:a=native:Ant-v5,b=native:Hopper-v5"


def keys_of(tmp_path, target, *words):
    folder = create_run(load_experiment(str(target), words), tmp_path / "run")
    config = json.loads(folder.config.read_text())
    return {key: config[key] for key in ("env_id", "exp_name", "seed", "tags")}


@pytest.mark.parametrize(
    ("env", "env_id"),
    [
        ("CartPole-v1", "CartPole-v1"),
        ("native:Ant-v5", "Ant-v5"),
        ("envpool:Pong-v5", "Pong-v5"),
        ("my_module:MyEnv-v0", "MyEnv-v0"),
        (
            "mixture:a=native:Ant-v5,b=native:Hopper-v5",
            "mixture:a=native:Ant-v5,b=native:Hopper-v5",
        ),
        ("pettingzoo:mpe2.simple_tag_v3", "mpe2.simple_tag_v3"),
    ],
)
def test_a_run_of_an_id_is_found_by_that_and_by_its_algorithm(tmp_path, env, env_id):
    found = keys_of(tmp_path, env, "--seed", "3", "--tags", "pr-7", "laptop", "--algorithm", "PQN")
    wanted = {"env_id": env_id, "exp_name": "pqn", "seed": 3, "tags": ["pr-7", "laptop"]}
    assert found == wanted


@pytest.mark.parametrize(
    ("env", "env_id"),
    [
        ("'CartPole-v1'", "CartPole-v1"),
        ("NamedEnv('Pendulum-v1', {'g': 9.0})", "Pendulum-v1"),
        ("HideAndSeek()", "HideAndSeek-v1"),
        ("make", "make"),
    ],
)
def test_a_run_of_a_file_is_found_by_its_name(tmp_path, env, env_id):
    file = tmp_path / "experiments.py"
    file.write_text(
        "import gymnasium\n"
        "from srl import Experiment\n"
        "from srl.envs.hide_and_seek.config import HideAndSeek\n"
        "from srl.pools import NamedEnv\n"
        "def make(): return gymnasium.make('CartPole-v1')\n"
        f"experiment = Experiment(name='mine', env={env})\n"
    )
    assert keys_of(tmp_path, file) == {"env_id": env_id, "exp_name": "mine", "seed": 0, "tags": []}
