"""Trees of many arrays as few vectors: one costs as much to send as a vector of thousands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from srl.core.lazy import jax, jnp
from srl.core.types import Array

Vectors = Mapping[str, Array]
"""The numbers of a tree, one vector for each type, by the type's name."""


def vectors_of(tree: Any) -> dict[str, Array]:
    """The numbers of a tree."""
    leaves = jax.tree.leaves(tree)
    names = sorted({str(leaf.dtype) for leaf in leaves})
    return {
        name: jnp.concatenate([leaf.reshape(-1) for leaf in leaves if str(leaf.dtype) == name])
        for name in names
    }


def tree_of(vectors: Vectors, like: Any) -> Any:
    """The tree that vectors were made of.

    Args:
        vectors: Of its numbers.
        like: A tree of the same shapes and types; its numbers are not looked at.
    """
    leaves, structure = jax.tree.flatten(like)
    used = dict.fromkeys(vectors, 0)
    parts = []
    for leaf in leaves:
        name, start = str(leaf.dtype), used[str(leaf.dtype)]
        used[name] = start + leaf.size
        parts.append(vectors[name][start : start + leaf.size].reshape(leaf.shape))
    return jax.tree.unflatten(structure, parts)
