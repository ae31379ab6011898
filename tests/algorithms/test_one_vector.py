"""Optimizers step along one vector of all parameters of a network."""

import jax
import numpy as np
import pytest
from gymnasium import spaces

from srl.algorithms import ALGORITHMS, REPPO, SAC, TD3
from srl.core.types import Specs

SPECS = Specs(spaces.Box(-1, 1, (3,)), spaces.Discrete(3), ("agent",))
CONTINUOUS = Specs(SPECS.observation, spaces.Box(-1, 1, (2,)), SPECS.agents)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_optimizer_of_each_network_has_vectors_alone(algorithm):
    specs = CONTINUOUS if algorithm in (REPPO, SAC, TD3) else SPECS
    state = jax.eval_shape(algorithm().bind(specs, 1, 4).init, jax.random.key(0))
    vectors = [leaf for leaf in jax.tree.leaves(state.optimizer) if leaf.ndim]
    assert all(leaf.ndim == 1 for leaf in vectors)
    # Two moments of each parameter that is learned.
    networks = len(state.optimizer) if isinstance(state.optimizer, dict) else 1
    assert len(vectors) <= 2 * networks
    assert max(leaf.size for leaf in vectors) > max(
        np.prod(leaf.shape) for leaf in jax.tree.leaves(state.params)
    )
