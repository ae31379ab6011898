"""Gymnasium's spaces as trees, and what the spaces at their leaves have in common.

Only this module takes a Dict or Tuple apart: elsewhere `space_tree` gives a tree whose leaves are
the spaces of single arrays, for `map_tree` and the other functions of `srl.core.tree`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from gymnasium import Space, spaces

from srl.core.errors import UserError
from srl.core.tree import map_tree
from srl.core.types import Tree


def space_tree(space: Space) -> Tree:
    """The space as a tree: a dict of a Dict, a tuple of a Tuple, and any other space itself."""
    if isinstance(space, spaces.Dict):
        return {name: space_tree(part) for name, part in space.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(space_tree(part) for part in space)
    return space


def shaped_like(value: Any, tree: Tree, name: str, leaf: Callable[[Any, Space, str], Any]) -> Tree:
    """Gives a value that may be of any form as a tree of the form of a `space_tree`.

    Args:
        value: Dicts and tuples or lists, nested.
        tree: The spaces of single arrays.
        name: What messages call the value.
        leaf: Makes an array of a part, its space and its name.

    Raises:
        UserError: If it is of another form.
    """
    if isinstance(tree, dict):
        if not isinstance(value, Mapping) or value.keys() != tree.keys():
            given = sorted(map(str, value)) if isinstance(value, Mapping) else type(value).__name__
            raise UserError(f"{name}: {given}; expected a dict of {sorted(tree)}")
        parts = tree.items()
        return {key: shaped_like(value[key], own, f"{name}[{key!r}]", leaf) for key, own in parts}
    if isinstance(tree, tuple):
        if not isinstance(value, tuple | list) or len(value) != len(tree):
            raise UserError(f"{name}: {type(value).__name__}; expected {len(tree)} parts")
        pairs = enumerate(zip(value, tree, strict=True))
        return tuple(shaped_like(x, own, f"{name}[{k}]", leaf) for k, (x, own) in pairs)
    return leaf(value, tree, name)


def joined_space(tree: Tree) -> Space:
    """The space of a `space_tree`; a Dict keeps the order of the tree's names."""
    if isinstance(tree, dict):
        return spaces.Dict([(name, joined_space(part)) for name, part in tree.items()])
    if isinstance(tree, tuple):
        return spaces.Tuple([joined_space(part) for part in tree])
    return tree


def limits(space: Space) -> tuple[Any, Any]:
    """The least and the greatest value of a space of numbers, one each or one for each number."""
    if isinstance(space, spaces.Box):
        return space.low, space.high
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        return space.start, space.start + (choice_counts(space) - 1)
    assert isinstance(space, spaces.MultiBinary)
    return 0, 1


def outside(array: np.ndarray, space: Space) -> np.ndarray:
    """Marks the numbers beyond the limits of their space: bool, of the array's shape."""
    low, high = limits(space)
    return (array < low) | (array > high)


def bounded(space: spaces.Box) -> np.ndarray:
    """Marks the numbers of a Box that have two bounds: bool, of the Box's shape.

    Floats whose bounds are further apart than float32 reaches, such as the extremes of a type,
    count as having none.
    """
    if np.dtype(space.dtype).kind != "f":
        return np.ones(space.shape, bool)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.isfinite((space.high / 2 - space.low / 2).astype(np.float32) * 2)


def inner_bounds(space: spaces.Box, dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    """Gives the bounds of a Box in a type of floats, rounded inwards where they are between two."""

    def rounded(bound: np.ndarray, sign: int) -> np.ndarray:
        with np.errstate(over="ignore"):
            near = bound.astype(dtype)
            inner = np.nextafter(near, dtype(-sign * np.inf))
        # As objects they are Python's numbers, which compare exactly, integers with floats too.
        beyond = sign * near.astype(object) > sign * bound.astype(object)
        return np.where(beyond, inner, near)

    return rounded(space.low, -1), rounded(space.high, 1)


def has_choices(space: Space) -> bool:
    """Tells if a space holds choices, each of some number of values."""
    return isinstance(space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary)


def choice_counts(space: Space) -> np.ndarray:
    """Gives the number of values of each choice: int64 [*shape]."""
    assert isinstance(space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary)
    if isinstance(space, spaces.MultiBinary):
        return np.full(space.shape, 2, np.int64)
    return np.asarray(space.n if isinstance(space, spaces.Discrete) else space.nvec, np.int64)


def is_image(space: Space) -> bool:
    """Tells if a space is one image: a Box of three axes."""
    return isinstance(space, spaces.Box) and len(space.shape) == 3


def image_sides(image: Space) -> tuple[int, ...]:
    """Gives an image's height and width: the shorter of its two ends is the axis of channels."""
    shape: Any = image.shape
    return shape[1:] if shape[0] < shape[2] else shape[:2]


SMALLEST_GRID = 8
"""The shorter side from which on an image is convolved by default, and not flattened."""
SMALLEST_PICTURE = 32
"""Pixels along each side that a picture has at least; grids of small worlds have fewer."""


def is_picture(space: Space) -> bool:
    """Tells if a space is one of pixels: a uint8 Box from 0 to 255, at least 32 pixels either way.

    It has two axes, or three of which the shorter of the two ends is that of its channels.
    """
    if not isinstance(space, spaces.Box) or space.dtype != np.uint8:
        return False
    shape = image_sides(space) if is_image(space) else space.shape
    sides = len(shape) == 2 and min(shape) >= SMALLEST_PICTURE
    return bool(sides and (space.low == 0).all() and (space.high == 255).all())


def is_mask(name: str) -> bool:
    """Tells if an observation is a mask by its name, such as `boxes/mask_boxes`."""
    key = name.rsplit("/", 1)[-1]
    return key.startswith("mask") or key == "action_mask"


_NARROW = {"float64": np.float32, "int64": np.int32, "uint64": np.uint32, "float16": np.float32}


def narrow_dtype(dtype: Any) -> np.dtype:
    """The dtype that a pool gives for an environment's: 64 bits become 32, as in JAX."""
    return np.dtype(_NARROW.get(np.dtype(dtype).name, dtype))


def own_action(space: Space, action: Tree) -> Tree:
    """Gives an agent's own part of actions [..., *shape] that were made for a larger space."""

    def part(leaf: Space, x: Any) -> Any:
        own = x[(..., *corner(leaf))] if leaf.shape else x
        return own.clip(leaf.low, leaf.high) if isinstance(leaf, spaces.Box) else own

    return map_tree(part, space_tree(space), action)


def padded(array: Any, shape: tuple[int, ...], xp: Any = np) -> Any:
    """Gives an array [..., *own] of NumPy or JAX (`xp`) with zeros up to [..., *shape]."""
    leading = array.ndim - len(shape)
    missing = [most - size for most, size in zip(shape, array.shape[leading:], strict=True)]
    return xp.pad(array, [(0, 0)] * leading + [(0, n) for n in missing]) if any(missing) else array


def corner(space: Space) -> tuple[slice, ...]:
    """Gives the index of an agent's space in an array padded for a larger one."""
    return tuple(slice(size) for size in space.shape or ())
