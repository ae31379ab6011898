"""One space for agents whose own differ in size."""

import numpy as np
import pytest
from gymnasium import spaces

from srl import UserError
from srl.core.tree import leaves_of
from srl.pools.python.padding import common_space, crop
from srl.pools.timestep_arrays import empty_observation

BOX = spaces.Box(-1, 1, (2, 3))
ALIKE = {
    "boxes": [BOX, spaces.Box(2, 5, (4, 1)), spaces.Box(-7, 0, (1, 1))],
    "images": [spaces.Box(0, 255, (8, 8, 3), np.uint8), spaces.Box(0, 255, (4, 9, 1), np.uint8)],
    "counts": [spaces.Discrete(3, start=1), spaces.Discrete(7, start=1)],
    "bits": [spaces.MultiBinary(3), spaces.MultiBinary(5)],
    "grids": [spaces.MultiBinary((3, 2)), spaces.MultiBinary((1, 4))],
    "nested": [
        spaces.Dict({"a": BOX, "b": spaces.Tuple((spaces.Discrete(2), spaces.MultiBinary(1)))}),
        spaces.Dict(
            {
                "a": spaces.Box(0, 9, (3, 3)),
                "b": spaces.Tuple((spaces.Discrete(5), spaces.MultiBinary(4))),
            }
        ),
    ],
}


def by_agent(group):
    return {f"agent_{i}": space for i, space in enumerate(group)}


@pytest.mark.parametrize("group", ALIKE.values(), ids=ALIKE)
def test_what_is_in_an_agents_own_space_is_in_the_common_one_with_zeros_around(group):
    common = common_space(by_agent(group), "observation", "Game")
    for space in group:
        space.seed(0)
        rows = empty_observation(common, (3,))
        value = space.sample()
        own = crop(space, rows, slice(1, 2))
        for memory, part in zip(leaves_of(own), leaves_of(value), strict=True):
            memory[0] = part
        for memory, part in zip(leaves_of(rows), leaves_of(value), strict=True):
            assert np.count_nonzero(memory[1]) == np.count_nonzero(part)
            assert not memory[[0, 2]].any()
        assert row(rows, 1) in common
        assert row(own, 0) in space


def row(tree, i):
    if isinstance(tree, dict):
        return {name: row(part, i) for name, part in tree.items()}
    return tuple(row(part, i) for part in tree) if isinstance(tree, tuple) else tree[i]


def test_equal_spaces_stay_as_they_are():
    assert common_space(by_agent([BOX, BOX]), "action", "Game") is BOX


@pytest.mark.parametrize(
    "other",
    [
        spaces.Discrete(2),
        spaces.Box(-1, 1, (2,)),
        spaces.Box(-1, 1, (2, 3), np.float64),
        spaces.Dict({"a": BOX}),
    ],
)
def test_spaces_that_differ_in_more_than_size_are_refused_by_agent(other):
    group = {"cat": BOX, "cow": BOX, "dog": other}
    with pytest.raises(UserError, match=r"Game: cat has action space Box.*, but dog .*wrap"):
        common_space(group, "action", "Game")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (spaces.Discrete(3), spaces.Discrete(3, start=1)),
        (spaces.MultiDiscrete([2, 3]), spaces.MultiDiscrete([2, 2])),
        (spaces.Dict({"a": BOX}), spaces.Dict({"b": BOX})),
        (spaces.Tuple((BOX,)), spaces.Tuple((BOX, BOX))),
    ],
)
def test_spaces_whose_numbers_would_mean_other_things_are_refused(one, other):
    with pytest.raises(UserError, match="agent_0 has action space"):
        common_space(by_agent([one, other]), "action", "Game")
