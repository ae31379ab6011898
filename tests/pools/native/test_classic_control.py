"""The native classic-control environments against Gymnasium's own."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.classic_control import AcrobotEnv, CartPoleEnv, MountainCarEnv, PendulumEnv
from gymnasium.envs.classic_control import Continuous_MountainCarEnv as MountainCarContinuousEnv

from srl import UserError, make_pool

ENVIRONMENTS = {
    "CartPole-v1": (CartPoleEnv, [3.0, 3.0, 0.25, 3.0]),
    "Acrobot-v1": (AcrobotEnv, [3.1, 3.1, 12.0, 28.0]),
    "Pendulum-v1": (PendulumEnv, [20.0, 8.0]),
    "MountainCar-v0": (MountainCarEnv, [0.6, 0.07]),
    "MountainCarContinuous-v0": (MountainCarContinuousEnv, [0.6, 0.07]),
}
LANES = 7  # four by a vector instruction, and some that are left over


def _actions(space, rng, count):
    if isinstance(space, spaces.Discrete):
        return rng.integers(0, space.n, count).astype(np.int32)
    wide = rng.uniform(1.5 * space.low, 1.5 * space.high, (count, *space.shape))
    return wide.astype(np.float32)  # also out of bounds, which Gymnasium's clip


def _states(name, limits, rng):
    states = rng.uniform(-1, 1, (LANES, len(limits))) * limits
    if name.startswith("MountainCar"):
        states[:, 0] -= 0.3
    if name == "MountainCarContinuous-v0":
        states = states.astype(np.float32)  # as Gymnasium keeps them after the first step
    return states


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_a_step_from_any_state_agrees_with_gymnasiums(name):
    make, limits = ENVIRONMENTS[name]
    reference, rng = make(), np.random.default_rng(0)
    with make_pool(f"native:{name}", LANES) as pool:
        for _ in range(300):
            pool.reset(seed=0)
            states, actions = _states(name, limits, rng), _actions(pool.specs.action, rng, LANES)
            for i, state in enumerate(states):
                extra = len(pool.inspect(i)["state"]) - len(state)
                pool.inject(i, "state", [*state, *[0.0] * extra])
            timestep = pool.step(actions)
            for i, state in enumerate(states):
                reference.reset()
                reference.state = np.array(state)
                action = actions[i] if actions.ndim > 1 else int(actions[i])
                observation, reward, terminated, _, _ = reference.step(action)
                after = pool.inspect(i)["state"][: len(state)]
                np.testing.assert_allclose(after, reference.state, rtol=1e-12, atol=1e-12)
                np.testing.assert_allclose(timestep.observation[i], observation, rtol=3e-7)
                assert timestep.reward[i] == pytest.approx(np.float32(reward), rel=2e-7)
                assert timestep.terminated[i] == terminated


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_whole_episodes_agree_with_gymnasiums(name):
    make, limits = ENVIRONMENTS[name]
    reference, rng = make(), np.random.default_rng(1)
    with make_pool(f"native:{name}", 1) as pool:
        timestep = pool.reset(seed=3)
        reference.reset()
        start = pool.inspect(0)["state"][: len(limits)]
        reference.state = start.astype(np.float32) if name == "Acrobot-v1" else start
        while not (timestep.terminated[0] or timestep.truncated[0]):
            actions = _actions(pool.specs.action, rng, 1)
            timestep = pool.step(actions)
            action = actions[0] if actions.ndim > 1 else int(actions[0])
            observation, reward, terminated, _, _ = reference.step(action)
            np.testing.assert_allclose(timestep.observation[0], observation, rtol=1e-5, atol=1e-6)
            assert timestep.reward[0] == pytest.approx(np.float32(reward), rel=1e-5)
            assert timestep.terminated[0] == terminated


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_spaces_and_limits_are_gymnasiums(name):
    reference = gymnasium.make(name)
    with make_pool(f"native:{name}") as pool:
        assert pool.specs.observation == reference.observation_space
        assert reference.spec is not None
        assert pool.specs.max_episode_steps == reference.spec.max_episode_steps
        space, theirs = pool.specs.action, reference.action_space
        if isinstance(theirs, spaces.Discrete):
            assert isinstance(space, spaces.Discrete)
            assert space.n == theirs.n
        else:
            assert space == theirs


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_starts_are_distributed_as_gymnasiums(name):
    make, _ = ENVIRONMENTS[name]
    reference = make()
    with make_pool(f"native:{name}", 3000) as pool:
        ours = pool.reset(seed=1).observation
    theirs = np.stack([reference.reset(seed=i)[0] for i in range(3000)])
    quantiles = np.linspace(0, 1, 11)
    spread = np.maximum(np.ptp(theirs, axis=0), 1e-6)
    error = np.quantile(ours, quantiles, axis=0) - np.quantile(theirs, quantiles, axis=0)
    assert np.max(np.abs(error) / spread) < 0.05


def test_how_many_step_together_does_not_matter():
    rng = np.random.default_rng(0)
    for name in ENVIRONMENTS:
        with make_pool(f"native:{name}", 13) as pool, make_pool(f"native:{name}", 5) as few:
            first, second = pool.reset(seed=4), few.reset(seed=4)
            for _ in range(250):
                np.testing.assert_array_equal(first.observation[:5], second.observation)
                actions = _actions(pool.specs.action, rng, 13)
                first, second = pool.step(actions), few.step(actions[:5])


@pytest.mark.parametrize(
    ("name", "kept", "hidden_numbers", "action"),
    [
        ("native:CartPole-v1", [0, 2], [1, 3], np.ones(3, np.int32)),
        ("native:Pendulum-v1", [0, 1], [2], np.ones((3, 1), np.float32)),
    ],
)
def test_hidden_velocities_are_observed_as_zeros_and_change_nothing_else(
    name, kept, hidden_numbers, action
):
    with make_pool(name, 3) as seen, make_pool(name, 3, hide_velocities=True) as hidden:
        first, second = seen.reset(seed=1), hidden.reset(seed=1)
        for _ in range(60):
            assert not second.observation[:, hidden_numbers].any()
            assert first.observation[:, hidden_numbers].any()
            np.testing.assert_array_equal(second.observation[:, kept], first.observation[:, kept])
            np.testing.assert_array_equal(second.reward, first.reward)
            first, second = seen.step(action), hidden.step(action)


def test_options_are_those_of_gymnasium():
    with make_pool("native:CartPole-v1", sutton_barto_reward=True) as pool:
        pool.reset(seed=0)
        rewards = [pool.step(np.zeros(1, np.int32)) for _ in range(12)]
        ends = [float(step.reward[0]) for step in rewards if step.terminated[0]]
        assert ends == [-1.0]
    with make_pool("native:Pendulum-v1", g=0.0) as pool:
        pool.reset(seed=0)
        pool.inject(0, "state", [1.0, 0.0])
        pool.step(np.zeros((1, 1), np.float32))
        np.testing.assert_array_equal(pool.inspect(0)["state"], [1.0, 0.0])
    with make_pool("native:MountainCar-v0", max_episode_steps=3) as pool:
        assert pool.specs.max_episode_steps == 3
        pool.reset(seed=0)
        ends = [bool(pool.step(np.ones(1, np.int32)).truncated[0]) for _ in range(4)]
        assert ends == [False, False, True, False]
    with pytest.raises(UserError, match="unknown option 'gravity'"):
        make_pool("native:Acrobot-v1", gravity=3.0)


def test_an_injected_state_must_fit():
    with make_pool("native:Pendulum-v1") as pool, pytest.raises(UserError, match="2 numbers"):
        pool.inject(0, "state", [1.0])
