"""Trees of arrays: dicts and tuples, nested. Needs no JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from srl.core.types import Array, Tree


def map_tree(function: Callable[..., Any], tree: Tree, *others: Tree) -> Tree:
    """The same tree with `function` of each array, and of its like in other trees, in its place."""
    if isinstance(tree, dict):
        return {
            name: map_tree(function, part, *(other[name] for other in others))
            for name, part in tree.items()
        }
    if isinstance(tree, tuple):
        parts = (map_tree(function, *like) for like in zip(tree, *others, strict=True))
        return type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)
    return function(tree, *others)


def names_of(tree: Tree, name: str = "") -> Tree:
    """The same tree with the name of each array in its place, such as camera/depth or pair/0.

    The names begin with `name`, if it is given.
    """
    if isinstance(tree, dict):
        return {key: names_of(part, f"{name}/{key}" if name else key) for key, part in tree.items()}
    if isinstance(tree, tuple):
        return tuple(
            names_of(part, f"{name}/{i}" if name else f"{i}") for i, part in enumerate(tree)
        )
    return name


def leaves_of(tree: Tree) -> list[Array]:
    """The arrays of a tree, in order; those of a dict in the order of its names."""
    if isinstance(tree, dict):
        return [leaf for name in sorted(tree) for leaf in leaves_of(tree[name])]
    if isinstance(tree, tuple):
        return [leaf for part in tree for leaf in leaves_of(part)]
    return [tree]


def rows_of(tree: Tree) -> list[Tree]:
    """The trees of the rows of arrays [n, ...]: n of them."""
    if isinstance(tree, dict):
        return [dict(zip(tree, row, strict=True)) for row in rows_of(tuple(tree.values()))]
    if isinstance(tree, tuple):
        return list(zip(*map(rows_of, tree), strict=True))
    return list(tree)


def copy_tree(source: Tree, target: Tree) -> None:
    """Copies every array into that of a like tree."""
    for a, b in zip(leaves_of(source), leaves_of(target), strict=True):
        b[...] = a
