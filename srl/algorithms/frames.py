"""Stacks of the last observations, as policies see them whose observation is one moment's.

Environments, streams and replays carry single observations; stacks are made where they are used.
What precedes an episode's first observation is zeros (as in Dopamine, Castro et al., 2018).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from srl.core.errors import UserError
from srl.core.lazy import jax, jnp
from srl.core.spaces import (
    SMALLEST_GRID,
    Space,
    image_sides,
    is_image,
    is_mask,
    joined_space,
    space_tree,
    spaces,
)
from srl.core.tree import leaves_of, map_tree, names_of
from srl.core.types import Array, Tree


@dataclass(frozen=True)
class FrameStack:
    """The last `frames` observations of a space as one: of Box leaves, but masks.

    Images (uint8) are stacked along their channels, [frames, height, width] where they have none.
    All other leaves are longer along their last axis. The newest observation is the last.
    """

    space: Space
    """The space of one observation."""
    frames: int
    """The number of observations in a stack, at least 2."""
    privileged: tuple[str, ...] = ()
    """The keys that policies do not see, which are not stacked."""

    @cached_property
    def stacked(self) -> Space:
        """The space of the stacks.

        Raises:
            UserError: If nothing in an observation can be stacked.
        """
        if not any(leaves_of(self._stacks)):
            raise UserError(
                f"frame_stack={self.frames}, but observations of {self.space} hold no Box to stack"
            )

        def stack(stacks: bool, leaf: Any) -> Space:
            if not stacks:
                return leaf
            low, high = (
                merged(leaf, np.stack([bound] * self.frames), np) for bound in (leaf.low, leaf.high)
            )
            joined = spaces.Box(low, high, dtype=leaf.dtype.type)
            convolved = is_image(leaf) and min(image_sides(leaf)) >= SMALLEST_GRID
            if convolved and _axis(leaf) != _axis(joined):
                raise UserError(
                    f"frame_stack={self.frames} makes {joined.shape} of images of {leaf.shape}, "
                    "and the shorter end of an image is that of its channels: stack fewer"
                )
            return joined

        return joined_space(map_tree(stack, self._stacks, self._leaves))

    def nothing(self, batch: int) -> Tree:
        """Gives what precedes the first observations of `batch` slots: [B, frames - 1, ...]."""

        def zeros(stacks: bool, leaf: Any) -> Any:
            return jnp.zeros((batch, self.frames - 1, *leaf.shape), leaf.dtype) if stacks else ()

        return map_tree(zeros, self._stacks, self._leaves)

    def push(self, earlier: Tree, observation: Tree) -> tuple[Tree, Tree]:
        """Adds an observation.

        Args:
            earlier: [B, frames - 1, ...], of the same episode.
            observation: [B, ...].

        Returns:
            The stack, and what precedes the next observation.
        """

        def join(stacks: bool, x: Array, before: Tree) -> Any:
            return jnp.concatenate([before, x[:, None].astype(before.dtype)], 1) if stacks else x

        joined = map_tree(join, self._stacks, observation, earlier)
        following = map_tree(lambda stacks, x: x[:, 1:] if stacks else (), self._stacks, joined)
        return self._merged(joined), following

    def of_rows(self, earlier: Tree, rows: Tree, ended: Array) -> Tree:
        """Gives the stack at each row.

        Args:
            earlier: [B, frames - 1, ...], before the first row, of the same episode.
            rows: Observations [L, B, ...].
            ended: bool [L, B], rows that end an episode.
        """
        length = len(ended)

        def stack(stacks: bool, x: Array, before: Array) -> Any:
            if not stacks:
                return x
            before = jnp.moveaxis(before, 1, 0).astype(x.dtype)
            x = jnp.concatenate([before, x])  # row t is at t + frames - 1
            same = jnp.ones(ended.shape, bool)  # whether the frame is of the row's episode
            parts = []
            for age in range(self.frames):
                if age:  # rows whose episode ended `age` rows before see no further back
                    same = same & ~jnp.pad(ended, [(age, 0), (0, 0)])[:length]
                first = self.frames - 1 - age
                part = x[first : first + length]
                parts.append(jnp.where(same.reshape(*same.shape, *[1] * (x.ndim - 2)), part, 0))
            return jnp.stack(parts[::-1], axis=2)

        return self._merged(map_tree(stack, self._stacks, rows, earlier))

    def newest(self, stacks: Tree) -> Tree:
        """Gives the newest observation of each stack, [..., ...]."""
        return self._split(stacks, lambda frames: frames[-1])

    def earlier(self, stacks: Tree) -> Tree:
        """Gives what precedes the newest observation of stacks [B, ...]: [B, frames - 1, ...]."""

        def all_but_last(frames: list[Array]) -> Array:
            return jnp.stack(frames[:-1], axis=1)

        return self._split(stacks, all_but_last, ())

    def _split(self, stacks: Tree, take: Callable[[list[Array]], Array], other: Any = None) -> Tree:
        def split(stacked: bool, leaf: Any, x: Array) -> Any:
            if not stacked:
                return x if other is None else other
            axis = _axis(leaf)
            if axis is None:
                at = x.ndim - len(leaf.shape) - 1
                return take([jax.lax.index_in_dim(x, i, at, False) for i in range(self.frames)])
            return take(jnp.split(x, self.frames, axis=x.ndim - len(leaf.shape) + axis))

        return map_tree(split, self._stacks, self._leaves, stacks)

    def _merged(self, joined: Tree) -> Tree:
        def merge(stacks: bool, leaf: Any, x: Array) -> Any:
            return merged(leaf, x, jnp) if stacks else x

        return map_tree(merge, self._stacks, self._leaves, joined)

    @cached_property
    def _leaves(self) -> Tree:
        return space_tree(self.space)

    @cached_property
    def _stacks(self) -> Tree:
        """True for each leaf that is stacked."""
        names = names_of(self._leaves) or "observation"

        def is_stacked(name: str, leaf: Space) -> bool:
            hidden = any(f"{name}/".startswith(f"{key}/") for key in self.privileged)
            return isinstance(leaf, spaces.Box) and not (hidden or is_mask(name))

        return map_tree(is_stacked, names, self._leaves)


def merged(leaf: spaces.Box, x: Any, library: Any) -> Any:
    """Gives [..., frames, *shape] as the stack of a leaf, by NumPy or JAX."""
    axis, shape = _axis(leaf), leaf.shape
    if axis is None:
        return x
    leading = x.shape[: x.ndim - len(shape) - 1]
    x = library.moveaxis(x, len(leading), len(leading) + axis)
    return x.reshape(*leading, *shape[:axis], -1, *shape[axis + 1 :])


def _axis(leaf: spaces.Box) -> int | None:
    """The axis along which observations are joined; None for a new first one."""
    shape = leaf.shape
    if not shape or (len(shape) == 2 and leaf.dtype == np.uint8):
        return None
    channels_first = is_image(leaf) and shape[0] < shape[2]  # pyright: ignore[reportGeneralTypeIssues]
    return 0 if channels_first else len(shape) - 1
