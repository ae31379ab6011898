"""Wrappers of environments by their names, and Atari's games in one word."""

from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import TimeLimit

from srl import UserError, make_pool
from srl.config.experiment import load_experiment
from srl.core.console.arguments import Arguments
from srl.pools import NamedEnv
from srl.pools.config import environment_options


class Doubled(gymnasium.RewardWrapper):
    """Doubles rewards; a module of its own may hold such a class."""

    def reward(self, reward):
        return 2 * reward


def after(steps, env, **options):
    with make_pool(env, 2, **options) as pool:
        timestep = pool.reset(seed=0)
        for _ in range(steps):
            timestep = pool.step(np.zeros(2, int))
        return timestep, pool.specs


@pytest.mark.parametrize("workers", [0, 1])
def test_wrappers_are_applied_in_order_wherever_environments_step(workers):
    named = [f"{__name__}:Doubled", "TimeLimit(max_episode_steps=3)"]
    called = [Doubled, partial(TimeLimit, max_episode_steps=3)]
    for wrappers in (named, called):
        timestep, specs = after(3, "CartPole-v1", wrappers=wrappers, workers=workers)
        assert timestep.episode_return.tolist() == [6, 6]
        assert timestep.truncated.all()
        assert specs.max_episode_steps == 3


def test_vector_environments_take_vector_wrappers():
    timestep, _ = after(2, "vector:CartPole-v1", wrappers=["ClipReward(max_reward=0.5)"])
    assert timestep.episode_return.tolist() == [1, 1]


def test_the_command_line_names_them_one_by_one():
    options = environment_options(
        ["--env.wrappers", "A", "--env.sutton-barto-reward=true", "--env.wrappers", "m:B(size=2)"]
    )
    assert options == {"wrappers": ("A", "m:B(size=2)"), "sutton_barto_reward": True}
    text = "TimeLimit(max_episode_steps=3)"
    experiment = load_experiment("CartPole-v1", ["--env.wrappers", text]).experiment
    assert experiment.env == NamedEnv("CartPole-v1", {"wrappers": (text,)})
    assert after(3, experiment.env)[0].truncated.all()
    parser = Arguments("run")
    _, overrides = parser.parse_known_args(["--env.wrappers", "A", "--env.wrappers", "B"])
    assert overrides.count("--env.wrappers") == 2


@pytest.mark.parametrize(
    ("wrappers", "text"),
    [
        (["Nope"], "gymnasium.wrappers has no 'Nope'"),
        (["no_such_module:Nope"], "No module named 'no_such_module'"),
        (["TimeLimit(3)"], r"expected NAME\(name=value, ...\)"),
        (["TimeLimit(max_episode_steps=open('x'))"], r"expected NAME\(name=value, ...\)"),
        ("TimeLimit", "expected a list of wrappers"),
    ],
)
def test_what_names_no_wrapper_is_reported(wrappers, text):
    with pytest.raises(UserError, match=text):
        make_pool("CartPole-v1", 2, wrappers=wrappers)


def test_wrappers_of_what_is_not_written_in_python_are_refused():
    with pytest.raises(UserError, match="does nothing for native:CartPole-v1, which is not"):
        make_pool("native:CartPole-v1", 2, wrappers=["TimeLimit(max_episode_steps=3)"])


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_atari_games_give_single_grey_frames_and_the_true_score(mode):
    settings = {"autoreset_mode": mode, "noop_max": 0, "max_num_frames_per_episode": 40}
    timestep, specs = after(10, "atari:Pong", **settings)
    assert specs.observation.shape == (1, 84, 84)
    assert timestep.truncated.all()
    assert timestep.episode_length.tolist() == [10, 10]
    assert timestep.observation.any()
    with make_pool("atari:Boxing", 1, repeat_action_probability=0.0) as pool:
        pool.reset(seed=1)
        rewards = [pool.step(np.array([i % 18])).reward[0] for i in range(600)]
    assert np.unique(np.abs(rewards)).tolist() != [0.0]
    with pytest.raises(UserError, match=r"did you mean atari:Pong\?"):
        make_pool("atari:Pnog", 1)
    with pytest.raises(UserError, match=r"did you mean noop_max\?"):
        make_pool("atari:Pong", 1, nop_max=1)


def test_atari_stacks_four_frames_and_learns_signs_unless_told_otherwise():
    usual = load_experiment("atari:Pong").experiment.algorithm
    assert (usual.frame_stack, usual.rewards) == (4, "sign")
    given = ["--algorithm.frame-stack", "2", "--algorithm.rewards", "raw"]
    other = load_experiment("atari:Pong", given).experiment.algorithm
    assert (other.frame_stack, other.rewards) == (2, "raw")


def test_a_mixture_of_ataris_games_has_their_usual_settings():
    games = ["--num-envs", "8"]
    usual = load_experiment("mixture:atari:Pong,atari:Boxing", games).experiment.algorithm
    assert (usual.frame_stack, usual.rewards) == (4, "sign")
    others = "mixture:atari:Pong,CarRacing-v3"
    with pytest.raises(UserError, match="some tasks of the mixture are games of Atari"):
        load_experiment(others, games)
    given = ["--algorithm.frame-stack", "1", "--algorithm.rewards", "clip"]
    chosen = load_experiment(others, [*games, *given]).experiment.algorithm
    assert (chosen.frame_stack, chosen.rewards) == (1, "clip")


def test_r2d2_learns_ataris_rewards_as_they_are_unless_told_otherwise():
    given = ["--algorithm", "r2d2"]
    usual = load_experiment("atari:Pong", given).experiment.settled_algorithm
    assert (usual.frame_stack, usual.rewards) == (4, "raw")
    given += ["--algorithm.rewards", "usual"]
    other = load_experiment("atari:Pong", given).experiment.settled_algorithm
    assert other.rewards == "sign"
