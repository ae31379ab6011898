"""Pools of every kind write into memory of the caller's."""

import numpy as np
import pytest

import srl
from srl.core.tree import leaves_of, map_tree
from srl.pools.timestep_arrays import empty_timestep

KINDS = {
    "native": ("native:CartPole-v1", {}),
    "serial": ("CartPole-v1", {}),
    "processes": ("CartPole-v1", {"workers": 2}),
    "agents": ("native:HideAndSeek-v1", {"scenario": "quadrant"}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_pool_writes_into_a_part_of_memory_that_several_share(kind):
    name, options = KINDS[kind]
    with srl.make_pool(name, 4, **options) as pool, srl.make_pool(name, 4, **options) as plain:
        whole = empty_timestep(pool.specs, 8, (4,))
        part = map_tree(lambda x: x[:, x.shape[1] // 2 :], whole)
        rows = pool.rows_over(part)
        actions = np.zeros((4 * len(pool.specs.agents), *pool.specs.action.shape), np.int32)
        pool.reset(3, rows[0])
        expected = [map_tree(np.array, plain.reset(3))]
        for t in range(3):
            pool.step(actions, rows[t + 1])
            expected.append(map_tree(np.array, plain.step(actions)))
        mask = np.array([True, False, False, True])
        pool.reset(5, rows[3], mask)
        for t, timestep in enumerate(expected[:3]):
            for x, y in zip(leaves_of(part), leaves_of(timestep), strict=True):
                np.testing.assert_array_equal(x[t], y)
        assert part.episode_length[3].tolist()[1:3] == expected[3].episode_length.tolist()[1:3]
        assert part.episode_length[3].tolist()[::3] == [0, 0]
        assert not any(x[:, : x.shape[1] // 2].any() for x in leaves_of(whole))
