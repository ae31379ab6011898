"""Gymnasium's spaces as trees, and what the spaces at their leaves have in common.

Only this module takes a Dict or Tuple apart: elsewhere `space_tree` gives a tree whose leaves are
the spaces of single arrays, for `map_tree` and the other functions of `srl.tree`.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from srl.types import Tree


def space_tree(space: gymnasium.Space) -> Tree:
    """The space as a tree: a dict of a Dict, a tuple of a Tuple, and any other space itself."""
    if isinstance(space, spaces.Dict):
        return {name: space_tree(part) for name, part in space.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(space_tree(part) for part in space)
    return space


def joined_space(tree: Tree) -> gymnasium.Space:
    """The space of a `space_tree`; a Dict keeps the order of the tree's names."""
    if isinstance(tree, dict):
        return spaces.Dict([(name, joined_space(part)) for name, part in tree.items()])
    if isinstance(tree, tuple):
        return spaces.Tuple([joined_space(part) for part in tree])
    return tree


def limits(space: gymnasium.Space) -> tuple[Any, Any]:
    """The least and the greatest value of a space of numbers, one each or one for each number."""
    if isinstance(space, spaces.Box):
        return space.low, space.high
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        return space.start, space.start + (choice_counts(space) - 1)
    assert isinstance(space, spaces.MultiBinary)
    return 0, 1


def outside(array: np.ndarray, space: gymnasium.Space) -> np.ndarray:
    """Where numbers are beyond the limits of their space: bool, of the array's shape."""
    low, high = limits(space)
    return (array < low) | (array > high)


def choice_counts(space: gymnasium.Space) -> np.ndarray:
    """How many values each number of a Discrete or MultiDiscrete may take: int64 [*shape]."""
    assert isinstance(space, spaces.Discrete | spaces.MultiDiscrete)
    count = space.n if isinstance(space, spaces.Discrete) else space.nvec
    return np.asarray(count, np.int64)


def is_image(space: gymnasium.Space) -> bool:
    """Tells whether a space is one image: a Box of three axes."""
    return isinstance(space, spaces.Box) and len(space.shape) == 3
