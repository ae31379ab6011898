"""Calls that no pool takes: each is refused in a sentence, and nothing is lost by it."""

import importlib.util
from contextlib import closing

import numpy as np
import pytest

from srl import UserError, make_pool

KINDS = {
    "native": ("native:CartPole-v1", {}),
    "serial": ("CartPole-v1", {"workers": 0}),
    "processes": ("CartPole-v1", {"workers": 2}),
}
if importlib.util.find_spec("envpool"):
    KINDS["envpool"] = ("envpool:CartPole-v1", {})


def made(kind, num_envs=4, batch_size=None):
    env, options = KINDS[kind]
    return make_pool(env, num_envs, batch_size=batch_size, **options)


@pytest.fixture(scope="module", params=list(KINDS))
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def pool(kind):
    with closing(made(kind)) as pool:
        yield pool


@pytest.mark.parametrize("seed", [-1, 2**64, 1.0, "7", True, np.float32(1), [1, 2, 3, 4]])
def test_a_seed_is_none_or_an_integer_of_64_bits(pool, seed):
    with pytest.raises(UserError, match="seed"):
        pool.reset(seed)


@pytest.mark.parametrize("seed", [0, np.uint8(3), np.int64(3), 2**63, 2**64 - 1])
def test_any_integer_of_64_bits_is_a_seed(pool, seed):
    first = np.copy(pool.reset(seed).observation)
    np.testing.assert_array_equal(pool.reset(int(seed)).observation, first)
