"""What PPO makes of the rows that a pool gives around the ends of episodes."""

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium import spaces

from srl.algorithms import PPO
from srl.core.types import Unroll
from srl.networks import MLP
from srl.pools import make_pool

CONFIG = PPO(
    network=MLP(width=8, activation="tanh"),
    unroll_length=16,
    discount=0.9,
    epochs=4,
    minibatches=4,
    learning_rate=0.03,
    normalize_observations=False,
    normalize_values=False,
)


class Notebook(gymnasium.Env):
    """Episodes of 5 steps with a reward of 1 each; notes the actions that it is given.

    Where the end is a truncation, it cannot be seen coming.
    """

    observation_space = spaces.Box(0, 5, (1,))
    action_space = spaces.Discrete(4)

    def __init__(self, notes, truncates):
        self.notes, self.truncates = notes, truncates

    def observe(self):
        return np.array([0 if self.truncates else self.steps], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.observe(), {}

    def step(self, action):
        self.notes.append(int(action))
        self.steps += 1
        end = self.steps == 5
        return self.observe(), 1.0, end and not self.truncates, end and self.truncates, {}


@pytest.fixture(scope="module")
def instance():
    with make_pool(Notebook, notes=[], truncates=True) as pool:
        return CONFIG.bind(pool.specs)


@pytest.fixture(scope="module", params=[False, True], ids=["terminates", "truncates"])
def collected(request, instance):
    """An unroll of one environment, the actions that reached it, and how its episodes end."""
    state, act = instance.init(jax.random.key(0)), jax.jit(instance.act)
    notes, actions, log_probs, steps = [], [], [], instance.config.unroll_length
    with make_pool(Notebook, notes=notes, truncates=request.param) as pool:
        rows = pool.rows(steps + 1)
        pool.reset(seed=0, into=rows[0])
        for t in range(steps):
            keys = jax.random.split(jax.random.key(t), 1)
            seen = rows[t].timestep.observation
            decision = act(instance.policy(state), seen, (), keys, np.arange(1))
            pool.step(np.asarray(decision.action), rows[t + 1])
            actions.append(decision.action)
            log_probs.append(decision.log_prob)
        data = rows.timesteps[:4]
    version, slot = np.zeros((steps, 1, 2), np.int32), np.zeros(1, np.int32)
    unroll = Unroll(*data, np.stack(actions), np.stack(log_probs), (), version, slot)
    return unroll, notes, request.param


@pytest.fixture(scope="module")
def learn(instance):
    return jax.jit(instance.learn)


def test_the_loss_is_of_the_actions_that_reached_the_environment_and_no_others(instance, collected):
    unroll, notes, _ = collected
    prepare = jax.jit(lambda *given: instance.prepare(*given, total=lambda sums: sums)[2])
    samples = prepare(instance.init(jax.random.key(0)), (), unroll).samples
    assert len(notes) == 14  # of 16: two were ignored, at the reset rows
    np.testing.assert_array_equal(samples.action[samples.valid], notes)
    assert not samples.advantage[~samples.valid].any()


def test_values_tend_to_the_discounted_future_which_a_terminal_ends_and_a_time_limit_does_not(
    instance, learn, collected
):
    unroll, _, truncates = collected
    state = instance.init(jax.random.key(0))
    for _ in range(100):
        state, *_ = learn(state, unroll)
    inputs = state.params, state.observations, unroll.observation[:5], (), ()
    value, _ = instance.actor.values(*inputs)
    future = np.full(5, 10.0) if truncates else [(1 - 0.9**n) / 0.1 for n in (5, 4, 3, 2, 1)]
    np.testing.assert_allclose(value[:, 0], future, rtol=0.1)
