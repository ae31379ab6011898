"""Trees of arrays: dicts and tuples, nested. Needs no JAX."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
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


class Leaves:
    """Reads the arrays of trees of one form, whose places are found once, in `leaves_of`'s order.

    A read is one call, however deep the trees are.
    """

    def __init__(self, form: Tree) -> None:
        self._form, self._paths = form, list(_paths(form))

    def __call__(self, tree: Tree) -> list[Array]:
        """The arrays of a tree of this form."""
        found = []
        for path in self._paths:
            part = tree
            for key in path:
                part = part[key]
            found.append(part)
        return found

    def tree(self, leaves: Iterable[Array]) -> Tree:
        """The tree with these arrays."""
        numbers = iter(leaves)
        by_path = {path: next(numbers) for path in self._paths}
        return _built(self._form, by_path, ())


def _paths(tree: Tree, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The keys on the way to each array."""
    if isinstance(tree, dict | tuple):
        keys = sorted(tree) if isinstance(tree, dict) else range(len(tree))
        for key in keys:
            yield from _paths(tree[key], (*path, key))
    else:
        yield path


def _built(form: Tree, leaves: dict[tuple[Any, ...], Array], path: tuple[Any, ...]) -> Tree:
    if isinstance(form, dict):
        return {key: _built(part, leaves, (*path, key)) for key, part in form.items()}
    if isinstance(form, tuple):
        parts = (_built(part, leaves, (*path, i)) for i, part in enumerate(form))
        return type(form)(*parts) if hasattr(form, "_fields") else tuple(parts)
    return leaves[path]


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
