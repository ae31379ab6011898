"""Pools of Gymnasium environments."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from srl import RunError, UserError, make_pool
from srl.core.errors import explained

TWO = spaces.Discrete(2)


class Counting(gymnasium.Env):
    """Three steps an episode; observes how many are done, in a nested space."""

    observation_space = spaces.Dict(
        {
            "steps": spaces.Box(0, 10, (1,), np.float64),
            "inner": spaces.Tuple((spaces.Discrete(4), spaces.MultiBinary(2))),
        }
    )
    action_space = spaces.Discrete(2, start=1)

    def __init__(self, *, truncates: bool = False, misshapen: bool = False) -> None:
        self.truncates, self.misshapen, self.steps = truncates, misshapen, 0

    def observe(self):
        value = np.array([self.steps] * (2 if self.misshapen and self.steps == 1 else 1))
        return {"steps": value, "inner": (self.steps, np.array([1, self.steps % 2], np.int8))}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.observe(), {}

    def step(self, action):
        self.steps += 1
        end = self.steps == 3
        return self.observe(), float(action), end and not self.truncates, end and self.truncates, {}


def test_an_observation_of_nested_spaces_arrives_whole():
    with make_pool(Counting, num_envs=2) as pool:
        timestep = pool.reset(seed=0)
        timestep = pool.step(np.array([1, 2]))
    assert timestep.observation["steps"].dtype == np.float32
    np.testing.assert_array_equal(timestep.observation["steps"], [[1], [1]])
    number, bits = timestep.observation["inner"]
    np.testing.assert_array_equal(number, [1, 1])
    np.testing.assert_array_equal(bits, [[1, 1], [1, 1]])
    np.testing.assert_array_equal(timestep.reward, [1, 2])


@pytest.mark.parametrize("truncates", [False, True])
def test_the_last_observation_is_the_episodes_own_and_the_next_step_resets(truncates):
    with make_pool(Counting, num_envs=1, truncates=truncates) as pool:
        seen = [pool.reset(seed=0)]
        seen += [pool.step(np.array([2])) for _ in range(8)]
    steps = [int(t.observation["steps"][0, 0]) for t in seen]
    assert steps == [0, 1, 2, 3, 0, 1, 2, 3, 0]
    assert [bool(t.terminated[0] | t.truncated[0]) for t in seen] == [s == 3 for s in steps]
    assert [bool(t.truncated[0]) for t in seen] == [truncates and s == 3 for s in steps]
    assert [float(t.reward[0]) for t in seen] == [0, 2, 2, 2, 0, 2, 2, 2, 0]
    ended = [t for t, s in zip(seen, steps, strict=True) if s == 3]
    assert [int(t.episode_length[0]) for t in ended] == [3, 3]
    assert [float(t.episode_return[0]) for t in ended] == [6, 6]


def test_asynchronous_use_gives_the_first_that_were_sent():
    with make_pool(Counting, num_envs=4, batch_size=2, workers=0) as pool:
        pool.async_reset(seed=0)
        first = pool.recv()
        np.testing.assert_array_equal(first.env_id, [0, 1])
        pool.send(np.array([1, 1]), first.env_id)
        np.testing.assert_array_equal(pool.recv().env_id, [2, 3])
        again = pool.recv()
        np.testing.assert_array_equal(again.env_id, [0, 1])
        np.testing.assert_array_equal(again.observation["steps"], [[1], [1]])
        with pytest.raises(UserError, match="send actions first"):
            pool.recv()


def test_an_observation_of_another_shape_is_named():
    with make_pool(Counting, num_envs=2, misshapen=True) as pool:
        pool.reset(seed=0)
        told = r"environment 0 gave observation\['steps'\] of shape \(2,\).*shape \(1,\)"
        with pytest.raises(RunError, match=told):
            pool.step(np.array([1, 1]))


def giving(at_reset, at_step=None, space=TWO):
    """An environment that gives these, whatever its space is."""

    class Giving(gymnasium.Env):
        observation_space, action_space = space, TWO

        def reset(self, *, seed=None, options=None):
            return at_reset

        def step(self, action):
            return at_step

    return Giving


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            None,
            r"gave NoneType at step; expected \(observation, reward, terminated, truncated, info",
        ),
        ((0, 1.0, False, {}), "gave 4 values at step; expected"),
        ((0, 1.0, "no", False, {}), "gave 'no' as terminated or truncated; expected a bool"),
        ((0, 1.0, False, np.nan, {}), "gave nan as terminated or truncated"),
        ((0, 1.0, [True, False], False, {}), r"gave \[True, False\] as terminated or truncated"),
    ],
)
def test_a_step_that_gives_something_else_is_told(given, told):
    with make_pool(giving((0, {}), given), 1) as pool:
        pool.reset(seed=0)
        with pytest.raises(RunError, match=f"environment 0 {told}"):
            pool.step(np.array([0]))


def test_a_reset_that_gives_an_observation_alone_is_told():
    with (
        make_pool(giving([0.5, -0.5], space=spaces.Box(-1, 1, (2,))), 1) as pool,
        pytest.raises(RunError, match=r"gave list at reset; expected \(observation, info\)"),
    ):
        pool.reset(seed=0)


@pytest.mark.parametrize(
    ("space", "observation", "told"),
    [
        (spaces.Discrete(4), 7, r"value 7, but its observation space has Discrete\(4\)"),
        (spaces.Discrete(4, start=1), 0, "value 0, but"),
        (spaces.MultiDiscrete([2, 5]), np.array([1, 5]), "value 5, but"),
        (spaces.MultiBinary(2), np.array([0, 2]), "value 2, but"),
        (spaces.Box(0, 255, (2,), np.uint8), np.array([0, 300]), "value 300, but"),
        (spaces.Box(-9, 9, (1,), np.int64), np.array([2**32]), "value 4294967296, but"),
        (spaces.Box(0, 1, (2,)), [0, [1, 2]], r"shape \(\), but its observation space has shape"),
        (spaces.Box(0, 1, ()), None, "dtype object, but its observation space has dtype float32"),
        (spaces.Discrete(4), "3", "dtype <U1, but its observation space has dtype int"),
    ],
)
def test_an_observation_that_is_not_in_its_space_is_told(space, observation, told):
    with (
        make_pool(giving((observation, {}), space=space)) as pool,
        pytest.raises(RunError, match=f"gave observation of {told}"),
    ):
        pool.reset()


@pytest.mark.parametrize("workers", [0, 1])
def test_an_option_that_an_environment_does_not_have_is_told_with_the_nearest(workers):
    with pytest.raises(UserError) as caught:
        make_pool("CartPole-v1", 1, workers=workers, suton_barto_reward=True)
    told = "has no option 'suton_barto_reward'; did you mean sutton_barto_reward?"
    assert str(caught.value) == f"CartPole-v1 {told}"


@pytest.mark.parametrize("workers", [0, 1])
def test_an_environment_that_cannot_be_made_is_named(workers):
    def broken():
        raise ValueError("no licence")

    with pytest.raises(RunError, match="making environment 0 raised ValueError: no licence"):
        make_pool(broken, workers=workers)
    for env, told in (
        ("NoSuchEnv-v0", "NoSuchEnv"),
        ("Pendulum-v0", "use `Pendulum-v1` instead"),
        ("no_such_module:Env-v0", "no_such_module"),
        ("no_such_module.Env", "no_such_module"),
        (dict, r"expected a gymnasium\.Env"),
    ):
        with pytest.raises(UserError, match=told):
            make_pool(env, workers=workers)


@pytest.mark.parametrize("actions", [np.array([1, 3]), np.array([0, 1]), np.array([1.0, 2.0])])
def test_actions_outside_the_space_are_refused(actions):
    with make_pool(Counting, num_envs=2) as pool:
        pool.reset(seed=0)
        with pytest.raises(UserError):
            pool.step(actions)


class Spaceless(gymnasium.Env):
    action_space = spaces.Discrete(2)


class Empty(Counting):
    observation_space = spaces.Box(0, 1, (0,))


class ActsByNothing(Counting):
    action_space = spaces.Box(-1, 1, (0,))


@pytest.mark.parametrize(
    ("env", "told"),
    [
        (Spaceless, "Spaceless has no observation_space; set self.observation_space to a"),
        (Empty, "holds no number; give it at least one"),
        (ActsByNothing, "holds no number; give it at least one"),
    ],
)
def test_an_environment_without_a_space_or_with_an_empty_one_is_refused(env, told):
    with pytest.raises(UserError, match=told):
        make_pool(env, 1).close()


class Speechless(Exception):
    def __str__(self):
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (Speechless(), "its text is unknown: its __str__ raised RuntimeError"),
        (ValueError("x" * 3_000_000), "(2,998,000 more characters)"),
    ],
)
def test_whatever_text_an_exception_has_it_is_reported_and_not_at_length(error, told):
    def fail():
        raise error

    with pytest.raises(RunError) as raised:
        make_pool(fail, 1).close()
    assert told in str(raised.value)
    assert len(explained(raised.value)) < 10_000
