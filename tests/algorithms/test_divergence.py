"""Divergences from a teacher's distributions, against their definitions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from srl.algorithms.distributions import action_distribution

SPACES = {
    "choice": spaces.Discrete(4),
    "choices": spaces.MultiDiscrete([3, 2]),
    "numbers": spaces.Box(-1, 1, (3,), np.float32),
    "parts": spaces.Dict({"a": spaces.Discrete(3), "b": spaces.Box(-1, 1, (2,), np.float32)}),
}


@pytest.mark.parametrize("name", SPACES)
def test_it_is_the_mean_log_ratio_of_the_teachers_actions(name):
    actions = action_distribution(SPACES[name], initial_log_std=-0.5)
    params, rows = actions.init(), 20_000
    mine, theirs = np.random.default_rng(0).normal(size=(2, actions.num_outputs))
    teacher = actions(jax.tree.map(lambda x: x + 0.3, params), jnp.tile(theirs, (rows, 1)))
    policy = actions(params, jnp.tile(mine, (rows, 1)))
    drawn = teacher.sample(jax.random.split(jax.random.key(0), rows))
    ratios = teacher.log_prob(drawn) - policy.log_prob(drawn)
    found = policy.divergence(teacher.parameters())
    error = float(jnp.std(ratios)) / rows**0.5
    assert abs(float(found[0]) - float(jnp.mean(ratios))) < 4 * error
    np.testing.assert_allclose(teacher.divergence(teacher.parameters()), 0, atol=1e-5)


def test_a_choice_that_is_forbidden_to_the_policy_does_not_count():
    actions = action_distribution(SPACES["choice"])
    outputs = jnp.array([[0.5, -0.2, 0.1, 2.0]])
    policy = actions((), outputs, jnp.array([[True, True, False, True]]))
    gradient = jax.grad(lambda x: jnp.sum(actions((), x).divergence(policy.parameters())))(outputs)
    assert jnp.isfinite(gradient).all()
    found = policy.divergence(actions((), outputs).parameters())
    assert jnp.isfinite(found).all()
