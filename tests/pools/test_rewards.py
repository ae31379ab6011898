"""Rewards: what is taken as one, and how exactly a long episode's are added up."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from srl import RunError, UserError, make_pool
from srl.pools.functional.environment import Step
from srl.pools.functional.pool import FunctionalPool

STEPS = 60_000


class Steady(gymnasium.Env):
    """Gives the same reward for ever."""

    observation_space = spaces.Box(-1, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)
    observation = np.zeros(1, np.float32)

    def __init__(self, reward=0.1):
        self.reward = reward

    def reset(self, *, seed=None, options=None):
        return self.observation, {}

    def step(self, action):
        return self.observation, self.reward, False, False, {}


class SteadyVector(gymnasium.vector.VectorEnv):
    """Gives each environment the same rewards for ever."""

    def __init__(self, num_envs=2, reward=0.1):
        self.num_envs = num_envs
        self.metadata = {"autoreset_mode": gymnasium.vector.AutoresetMode.NEXT_STEP}
        self.single_observation_space = Steady.observation_space
        self.single_action_space = Steady.action_space
        self.rewards = np.stack([np.asarray(reward)] * num_envs)

    def reset(self, *, seed=None, options=None):
        return np.zeros((self.num_envs, 1), np.float32), {}

    def step(self, actions):
        flags = np.zeros(self.num_envs, bool)
        return np.zeros((self.num_envs, 1), np.float32), self.rewards, flags, flags, {}


class SteadyInJax:
    """Gives the same reward for ever."""

    observation_space, action_space = Steady.observation_space, Steady.action_space

    def reset(self, key):
        return jnp.zeros(()), jnp.zeros(1)

    def step(self, state, action, key):
        return Step(state, jnp.zeros(1), jnp.full((1,), 0.1), jnp.bool_(False))


def return_of(pool, action, steps=STEPS):
    with pool:
        row = pool.rows(1)[0]
        pool.reset(0, row)
        for _ in range(steps):
            pool.step(action, row)
        return float(row.timestep.episode_return[0])


def test_a_pool_adds_up_rewards_in_float64():
    assert return_of(make_pool(Steady, 1), np.zeros(1, int)) == pytest.approx(6000, abs=1e-6)


def test_a_pool_of_a_vector_environment_adds_up_rewards_in_float64():
    total = return_of(make_pool(SteadyVector, 2), np.zeros(2, int), STEPS // 10)
    assert total == pytest.approx(600, abs=1e-6)


@pytest.mark.parametrize(("family", "steps"), [("native", STEPS), ("envpool", STEPS // 10)])
def test_a_pool_in_cpp_adds_up_rewards_in_float64(family, steps):
    if family == "envpool":
        pytest.importorskip("envpool")
    # A car that is driven against the wall pays 0.1 for each step.
    pool = make_pool(f"{family}:MountainCarContinuous-v0", 1, max_episode_steps=STEPS + 1)
    action = np.full((1, 1), -1, np.float32)
    assert return_of(pool, action, steps) == pytest.approx(-steps / 10, abs=1e-6)


def test_a_pool_in_jax_adds_up_rewards_as_exactly():
    pool = FunctionalPool(SteadyInJax(), 1, 1, "steady")
    xla = pool.xla()

    @jax.jit
    def play(state):
        def step(state, _):
            return xla.step(state, jnp.zeros(1, jnp.int32))[0], None

        return jax.lax.scan(step, xla.reset(state, 0)[0], None, STEPS)[0].episode_return

    assert float(play(pool.state)[0, 0]) == pytest.approx(6000, abs=1e-6)


@pytest.mark.parametrize("reward", [np.array([2.0]), np.array(2.0), jnp.ones(1) * 2, 2, np.int8(2)])
def test_a_single_number_is_taken_in_whatever_it_comes(reward):
    with make_pool(Steady, 1, reward=reward) as pool:
        pool.reset(0)
        assert pool.step(np.zeros(1, int)).reward == [2.0]


@pytest.mark.parametrize(
    ("reward", "told"),
    [
        (np.array([1.0, 2.0]), "2 numbers as the reward.*mo_gymnasium.wrappers:LinearReward"),
        ("1", "the reward '1'; expected a number"),
        (None, "the reward None; expected a number"),
        ({"a": 1}, "the reward {'a': 1}; expected a number"),
        (np.array([]), "0 numbers as the reward"),
    ],
)
def test_what_is_not_one_number_is_named(reward, told):
    with make_pool(Steady, 1, reward=reward) as pool:
        pool.reset(0)
        with pytest.raises(RunError, match=f"environment 0 gave {told}"):
            pool.step(np.zeros(1, int))


def test_a_vector_environment_gives_one_number_for_each():
    with make_pool(SteadyVector, 2, reward=[2.0]) as pool:
        pool.reset(0)
        np.testing.assert_array_equal(pool.step(np.zeros(2, int)).reward, [2.0, 2.0])
    with make_pool(SteadyVector, 2, reward=[1.0, 2.0, 3.0]) as pool:
        pool.reset(0)
        with pytest.raises(RunError, match=r"3 numbers as each reward.*LinearReward"):
            pool.step(np.zeros(2, int))


@pytest.mark.filterwarnings("ignore")  # its own spaces are cast
def test_rewards_of_mo_gymnasium_are_weighed_by_its_wrapper():
    pytest.importorskip("mo_gymnasium")
    name = "mo_gymnasium:mo-mountaincar-v0"
    with make_pool(name, 1) as pool:
        pool.reset(0)
        with pytest.raises(RunError, match="3 numbers as the reward"):
            pool.step(np.ones(1, int))
    wrappers = ["mo_gymnasium.wrappers:LinearReward"]
    with make_pool(name, 1, wrappers=wrappers) as pool:
        pool.reset(0)
        assert np.isfinite(pool.step(np.ones(1, int)).reward).all()


def observing(space, value):
    class Observing(Steady):
        observation_space, observation = space, value

    return Observing


@pytest.mark.parametrize(
    ("space", "told"),
    [
        (spaces.Box(0, 2**40, (1,), np.int64), "int32 does not hold"),
        (spaces.Dict(a=spaces.Box(-(2**33), 5, (1,), np.int64)), "int32 does not hold"),
        (spaces.Discrete(2**40), "int32 does not hold"),
        (spaces.MultiDiscrete([3, 2**40]), "int32 does not hold"),
        (spaces.Box(0, 2**63, (1,), np.uint64), "uint32 does not hold"),
        (spaces.Box(-1e300, 1e300, (1,), np.float64), "float32 does not hold"),
    ],
)
def test_spaces_beyond_32_bits_are_refused_when_the_pool_is_made(space, told):
    with pytest.raises(UserError, match=f"{told}.*TransformObservation"):
        make_pool(observing(space, None), 1)


def test_values_beyond_32_bits_of_spaces_without_bounds_are_named_as_such():
    info = np.iinfo(np.int64)
    integers = spaces.Box(info.min, info.max, (1,), np.int64)
    floats = spaces.Box(-np.finfo(float).max, np.inf, (1,), np.float64)
    for space, value, told in (
        (integers, np.array([2**40]), "value 1099511627776, which int32 does not hold"),
        (floats, np.array([1e40]), "float32, which pools give, holds numbers up to 3.4e38"),
    ):
        with make_pool(observing(space, value), 1) as pool:
            with pytest.raises(RunError, match=told), np.errstate(over="ignore"):
                pool.reset(0)
    with make_pool(observing(integers, np.array([7])), 1) as pool:
        assert pool.reset(0).observation == [[7]]
