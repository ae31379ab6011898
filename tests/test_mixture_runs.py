"""A run of a mixture: its reports, its evaluation, its agent."""

import json
from dataclasses import replace

import gymnasium
import numpy as np
import pytest

import srl
from srl import Experiment, Mixture
from srl.algorithms import PPO
from srl.config.experiment import load_experiment
from srl.core.errors import UserError
from srl.launch.local import train
from srl.networks import MLP
from srl.run.folder import create_run

TASKS = "mixture:swing=native:Pendulum-v1,hop=native:Hopper-v5"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    options = ["--num-envs", "8", "--updates", "2", "--report-every", "1"]
    options += ["--algorithm.unroll-length", "128", "--algorithm.epochs", "1"]
    options += ["--algorithm.network.mlp.width", "8", "--plan", "replicated"]
    options += ["--plan.learners.replicas", "1"]
    resolved = load_experiment(TASKS, options)
    folder = create_run(resolved, tmp_path_factory.mktemp("mixture") / "run")
    assert train(resolved.experiment, folder) == 0
    return folder.path


def test_reports_are_by_task(run):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    last = lines[-1]
    assert last["episodes"] == last["episodes/swing"] + last["episodes/hop"]
    assert last["episodes/swing"] == 4
    assert last["episode_length/swing"] == 200
    mean = (last["episode_return/swing"] + last["episode_return/hop"]) / 2
    assert last["episode_return"] == pytest.approx(mean)
    assert last["env/x_position/hop"] > -10
    assert "env/x_position/swing" not in last


def test_evaluation_gives_the_returns_of_each_task(run):
    found = srl.evaluate(run, episodes=4, num_envs=3)
    results = found["results"]
    assert results["episode_length/swing"]["mean"] == 200
    assert results["episode_length/hop"]["mean"] < 200
    assert "episode_return/hop" in found.text


def test_an_agent_acts_in_a_task_by_the_mixtures_observations(run):
    agent = srl.load(run)
    with srl.make_pool(TASKS, 2, only="swing") as pool:
        observation = pool.reset(0).observation
        action, _ = agent.act(observation)
        assert action.shape == (2, 3)
        assert not action[:, 1:].any()
        pool.step(action)
    del observation["action_mask"]
    with pytest.raises(UserError, match="give action_mask=, 3 numbers"):
        agent.act(observation)


def test_python_environments_alone_make_a_mixture(tmp_path):
    env = srl.Mixture({"cart": "CartPole-v1", "climb": "MountainCar-v0"}, {"cart": 3})
    experiment = Experiment("python", env, num_envs=4, updates=1, algorithm=PPO(unroll_length=8))
    experiment.validate()
    assert experiment.settled_plan.name == "replicated"
    assert np.array_equal(env.task_of, [0, 0, 0, 1])


class Steps(gymnasium.Env):
    """Episodes of a drawn length, in the experiment's own process."""

    observation_space = gymnasium.spaces.Box(-1, 1, (3,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(3, np.float32), {}

    def step(self, action):
        return np.zeros(3, np.float32), 1.0, bool(self.np_random.random() < 0.2), False, {}


@pytest.mark.parametrize(
    ("env", "workers"),
    [
        ("mixture:swing=Pendulum-v1,roll=MountainCarContinuous-v0", 2),
        (Mixture({"own": Steps, "pole": "CartPole-v1"}), 0),
    ],
)
def test_tasks_may_all_be_in_python(tmp_path, env, workers):
    algorithm = PPO(network=MLP(width=4), unroll_length=8, epochs=1, minibatches=1)
    experiment = Experiment("python", env, num_envs=4, algorithm=algorithm, updates=1)
    experiment = replace(experiment, workers=workers)
    run = srl.train(experiment, run_dir=tmp_path / "run", quiet=True)
    assert len(run.metrics) == 1


def test_an_unknown_task_is_named_before_a_run(tmp_path):
    experiment = Experiment("python", "mixture:a=Pendulum-v1,b=Pendlum-v1", updates=1)
    with pytest.raises(UserError, match="did you mean Pendulum-v1"):
        srl.train(experiment, run_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()
