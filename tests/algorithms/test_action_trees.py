"""Trees of actions: independent distributions, whose log-probabilities and entropies add up."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from hybrid import ACTED, OBSERVED

from srl import UserError
from srl.algorithms import ALGORITHMS, APPO, IMPALA, IPPO, MAPPO, PPO
from srl.algorithms.distributions import action_distribution
from srl.core.tree import leaves_of, map_tree, names_of, rows_of
from srl.core.types import Specs
from srl.networks import MLP

KEYS = jax.random.split(jax.random.key(0), 500)
ACTIONS = action_distribution(ACTED, -0.5)


@pytest.fixture(scope="module")
def drawn():
    outputs = jax.random.normal(jax.random.key(1), (len(KEYS), ACTIONS.num_outputs))
    distribution = ACTIONS(ACTIONS.init(), outputs)
    return distribution, distribution.sample(KEYS)


def test_what_is_drawn_is_in_the_space(drawn):
    distribution, action = drawn
    for actions in (action, distribution.mode()):
        given = rows_of(ACTIONS.to_env(map_tree(np.asarray, actions)))
        for one in given:
            # As a pool writes them into arrays of the spaces' types.
            assert ACTED.contains({**one, "lights": one["lights"].astype(np.int8)})
    assert {row["move"] for row in rows_of(ACTIONS.to_env(map_tree(np.asarray, action)))} == {
        1,
        2,
        3,
    }


def test_log_probabilities_and_entropies_are_sums_over_the_parts(drawn):
    distribution, action = drawn
    parts, actions = leaves_of(distribution.parts), leaves_of(action)
    log_prob = sum(part.log_prob(x) for part, x in zip(parts, actions, strict=True))
    np.testing.assert_allclose(distribution.log_prob(action), log_prob, rtol=1e-5)
    np.testing.assert_allclose(
        distribution.entropy(), sum(part.entropy() for part in parts), rtol=1e-5
    )
    assert distribution.log_prob(action).shape == (len(KEYS),)
    # By hand, of what was drawn: normal numbers and choices.
    push = distribution.parts["push"]
    z = (np.asarray(action["push"]) - push.mean) / np.exp(-0.5)
    of_push = (-0.5 * z**2 + 0.5 - 0.5 * np.log(2 * np.pi)).sum(-1)
    chosen = np.asarray(distribution.parts["move"].log_probs[0])[np.arange(500), action["move"]]
    rest = sum(distribution.parts[n].log_prob(action[n]) for n in ("lights",))
    rest += sum(
        p.log_prob(x) for p, x in zip(distribution.parts["more"], action["more"], strict=True)
    )
    np.testing.assert_allclose(log_prob, of_push + chosen + rest, rtol=1e-4)


def test_parts_and_slots_are_drawn_independently(drawn):
    _, action = drawn
    lights, pair = np.asarray(action["lights"]), np.asarray(action["more"][0])
    assert lights.shape == (500, 2, 2)
    assert pair.shape == (500, 1, 2)
    even = action_distribution(spaces.Tuple((spaces.Discrete(2), spaces.Discrete(2))))
    one, other = even(even.init(), jnp.zeros((500, 4))).sample(KEYS)
    assert abs(np.mean(np.asarray(one) == np.asarray(other)) - 0.5) < 0.1
    few = even(even.init(), jnp.zeros((7, 4))).sample(KEYS[:7])
    np.testing.assert_array_equal(few[0], one[:7])


def test_outputs_are_named_by_the_parts(drawn):
    names = set(drawn[0].parameters())
    assert names == {
        *("lights/logits", "more/0/logits", "more/1/mean", "more/1/log_std"),
        *("move/logits", "push/mean", "push/log_std"),
    }
    assert {name.rpartition("/")[0] for name in names} == set(leaves_of(names_of(drawn[1])))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_algorithms_that_cannot_name_those_that_can(algorithm):
    specs = Specs(OBSERVED, ACTED, ("agent",))
    if algorithm in (PPO, APPO, IMPALA, IPPO, MAPPO):
        instance = algorithm(network=MLP(width=4)).bind(specs, 1)
        assert instance.actor.actions.num_outputs == 3 + 2 + 8 + 5 + 1
        return
    with pytest.raises(UserError, match=r"take PPO, APPO or IMPALA|PPO, APPO or IMPALA for others"):
        algorithm().bind(specs, 1)


def test_masks_are_refused_of_trees():
    with pytest.raises(UserError, match="action_mask needs"):
        ACTIONS(ACTIONS.init(), jnp.zeros((1, ACTIONS.num_outputs)), jnp.ones((1, 3)))
