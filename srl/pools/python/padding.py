"""One space for agents whose own spaces differ in size: what is theirs, and then zeros."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import gymnasium
import numpy as np
from gymnasium import spaces

from srl.core.errors import UserError
from srl.core.spaces import corner, padded, space_tree
from srl.core.tree import map_tree
from srl.core.types import Tree


def common_space(own: Mapping[str, gymnasium.Space], kind: str, name: str) -> gymnasium.Space:
    """The smallest space that holds what is in any of the agents' own, padded with zeros.

    Boxes and MultiBinaries of one rank take the largest size along each axis, Discretes the
    largest count; Dicts and Tuples with the same parts go part by part.

    Args:
        own: By agent.
        kind: What messages call the spaces, such as "action".
        name: What messages call the environment.

    Raises:
        UserError: If the spaces are of different kinds; two of the agents are named.
    """
    first = next(iter(own))
    for agent in own:
        if own[agent] != own[first] and not _alike([own[first], own[agent]]):
            raise UserError(
                f"{name}: {first} has {kind} space {own[first]}, but {agent} {own[agent]}; only "
                "spaces that differ in size alone can be padded to be alike: wrap the environment"
            )
    return _common(list(own.values()))


def crop(space: gymnasium.Space, tree: Tree, rows: slice) -> Tree:
    """Rows of padded arrays [n, ...], and of them what belongs to an agent's own space."""
    return map_tree(lambda leaf, x: x[(rows, *corner(leaf))], space_tree(space), tree)


def _alike(group: Sequence[gymnasium.Space]) -> bool:
    """Tells if the spaces differ in size alone."""
    first, other = group
    if type(first) is not type(other):
        return False
    if isinstance(first, spaces.Dict) and isinstance(other, spaces.Dict):
        return first.spaces.keys() == other.spaces.keys() and all(
            _alike([first[k], other[k]]) for k in first
        )
    if isinstance(first, spaces.Tuple) and isinstance(other, spaces.Tuple):
        return len(first) == len(other) and all(map(_alike, zip(first, other, strict=True)))
    if isinstance(first, spaces.Discrete) and isinstance(other, spaces.Discrete):
        return first.start == other.start and first.dtype == other.dtype
    if isinstance(first, spaces.Box | spaces.MultiBinary):
        assert first.shape is not None
        assert other.shape is not None
        return len(first.shape) == len(other.shape) and first.dtype == other.dtype
    return first == other


def _common(group: Sequence[gymnasium.Space]) -> gymnasium.Space:
    """The smallest space that holds those of a group that are alike."""
    first = group[0]
    if all(space == first for space in group):
        return first
    if dicts := [space for space in group if isinstance(space, spaces.Dict)]:
        return spaces.Dict([(name, _common([d[name] for d in dicts])) for name in dicts[0]])
    if tuples := [space for space in group if isinstance(space, spaces.Tuple)]:
        return spaces.Tuple([_common(parts) for parts in zip(*tuples, strict=True)])
    if discretes := [space for space in group if isinstance(space, spaces.Discrete)]:
        return max(discretes, key=lambda space: space.n)
    shape = tuple(int(size) for size in np.max([space.shape or () for space in group], axis=0))
    if isinstance(first, spaces.MultiBinary):
        return spaces.MultiBinary(shape if len(shape) > 1 else shape[0])  # pyright: ignore[reportGeneralTypeIssues]
    boxes = [space for space in group if isinstance(space, spaces.Box)]
    low = np.min([padded(box.low, shape) for box in boxes], axis=0)
    high = np.max([padded(box.high, shape) for box in boxes], axis=0)
    return spaces.Box(low, high, shape, boxes[0].low.dtype.type)
