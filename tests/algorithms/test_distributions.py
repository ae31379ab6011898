"""Distributions over actions: samples agree with probabilities, masks hold, bounds are met."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from srl.algorithms.distributions import action_distribution, action_mask
from srl.core.errors import UserError

KEYS = jax.random.split(jax.random.key(0), 20_000)


def many(outputs):
    return jnp.broadcast_to(jnp.asarray(outputs, jnp.float32), (len(KEYS), len(outputs)))


def test_discrete_actions_are_drawn_as_often_as_they_are_probable():
    actions = action_distribution(spaces.Discrete(3, start=5))
    distribution = actions((), many([0.0, 1.0, -1.0]))
    action = distribution.sample(KEYS)
    frequency = np.bincount(action, minlength=3) / len(KEYS)
    expected = np.exp([0.0, 1.0, -1.0]) / np.exp([0.0, 1.0, -1.0]).sum()
    np.testing.assert_allclose(frequency, expected, atol=0.02)
    np.testing.assert_allclose(jnp.exp(distribution.log_prob(action)), expected[action], rtol=1e-5)
    np.testing.assert_allclose(
        distribution.entropy()[0], -(expected * np.log(expected)).sum(), rtol=1e-5
    )
    assert set(np.unique(actions.to_env(np.asarray(action)))) == {5, 6, 7}


def test_each_slot_draws_with_its_own_key_alone():
    distribution = action_distribution(spaces.MultiDiscrete([3, 2]))((), many(np.zeros(5)))
    all_slots = distribution.sample(KEYS)
    few = action_distribution(spaces.MultiDiscrete([3, 2]))((), many(np.zeros(5))[:7])
    np.testing.assert_array_equal(few.sample(KEYS[:7]), all_slots[:7])


def test_multi_discrete_log_probabilities_are_sums_over_the_components():
    space = spaces.MultiDiscrete([3, 2], start=[1, -1])
    actions = action_distribution(space)
    logits = np.array([0.1, 0.7, -0.3, 0.4, -0.4], np.float32)
    distribution = actions((), jnp.asarray(logits)[None])
    first, second = jax.nn.log_softmax(logits[:3]), jax.nn.log_softmax(logits[3:])
    for i in range(3):
        for j in range(2):
            action = jnp.array([[i, j]])
            np.testing.assert_allclose(distribution.log_prob(action), first[i] + second[j], 1e-5)
            assert space.contains(np.asarray(actions.to_env(np.array([i, j]))))
    np.testing.assert_array_equal(distribution.mode(), [[1, 0]])


@pytest.mark.parametrize("as_tuple", [False, True])
def test_forbidden_actions_have_probability_exactly_zero(as_tuple):
    actions = action_distribution(spaces.MultiDiscrete([3, 2]))
    mask = np.array([1, 0, 1, 0, 1], np.int8)
    tiled = np.broadcast_to(mask, (len(KEYS), 5))
    given = (tiled[:, :3], tiled[:, 3:]) if as_tuple else tiled
    distribution = actions((), many([0.0, 50.0, 0.0, 50.0, 0.0]), given)
    action = np.asarray(distribution.sample(KEYS))
    assert set(action[:, 0]) == {0, 2}
    assert set(action[:, 1]) == {1}
    assert float(jnp.exp(distribution.log_prob(jnp.array([1, 1])))[0]) == 0.0
    np.testing.assert_allclose(distribution.entropy(), np.log(2), rtol=1e-6)
    assert distribution.mode()[0, 1] == 1


def test_masks_give_no_gradient_to_what_is_forbidden_and_none_is_nan():
    actions = action_distribution(spaces.Discrete(3))

    def score(logits, mask):
        distribution = actions((), logits, mask)
        return jnp.sum(distribution.entropy() + distribution.log_prob(jnp.array([0])))

    some = jax.grad(score)(jnp.zeros((1, 3)), jnp.array([[True, False, True]]))
    assert some[0, 1] == 0
    assert np.isfinite(some).all()
    none = jax.grad(score)(jnp.zeros((1, 3)), jnp.zeros((1, 3), bool))
    assert np.isfinite(none).all()


def test_gaussian_densities_are_those_of_the_numbers_drawn():
    actions = action_distribution(spaces.Box(-2, 6, (2,)))
    params = {"log_std": jnp.log(jnp.array([0.5, 2.0]))}
    distribution = actions(params, many([1.0, -1.0]))
    action = distribution.sample(KEYS)
    np.testing.assert_allclose(action.mean(0), [1.0, -1.0], atol=0.05)
    np.testing.assert_allclose(action.std(0), [0.5, 2.0], rtol=0.03)
    z = (np.asarray(action) - [1.0, -1.0]) / [0.5, 2.0]
    expected = (-0.5 * z**2 - np.log([0.5, 2.0]) - 0.5 * np.log(2 * np.pi)).sum(-1)
    np.testing.assert_allclose(distribution.log_prob(action), expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(-np.mean(expected), distribution.entropy()[0], rtol=0.02)


def test_normal_distributions_start_from_the_given_deviation():
    actions = action_distribution(spaces.Box(-2, 6, (2, 3)), initial_log_std=-0.5)
    distribution = actions(actions.init(), jnp.zeros((len(KEYS), 6)))
    std = np.asarray(distribution.sample(KEYS)).std(0)
    np.testing.assert_allclose(std, np.full((2, 3), np.exp(-0.5)), rtol=0.03)


def test_bounded_actions_reach_their_bounds_and_never_pass_them():
    low, high = np.array([[-2.0, 0.0, -np.inf], [6.0, 1.0, np.inf]], np.float32)
    space = spaces.Box(low, high)
    actions = action_distribution(space)
    drawn = np.array([[0.0, 0.0, 7.0], [-9.0, 9.0, -7.0], [1.0, -1.0, 0.0]], np.float32)
    expected = [[2.0, 0.5, 7.0], [-2.0, 1.0, -7.0], [6.0, 0.0, 0.0]]
    np.testing.assert_allclose(actions.to_env(drawn), expected)
    np.testing.assert_allclose(actions.to_env(jnp.asarray(drawn)), expected)
    assert isinstance(actions.to_env(drawn), np.ndarray)


def test_a_half_bounded_action_is_clipped_at_its_bound():
    actions = action_distribution(spaces.Box(0.0, np.inf, (1,)))
    np.testing.assert_allclose(actions.to_env(np.array([[-3.0], [3.0]], "f")), [[0.0], [3.0]])


def test_other_spaces_are_refused_with_what_is_supported():
    with pytest.raises(UserError, match="supported: Discrete, MultiDiscrete"):
        action_distribution(spaces.Text(3))


def test_the_mask_is_found_in_the_observation():
    assert action_mask({"action_mask": 1, "x": 2}) == 1
    assert action_mask({"x": 2}) is None
    assert action_mask(np.zeros(3)) is None
