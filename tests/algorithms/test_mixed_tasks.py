"""Tasks of a mixture: masked numbers of actions, and statistics by task."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from drawn_unrolls import SLOTS, STEPS, unroll_of
from gymnasium import spaces

from srl.algorithms import PPO
from srl.algorithms.bounded_actor import UniformUntil
from srl.algorithms.distributions import Gaussian, GaussianActions
from srl.algorithms.normalization import ObservationNormalizer
from srl.algorithms.returns import valid_rows
from srl.algorithms.sac import SquashedGaussian
from srl.algorithms.td3 import NoisyAction
from srl.core.types import Specs
from srl.networks import MLP

ROWS, NUMBERS, USED = 4, 3, 2
RANDOM = np.random.default_rng(0)
MEAN, LOG_STD, ACTION = (RANDOM.uniform(-0.9, 0.9, (ROWS, NUMBERS)) for _ in range(3))
MASK = np.arange(NUMBERS)[None].repeat(ROWS, 0) < USED
KEYS = jax.random.split(jax.random.key(0), ROWS)
ACTION[:, USED:] = 0


def normal(mean, log_std, mask):
    return Gaussian(mean, log_std, 1, mask)


def uniform(mean, log_std, mask):
    then = SquashedGaussian(mean, log_std, mask)
    return UniformUntil(jnp.bool_(False), then, mean.shape[1:], mask)


@pytest.mark.parametrize("make", [normal, SquashedGaussian, uniform])
def test_numbers_that_a_task_does_not_have_are_0_and_have_no_part_in_probabilities(make):
    whole, own = make(MEAN, LOG_STD, MASK), make(MEAN[:, :USED], LOG_STD[:, :USED], None)
    np.testing.assert_allclose(whole.log_prob(ACTION), own.log_prob(ACTION[:, :USED]), rtol=1e-5)
    action, log_prob = whole.sample_and_log_prob(KEYS)
    assert (action[:, USED:] == 0).all()
    assert (action[:, :USED] != 0).all()
    np.testing.assert_allclose(log_prob, own.log_prob(action[:, :USED]), rtol=1e-4)
    if make is normal:
        np.testing.assert_allclose(whole.entropy(), own.entropy(), rtol=1e-6)
        other = {"mean": MEAN + 1, "log_std": LOG_STD / 2}
        cut = {name: x[:, :USED] for name, x in other.items()}
        np.testing.assert_allclose(whole.divergence(other), own.divergence(cut), rtol=1e-5)
    else:
        assert (whole.mode()[:, USED:] == 0).all()


def test_noise_leaves_out_the_numbers_that_a_task_does_not_have():
    noisy = NoisyAction(np.where(MASK, MEAN, 0), np.ones(ROWS), MASK)
    assert (noisy.sample(KEYS)[:, USED:] == 0).all()


def test_outputs_for_numbers_that_a_task_does_not_have_get_no_gradient():
    actions = GaussianActions(spaces.Box(-1, 1, (NUMBERS,)), 0.0)
    gradient = jax.grad(
        lambda outputs: actions(actions.init(), outputs, MASK).log_prob(ACTION).sum()
    )(jnp.asarray(MEAN, jnp.float32))
    assert (gradient[:, USED:] == 0).all()
    assert (gradient[:, :USED] != 0).all()


def specs(tasks=("near", "far")):
    observation = spaces.Dict(
        sets=spaces.Box(-np.inf, np.inf, (2, 3), np.float32),
        task=spaces.Discrete(len(tasks)),
        x=spaces.Box(-np.inf, np.inf, (3,), np.float32),
    )
    return Specs(observation, spaces.Discrete(4), ("agent",), tasks=tasks, task_of=(0, 1))


def drawn(steps, slots, seed=0):
    """Observations of two tasks in turn, of different sizes."""
    random = np.random.default_rng(seed)
    task = np.broadcast_to(np.arange(slots) % 2, (steps, slots)).astype(np.int32)
    scale = (1 + 99 * task)[..., None]
    x = (5 * scale + scale * random.normal(size=(steps, slots, 3))).astype(np.float32)
    sets = (scale[..., None] * random.normal(size=(steps, slots, 2, 3))).astype(np.float32)
    return {"sets": sets, "task": task, "x": x}


def test_each_task_has_the_statistics_that_it_would_have_alone():
    space, observation, mask = specs().observation, drawn(6, 8), np.ones((6, 8), bool)
    mask[2, 3:6] = False
    both, alone = ObservationNormalizer(space, by_task=(2,)), ObservationNormalizer(space)
    statistics = both.update(both.init(), both.measure(both.init(), observation, mask))
    seen = both.normalize(statistics, observation)
    for task in range(2):
        slots = np.arange(8) % 2 == task
        part = {name: x[:, slots] for name, x in observation.items()}
        measured = alone.measure(alone.init(), part, mask[:, slots])
        own = alone.update(alone.init(), measured)
        for name in ("sets", "x"):
            np.testing.assert_allclose(statistics[name].mean[task], own[name].mean, rtol=1e-5)
            expected = alone.normalize(own, part)[name]
            np.testing.assert_allclose(seen[name][:, slots], expected, atol=1e-4)


def test_advantages_and_values_are_standardised_by_task():
    config = PPO(network=MLP(width=8), unroll_length=STEPS, minibatches=4, epochs=2)
    instance = config.bind(specs(), 10, SLOTS)
    unroll, observation = unroll_of(1), drawn(STEPS + 1, SLOTS)
    rewards = np.where(observation["task"] == 1, np.float32(100), 1) * unroll.reward
    unroll = unroll._replace(observation=observation, reward=rewards)
    prepare = jax.jit(lambda *given: instance.prepare(*given, lambda sums: sums))
    state, _, batch = prepare(instance.init(jax.random.key(0)), (), unroll)
    assert state.values.mean.shape == (2,)
    assert state.values.variance[1] > 1000 * state.values.variance[0]
    valid = np.asarray(valid_rows(unroll.terminated, unroll.truncated))
    for task in range(2):
        rows = valid & (observation["task"][:-1] == task)
        for name in ("advantage", "target"):
            values = np.asarray(getattr(batch.samples, name))[rows]
            np.testing.assert_allclose([values.mean(), values.std()], [0, 1], atol=1e-3)


def test_each_task_has_its_own_deviations():
    space = spaces.Box(-1, 1, (NUMBERS,), np.float32)
    instance = PPO(network=MLP(width=8)).bind(replace(specs(), action=space), 10, SLOTS)
    policy = instance.policy(instance.init(jax.random.key(0)))
    deviations = jnp.stack([jnp.full(NUMBERS, -1.0), jnp.full(NUMBERS, 1.0)])
    params = {**policy.params, "actions": {"log_std": deviations}}
    observation = jax.tree.map(lambda x: x[0], drawn(1, ROWS))
    outputs = instance.action_outputs(policy._replace(params=params), observation, ())
    np.testing.assert_array_equal(outputs["log_std"], deviations[observation["task"]])
