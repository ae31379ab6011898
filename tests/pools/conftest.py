"""Pools for tests, closed at their end."""

import pytest
from peculiar_envs import Peculiar

from srl import make_pool


@pytest.fixture
def pools():
    """Makes pools of Peculiar environments, and closes them."""
    made = []

    def make(num_envs=4, env=Peculiar, **options):
        made.append(make_pool(env, num_envs, **{"workers": 2, **options}))
        return made[-1]

    yield make
    for pool in made:
        pool.close()
