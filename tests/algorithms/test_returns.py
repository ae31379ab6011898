"""Advantages against a plain loop over episodes, and the laws they obey."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from srl.algorithms.returns import generalized_advantages, valid_rows, vtrace

STEPS, SLOTS = 9, 3
numbers = st.floats(-10, 10, width=32)
rows = arrays.arrays(np.float32, (STEPS + 1, SLOTS), elements=numbers)
flags = arrays.arrays(np.bool_, (STEPS + 1, SLOTS))
ratios = arrays.arrays(np.float32, (STEPS, SLOTS), elements=st.floats(-2, 2, width=32))
fractions = st.floats(0, 1, width=32)

gae = jax.jit(generalized_advantages)
corrected = jax.jit(vtrace)


def loop(reward, terminated, truncated, value, discount, gae_lambda):
    """The definition: discounted sums of temporal differences within each episode."""
    steps, slots = reward.shape[0] - 1, reward.shape[1]
    advantage = np.zeros((steps, slots))
    for slot in range(slots):
        for start in range(steps):
            weight = 1.0
            for t in range(start, steps):
                if terminated[t, slot] or truncated[t, slot]:
                    break
                following = 0.0 if terminated[t + 1, slot] else value[t + 1, slot]
                delta = reward[t + 1, slot] + discount * following - value[t, slot]
                advantage[start, slot] += weight * delta
                weight *= discount * gae_lambda
    return advantage


@settings(max_examples=60)
@given(rows, flags, flags, rows, fractions, fractions)
def test_advantages_are_those_of_a_loop_over_episodes(reward, ended, cut, value, gamma, lambda_):
    expected = loop(reward, ended, cut, value, gamma, lambda_)
    actual = gae(reward, ended, cut, value, gamma, lambda_)
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-3)


@settings(max_examples=40)
@given(rows, flags, rows, st.sampled_from([1, 5]), fractions, fractions)
def test_cutting_a_trajectory_at_a_terminal_changes_nothing(reward, cut, value, at, gamma, lambda_):
    ended = np.zeros_like(cut)
    ended[at] = True
    whole = gae(reward, ended, cut, value, gamma, lambda_)
    first = gae(reward[: at + 1], ended[: at + 1], cut[: at + 1], value[: at + 1], gamma, lambda_)
    second = gae(reward[at:], ended[at:], cut[at:], value[at:], gamma, lambda_)
    np.testing.assert_array_equal(whole, np.concatenate([first, second]))


@settings(max_examples=30)
@given(flags, st.floats(0, 0.9375, width=32), fractions, st.floats(-2, 2, width=32))
def test_the_value_of_a_constant_reward_is_a_fixed_point_under_truncation(
    cut, gamma, lambda_, constant
):
    reward = np.full((STEPS + 1, SLOTS), constant, np.float32)
    value = reward / (1 - np.float32(gamma))
    advantage = gae(reward, np.zeros_like(cut), cut, value, gamma, lambda_)
    np.testing.assert_allclose(advantage, 0, atol=1e-3)


@settings(max_examples=30)
@given(rows, rows, fractions)
def test_lambda_1_is_monte_carlo_with_bootstrap(reward, value, gamma):
    no = np.zeros(reward.shape, bool)
    advantage = gae(reward, no, no, value, gamma, 1.0)
    returns = value[-1].astype(np.float64)
    for t in reversed(range(STEPS)):
        returns = reward[t + 1] + gamma * returns
        np.testing.assert_allclose(advantage[t] + value[t], returns, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("rubbish", [3e38, -3e38, np.inf, np.nan])
def test_what_a_reset_row_holds_changes_nothing(rubbish):
    random = np.random.default_rng(0)
    reward, value = random.normal(size=(2, STEPS + 1, SLOTS)).astype(np.float32)
    ended = random.random((STEPS + 1, SLOTS)) < 0.3
    no = np.zeros_like(ended)
    expected = gae(reward, ended, no, value, 0.99, 0.95)
    # A terminal observation has no value, and the reward of an ignored action does not count.
    value[ended] = rubbish
    reward[1:][ended[:-1]] = rubbish
    np.testing.assert_array_equal(gae(reward, ended, no, value, 0.99, 0.95), expected)


def test_an_end_that_is_both_terminal_and_truncated_is_terminal():
    reward, value = np.zeros((2, 1), np.float32), np.array([[0.0], [5.0]], np.float32)
    end = np.array([[False], [True]])
    assert float(gae(reward, end, end, value, 0.9, 0.9)[0, 0]) == 0.0
    truncated = gae(reward, np.zeros_like(end), end, value, 0.9, 0.9)
    np.testing.assert_allclose(truncated, [[4.5]])


def test_only_rows_that_end_an_episode_are_not_valid():
    ended, cut = np.array([[0], [1], [0], [1]], bool), np.array([[0], [0], [1], [0]], bool)
    np.testing.assert_array_equal(valid_rows(ended, cut), [[True], [False], [False]])


@settings(max_examples=30)
@given(rows, flags, flags, rows, fractions, fractions)
def test_vtrace_of_the_policy_that_acted_is_the_generalized_advantages(
    reward, ended, cut, value, gamma, lambda_
):
    data = (reward, ended, cut, value)
    advantage, correction = corrected(*data, np.zeros((STEPS, SLOTS), "f"), gamma, lambda_)
    expected = gae(*data, gamma, lambda_)
    np.testing.assert_allclose(advantage, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(correction, expected, rtol=1e-5, atol=1e-5)


@settings(max_examples=30)
@given(rows, flags, flags, rows, ratios, fractions, fractions)
def test_vtrace_is_the_sum_of_its_definition(reward, ended, cut, value, log_ratio, gamma, lambda_):
    """Equation 1: clipped ratios weigh each difference, and the products of those before it."""
    data = (reward, ended, cut, value)
    _, correction = corrected(*data, log_ratio, gamma, lambda_)
    weight, valid = np.minimum(np.exp(log_ratio), 1.0), valid_rows(ended, cut)
    for slot in range(SLOTS):
        for start in range(STEPS):
            expected, product = 0.0, 1.0
            for t in range(start, STEPS):
                if not valid[t, slot]:
                    break
                following = 0.0 if ended[t + 1, slot] else value[t + 1, slot]
                delta = reward[t + 1, slot] + gamma * following - value[t, slot]
                expected += product * weight[t, slot] * delta
                product *= gamma * lambda_ * weight[t, slot]
            np.testing.assert_allclose(correction[start, slot], expected, rtol=1e-4, atol=1e-3)
