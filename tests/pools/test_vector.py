"""What our vector environments add to Gymnasium's, and what they refuse."""

import os
from contextlib import closing
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from srl import UserError, make_pool, make_vec
from srl.pools import VectorEnv


def first_end(envs):
    """The step that ends the first episode, and its number."""
    envs.reset(seed=0)
    number, done = 0, np.zeros(envs.num_envs, bool)
    while not done.any():
        number += 1
        results = envs.step(np.array([0, 1]))
        done = results[2] | results[3]
        assert done.any() or results[4] == {}
    return number, done, results[4]


def test_the_last_step_of_an_episode_tells_its_return_and_its_length():
    with closing(make_vec("CartPole-v1", 2)) as envs:
        number, done, info = first_end(envs)
        # The key of the wrapper RecordEpisodeStatistics is left to it.
        assert info.keys() == {
            *("episode_return", "_episode_return", "episode_length", "_episode_length")
        }
        np.testing.assert_array_equal(info["_episode_length"], done)
        np.testing.assert_array_equal(info["episode_length"], number * done)
        np.testing.assert_array_equal(info["episode_return"], number * done)
        assert envs.step(np.array([0, 1]))[4] == {}


def test_where_the_same_step_resets_these_are_in_the_final_info():
    with closing(make_vec("CartPole-v1", 2, autoreset_mode="SameStep")) as envs:
        number, done, info = first_end(envs)
        assert info.keys() == {"final_obs", "_final_obs", "final_info", "_final_info"}
        np.testing.assert_array_equal(info["final_info"]["episode_length"], number * done)


@pytest.mark.parametrize("seed", [-1, 1.5, "7", [0, -1], [0, 2**64], [0.5, 1]])
def test_seeds_are_integers_of_64_bits(seed):
    with closing(make_vec("CartPole-v1", 2)) as envs, pytest.raises(UserError, match="seed"):
        envs.reset(seed=seed)


def test_the_statistics_of_an_environment_come_with_the_end_of_its_episode():
    with closing(make_vec("native:Hopper-v5", 2)) as envs:
        envs.reset(seed=0)
        info = {}
        while not info:
            *_, info = envs.step(np.ones((2, 3), np.float32))
        assert set(envs.pool.specs.statistics) < info.keys()
        parts = [info[name] for name in info if name.startswith("reward_")]
        np.testing.assert_allclose(sum(parts), info["episode_return"], rtol=1e-4)


def test_a_known_environment_has_its_spec():
    with closing(make_vec("CartPole-v1", 2)) as envs:
        assert envs.spec == gymnasium.spec("CartPole-v1")
        assert str(envs) == "VectorEnv(CartPole-v1, num_envs=2)"
    with closing(make_vec("native:CartPole-v1", 2)) as envs:
        assert envs.spec is None


def test_numbers_are_of_32_bits_and_the_space_says_so():
    class Wide(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float64)
        action_space = gymnasium.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            return np.array([0.25, 0.1]), {}

    with closing(make_vec(Wide, 2)) as envs:
        assert envs.single_observation_space.dtype == np.float32
        observation, _ = envs.reset()
        assert observation.dtype == np.float32
        assert observation in envs.observation_space


def test_a_pool_of_another_form_is_refused():
    with (
        make_pool("native:CartPole-v1", 4, batch_size=2) as pool,
        pytest.raises(UserError, match="batch_size=2 of 4"),
    ):
        VectorEnv(pool)
    with pytest.raises(UserError, match=r"agents hider_0, .*ParallelPool"):
        make_vec("native:HideAndSeek-v1", 1)
    with pytest.raises(UserError, match="'Later'; expected NextStep, SameStep, Disabled"):
        make_vec("CartPole-v1", 1, autoreset_mode="Later")


def test_wrong_calls_are_told_and_the_environments_go_on():
    with closing(make_vec("native:CartPole-v1", 2, autoreset_mode=AutoresetMode.DISABLED)) as envs:
        some = np.array([True, False])
        with pytest.raises(UserError, match="first reset must be of all"):
            envs.reset(options={"reset_mask": some})
        envs.reset(seed=0)
        with pytest.raises(UserError, match="there are 3 seeds; expected 2"):
            envs.reset(seed=[1, 2, 3])
        with pytest.raises(UserError, match=r"no options \['speed'\]; there is reset_mask"):
            envs.reset(options={"speed": 2})
        with pytest.raises(UserError, match="no pictures"):
            envs.render()
        with pytest.raises(UserError, match="actions have shape"):
            envs.step(np.array([0]))
        envs.step(np.array([0, 1]))
    with pytest.raises(UserError, match="closed"):
        envs.step(np.array([0, 1]))


class Mortal(gymnasium.Env):
    """Its process dies once, in the third step."""

    observation_space = gymnasium.spaces.Box(0, 9, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, died):
        self.died = Path(died)

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.steps += 1
        if self.steps == 3 and not self.died.exists():
            self.died.touch()
            os._exit(1)
        return np.full(1, self.steps, np.float32), 1.0, False, False, {}


@pytest.mark.parametrize("mode", AutoresetMode)
def test_an_environment_that_died_is_told_in_info(tmp_path, mode):
    with closing(
        make_vec(Mortal, 1, autoreset_mode=mode, workers=1, died=str(tmp_path / "died"))
    ) as envs:
        envs.reset(seed=0)
        for _ in range(3):
            observation, reward, terminated, truncated, info = envs.step(np.array([0]))
        assert (reward[0], terminated[0], truncated[0]) == (0, False, True)
        if mode is AutoresetMode.SAME_STEP:
            assert (info["final_obs"][0], observation[0, 0]) == (2, 0)
            info = info["final_info"]
        else:
            assert observation[0, 0] == 2
        assert info.keys() == {"lost", "_lost"}
        assert (info["lost"], info["_lost"]) == (True, True)
        if mode is AutoresetMode.DISABLED:
            envs.reset(options={"reset_mask": truncated})
        for number in range(1, 5):
            observation, _, _, truncated, info = envs.step(np.array([0]))
            # Where the next step resets, the first one does.
            assert observation[0, 0] == number - (mode is AutoresetMode.NEXT_STEP)
            assert not truncated.any()
            assert info == {}
