"""Trees of arrays: dicts and tuples, nested. Needs no JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from srl.types import Array, Tree  # brings gymnasium


def map_tree(function: Callable[[Array], Any], tree: Tree) -> Tree:
    """The same tree with `function` of each array in its place."""
    if isinstance(tree, dict):
        return {name: map_tree(function, part) for name, part in tree.items()}
    if isinstance(tree, tuple):
        parts = (map_tree(function, part) for part in tree)
        return type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)
    return function(tree)


def leaves_of(tree: Tree) -> list[Array]:
    """The arrays of a tree, in order; those of a dict in the order of its names."""
    if isinstance(tree, dict):
        return [leaf for name in sorted(tree) for leaf in leaves_of(tree[name])]
    if isinstance(tree, tuple):
        return [leaf for part in tree for leaf in leaves_of(part)]
    return [tree]


def copy_tree(source: Tree, target: Tree) -> None:
    """Copies every array into that of a like tree."""
    for a, b in zip(leaves_of(source), leaves_of(target), strict=True):
        b[...] = a
