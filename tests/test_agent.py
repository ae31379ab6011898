"""A run's folder alone gives what acts: as in evaluation, and without an environment."""

import json
import subprocess
import sys
from dataclasses import replace

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium import spaces

import srl
from srl.algorithms import SAC
from srl.config.experiment import load_experiment
from srl.core.errors import UserError
from srl.evaluation.episodes import Evaluator
from srl.evaluation.players import trained
from srl.launch.local import train
from srl.networks import MLP
from srl.pools import make_pool
from srl.record.run_record import RunFolder
from srl.run.folder import create_run
from tests.small_runs import CARTPOLE, GAME, RECURRENT, resolved, save


class Choosing(gymnasium.Env):
    """Two choices from 1 up, with a mask in the info and a picture beside a number."""

    observation_space = spaces.Dict(
        {"picture": spaces.Box(0, 255, (8, 8, 3), np.uint8), "count": spaces.Discrete(4, start=1)}
    )
    action_space = spaces.MultiDiscrete([3, 2], start=[1, 0])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {"action_mask": [1, 0, 1, 1, 1]}

    def step(self, action):
        assert action[0] != 2
        return self.observation_space.sample(), 0.0, False, False, {"action_mask": [1, 0, 1, 1, 1]}


PENDULUM = replace(CARTPOLE, env="native:Pendulum-v1", name="pendulum")
TAG = replace(CARTPOLE, env="pettingzoo:mpe2.simple_tag_v3", name="tag")
EXPERIMENTS = {
    "memory": RECURRENT,
    "pendulum": PENDULUM,
    "sac": replace(PENDULUM, algorithm=SAC(network=MLP(width=16), warm_up=448)),
    "masks": replace(CARTPOLE, env=Choosing),
    "teams": GAME,
    "padded": TAG,
    "padded actions": replace(TAG, env="pettingzoo:mpe2.simple_speaker_listener_v4"),
    "pendulum frames": replace(PENDULUM, algorithm=replace(CARTPOLE.algorithm, frame_stack=2)),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Makes the run of an experiment by its name, once."""
    made = {}

    def run(name):
        if name not in made:
            made[name] = save(resolved(EXPERIMENTS[name]), tmp_path_factory.mktemp(name) / "run")
        return made[name].path

    return run


# ---- as in evaluation ----


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_agent_acts_as_the_policies_do_in_evaluation(name, runs):
    experiment, path = EXPERIMENTS[name], runs(name)
    agent, num_envs = srl.load(path), 3
    assert (agent.version, agent.env_steps, agent.path) == (7, 16, path)
    with make_pool(experiment.env, num_envs) as pool:
        player = trained(experiment, RunFolder(path), pool.specs).player
        kinds = {"all": tuple(range(len(pool.specs.agents)))}
        evaluator = Evaluator(pool, num_envs, greedy=True, sides=kinds)
        steps = evaluator.steps({"all": player})
        _, timestep = next(steps)
        memory = None
        for _ in range(4):
            found, memory = agent.act(by_agent(agent, timestep.observation), memory)
            action, timestep = next(steps)
            if len(agent.agents) == 1:
                np.testing.assert_allclose(found, action, atol=1e-6)
                continue
            rows = by_agent(agent, action, agent.action_space)
            assert found.keys() == rows.keys()
            for one, own in rows.items():
                np.testing.assert_allclose(found[one], own, atol=1e-6)


def by_agent(agent, tree, space=None):
    """Rows of slots as an environment's own observations, or actions, of each agent."""
    space, count = space or agent.observation_space, len(agent.agents)
    if count == 1:
        return jax.tree.map(np.copy, tree)

    def cropped(value, own):
        if isinstance(own, spaces.Dict):
            return {key: cropped(value[key], own[key]) for key in own}
        return np.array(value[(slice(None), *map(slice, own.shape))])

    return {
        name: cropped(jax.tree.map(lambda x, i=i: x[i::count], tree), space(name))
        for i, name in enumerate(agent.agents)
    }


def test_one_observation_gets_the_action_that_it_gets_in_a_batch(runs):
    agent = srl.load(runs("memory"))
    batch = np.random.default_rng(0).normal(size=(3, 4))
    actions, memories = agent.act(batch)
    actions, memories = agent.act(batch, memories)
    action, memory = agent.act(batch[1])
    assert np.shape(action) == ()
    action, memory = agent.act(batch[1], memory)
    assert action == actions[1]
    np.testing.assert_allclose(memory, memories[1], atol=1e-6)


def test_an_actor_past_its_warm_up_acts_in_evaluation(runs):
    path, experiment = runs("sac"), EXPERIMENTS["sac"]
    with make_pool(experiment.env) as pool:
        player = trained(experiment, RunFolder(path), pool.specs).player
    assert player.policies["policy"].params["acts"]  # after 7 updates of 64 steps


def test_an_environment_of_gymnasium_takes_the_actions_as_they_are(runs):
    agent, env = srl.load(runs("pendulum")), gymnasium.make("Pendulum-v1")
    observation, _ = env.reset(seed=0)
    for _ in range(5):
        action, memory = agent.act(observation)
        assert memory is None
        assert env.action_space.contains(action)
        observation, *_ = env.step(action)


def test_masks_given_apart_are_honoured(runs):
    agent, env = srl.load(runs("masks")), Choosing()
    observation, info = env.reset(seed=0)
    seen = set()
    for _ in range(40):
        action, _ = agent.act(observation, None, False, action_mask=info["action_mask"])
        seen.add(tuple(action.tolist()))
    assert seen == {(1, 0), (1, 1), (3, 0), (3, 1)}
    both = {**observation, "action_mask": np.array(info["action_mask"])}
    parts = ([1, 0, 1], [1, 1])
    assert np.array_equal(agent.act(both)[0], agent.act(observation, action_mask=parts)[0])


def test_agents_that_are_not_there_are_left_out(runs):
    agent = srl.load(runs("padded"))
    one = agent.agents[-1]
    space = agent.observation_space(one)
    actions, _ = agent.act({one: np.zeros(space.shape)})
    assert list(actions) == [one]
    assert agent.action_space(one).contains(actions[one])


def test_agents_with_different_numbers_of_actions_need_no_masks(runs):
    agent = srl.load(runs("padded actions"))
    size = {own: agent.observation_space(own)["observation"].shape for own in agent.agents}
    numbers = {own: agent.action_space(own).n for own in agent.agents}
    assert len(set(numbers.values())) == 2
    for lead in ((), (50,)):
        given = {own: np.zeros((*lead, *size[own])) for own in agent.agents}
        actions, _ = agent.act(given, deterministic=False)
        assert all(np.shape(actions[own]) == lead for own in agent.agents)
        assert all((actions[own] < numbers[own]).all() for own in agent.agents)
    masks = {own: np.ones((50, number), int) for own, number in numbers.items()}
    wanted, found = (agent.act(given, action_mask=each)[0] for each in (masks, None))
    assert all(np.array_equal(wanted[own], found[own]) for own in agent.agents)


def test_drawn_actions_follow_from_the_seed(runs):
    def drawn(seed):
        agent = srl.load(str(runs("pendulum")), seed=seed)
        return [agent.act(np.zeros(3), deterministic=False)[0].item() for _ in range(3)]

    assert drawn(1) == drawn(1) != drawn(2)
    assert len(set(drawn(1))) == 3


# ---- from the folder alone ----

_ALONE = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("mujoco", "zmq") or name == "srl._core":
            raise ImportError(f"{name} is not here")

sys.meta_path.insert(0, Absent())
import numpy as np
import srl

agent = srl.load(sys.argv[1])
print(agent.act(np.linspace(-1, 1, 3))[0].item())
"""


def test_an_agent_needs_no_environment(runs):
    run = runs("pendulum frames")
    command = [sys.executable, "-c", _ALONE, str(run)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    action, _ = srl.load(run).act(np.linspace(-1, 1, 3))
    assert float(done.stdout) == pytest.approx(action.item(), abs=1e-6)


def test_the_text_of_an_agent_says_what_it_is(runs):
    agent = srl.load(runs("pendulum"))
    assert repr(agent).startswith("<Agent PPO on native:Pendulum-v1, policies policy, version 7 (")
    assert repr(agent).endswith(f"{agent.observation_space()} -> {agent.action_space()}>")


def test_a_trained_run_can_be_loaded(tmp_path):
    experiment = replace(CARTPOLE, updates=1)
    folder = create_run(resolved(experiment), tmp_path / "run")
    assert train(experiment, folder) == 0
    assert srl.load(folder.path).act(np.zeros(4))[0] in (0, 1)


_FILE = """
from dataclasses import dataclass
from srl import Experiment
from srl.algorithms import PPO
from srl.networks import MLP

@dataclass(frozen=True)
class Mine(PPO):
    extra: tuple[float, float] = (1.0, 2.0)

experiment = Experiment("mine", "native:CartPole-v1", algorithm=Mine(network=MLP(width=16)))
"""


def test_an_algorithm_of_the_experiment_file_comes_from_the_runs_copy_of_it(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(_FILE)
    run = save(load_experiment(str(file)), tmp_path / "run")
    file.unlink()
    assert srl.load(run.path).act(np.zeros(4))[0] in (0, 1)
    run.source.write_text(_FILE.replace("mine", "yours"))
    with pytest.raises(UserError, match="was changed after the run began"):
        srl.load(run.path)


# ---- mistakes ----


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("pendulum", [np.zeros(4)], r"observation has shape \(4,\); expected \(3,\), or \(N, 3\)"),
        ("pendulum", [np.zeros((2, 2, 3))], "observation has shape"),
        ("pendulum", ["text"], "observation has dtype <U4; expected float32"),
        ("pendulum", [[[1.0], 2.0]], "observation is list; expected an array"),
        ("pendulum", [None], "observation is NoneType; expected an array"),
        ("pendulum", [3.0], r"observation has shape \(\); expected \(3,\)"),
        ("pendulum", [np.zeros((0, 3))], "observation has no rows"),
        ("pendulum", [(np.zeros(3), {})], "of which the first is meant"),
        ("masks", [{"count": 1}], "needs|none: give action_mask=, 5 numbers"),
        (
            "masks",
            [{"count": 1, "action_mask": np.ones(5)}],
            r"expected a dict of \['action_mask', ",
        ),
        ("memory", [np.zeros((3, 4)), np.zeros((2, 8), np.float32)], "the memory is not what act"),
        ("memory", [np.zeros(4), "text"], "the memory is not what act"),
        ("pendulum", [np.zeros(3), False], "the memory is not what act"),
        ("padded", [np.zeros(14)], "observation is ndarray; expected a dict by agent: adversary_0"),
        ("padded", [{"nobody": np.zeros(14)}], "observation has 'nobody', which is no agent"),
        ("padded", [{"agent_0": np.zeros(3)}], r"observation of agent_0 has shape \(3,\)"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(name, arguments, message, runs):
    with pytest.raises(UserError, match=message):
        srl.load(runs(name)).act(*arguments)


def test_numbers_out_of_range_and_masks_without_use_are_refused(runs):
    picture = np.zeros((8, 8, 3), np.uint8)
    agent = srl.load(runs("masks"))
    with pytest.raises(UserError, match="has the value 5, which is not in"):
        agent.act({"count": 5, "picture": picture, "action_mask": np.ones(5, np.int8)})
    with pytest.raises(UserError, match="trained without masks"):
        srl.load(runs("pendulum")).act(np.zeros(3), action_mask=[1])


def test_a_run_without_specs_or_with_other_settings_is_refused(tmp_path):
    run = save(resolved(CARTPOLE), tmp_path / "run")
    specs = run.specs.read_text()
    run.specs.unlink()
    with pytest.raises(UserError, match=r"has no specs\.json"):
        srl.load(run.path)
    run.specs.write_text("{}")
    with pytest.raises(UserError, match="cannot be read"):
        srl.load(run.path)
    run.specs.write_text(specs)
    config = json.loads(run.config.read_text())
    config["experiment"]["algorithm"]["new"] = 1
    run.config.write_text(json.dumps(config))
    with pytest.raises(UserError, match="PPO has no new here"):
        srl.load(run.path)
    config["experiment"]["algorithm"]["type"] = "os:system"
    run.config.write_text(json.dumps(config))
    with pytest.raises(UserError, match="os:system is no class of settings"):
        srl.load(run.path, trust=True)
    with pytest.raises(UserError, match="there is no version 9"):
        srl.load(save(resolved(CARTPOLE), tmp_path / "other").path, 9)


@pytest.mark.parametrize(
    ("given", "told"), [((3,), "the run is 3; expected a folder"), (("none",), "none")]
)
def test_what_is_no_run_is_refused(given, told):
    with pytest.raises(UserError, match=told):
        srl.load(*given)


def test_a_seed_that_is_no_number_is_refused(tmp_path):
    with pytest.raises(UserError, match="seed is 'x'"):
        srl.load(tmp_path, seed="x")
