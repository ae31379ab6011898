"""Pools whose environments take each action several times."""

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from pettingzoo import ParallelEnv

from srl.core.errors import UserError
from srl.pools import make_pool

KINDS = {
    "native, lanes together": ("native:CartPole-v1", {}),
    "native, one by one": ("native:Hopper-v5", {}),
    "native, two threads": ("native:CartPole-v1", {"threads": 2}),
    "Python": ("CartPole-v1", {}),
    "Python, in processes": ("CartPole-v1", {"workers": 2}),
}
NUM_ENVS = 5


def repeated(pool, actions, repeat, reset):
    """What one environment gives for an action by plain steps, and whether it is to be reset."""
    step = pool.step(actions)
    reward = step.reward.copy()
    ended = bool((step.terminated | step.truncated).all())
    for _ in range(0 if reset else repeat - 1):
        if ended:
            break
        step = pool.step(actions)
        reward += step.reward
        ended = bool((step.terminated | step.truncated).all())
    return step._replace(reward=reward), ended


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=3, deadline=None)
@given(repeat=st.integers(2, 5), seed=st.integers(0, 1000))
def test_an_action_is_repeated_until_the_episode_ends(kind, repeat, seed):
    env, options = KINDS[kind]
    alone = [make_pool(env, 1) for _ in range(NUM_ENVS)]
    with make_pool(env, NUM_ENVS, action_repeat=repeat, **options) as pool:
        pool.reset(seed=seed)
        for i, one in enumerate(alone):
            one.reset(seed=seed + i)
        resets = [False] * NUM_ENVS
        pool.specs.action.seed(seed)
        for _ in range(60):
            actions = np.stack([pool.specs.action.sample() for _ in range(NUM_ENVS)])
            step = pool.step(actions)
            for i, one in enumerate(alone):
                expected, resets[i] = repeated(one, actions[i : i + 1], repeat, resets[i])
                np.testing.assert_array_equal(step.observation[i], expected.observation[0])
                np.testing.assert_allclose(step.reward[i], expected.reward[0], rtol=1e-6)
                np.testing.assert_allclose(
                    step.episode_return[i], expected.episode_return[0], rtol=1e-5
                )
                assert step.episode_length[i] == expected.episode_length[0]
                assert step.terminated[i] == expected.terminated[0]
                assert step.truncated[i] == expected.truncated[0]
    for one in alone:
        one.close()


@pytest.mark.parametrize("env", ["native:CartPole-v1", "CartPole-v1"])
def test_actions_are_repeated_where_only_some_are_received(env):
    with make_pool(env, 4, batch_size=2, action_repeat=3) as pool:
        pool.async_reset(seed=0)
        for _ in range(100):
            step = pool.recv()
            again = step.episode_length % 3 == 0
            assert (again | step.terminated).all()  # whole repeats, but for an episode's end
            np.testing.assert_array_equal(step.episode_return, step.episode_length)
            pool.send(np.ones(2, np.int64), step.env_id)


@pytest.mark.parametrize("repeat", [0, -1, 1.5])
def test_a_repeat_that_cannot_be_is_refused(repeat):
    with pytest.raises(UserError, match="action_repeat"):
        make_pool("native:CartPole-v1", 2, action_repeat=repeat)


def test_what_repeats_actions_itself_says_how():
    with pytest.raises(UserError, match="frame_skip"):
        make_pool("envpool:Pong-v5", 2, action_repeat=4)


class Leaving(ParallelEnv):
    """Two agents count steps; the first is truncated at the second step, the other at the sixth."""

    metadata = {"name": "leaving"}  # noqa: RUF012
    possible_agents = ["early", "late"]  # noqa: RUF012

    def observation_space(self, agent):
        return spaces.Box(0, 100, (1,), np.float32)

    def action_space(self, agent):
        return spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        self.agents, self.steps = list(self.possible_agents), 0
        return self.seen(), {agent: {} for agent in self.agents}

    def seen(self):
        return {agent: np.float32([self.steps]) for agent in self.agents}

    def step(self, actions):
        self.steps += 1
        acted = self.agents
        truncated = {agent: self.steps == {"early": 2, "late": 6}[agent] for agent in acted}
        observed = self.seen()
        self.agents = [agent for agent in acted if not truncated[agent]]
        ones = dict.fromkeys(acted, 1.0)
        return observed, ones, dict.fromkeys(acted, False), truncated, {a: {} for a in acted}


def test_an_agent_that_leaves_keeps_its_true_last_observation():
    with make_pool(Leaving, 1, action_repeat=4) as pool:
        pool.reset(seed=0)
        step = pool.step(np.zeros(2, np.int32))
        assert step.truncated.tolist() == [True, False]
        assert step.terminated.tolist() == [False, False]
        assert step.observation[:, 0].tolist() == [2.0, 2.0]
        assert step.reward.tolist() == [2.0, 2.0]
        step = pool.step(np.zeros(2, np.int32))
        assert step.observation[1, 0] == 6.0
        assert step.reward[1] == 4.0
        assert step.truncated[1]
