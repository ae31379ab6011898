"""Gymnasium's spaces as far as policies need them, for machines that have no Gymnasium.

They describe what is observed and done, and neither draw nor check anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np


class Space:
    """Base of the spaces."""

    shape: tuple[int, ...] | None = None
    dtype: np.dtype | None = None


class Box(Space):
    """Numbers between bounds."""

    def __init__(
        self, low: Any, high: Any, shape: tuple[int, ...] | None = None, dtype: Any = np.float32
    ) -> None:
        self.shape, self.dtype = np.shape(low) if shape is None else tuple(shape), np.dtype(dtype)
        self.low, self.high = (
            np.broadcast_to(np.asarray(bound, self.dtype), self.shape) for bound in (low, high)
        )

    def __repr__(self) -> str:
        return f"Box({self.low.min()}, {self.high.max()}, {self.shape}, {self.dtype})"


class Discrete(Space):
    """One of `n` whole numbers, the first of which is `start`."""

    def __init__(self, n: int, *, start: int = 0, dtype: Any = np.int64) -> None:
        self.shape, self.dtype, self.n, self.start = (), np.dtype(dtype), n, start

    def __repr__(self) -> str:
        return f"Discrete({self.n})" if not self.start else f"Discrete({self.n}, {self.start})"


class MultiDiscrete(Space):
    """Whole numbers, each of a count of its own from a start of its own."""

    def __init__(self, nvec: np.ndarray, *, start: np.ndarray, dtype: Any = np.int64) -> None:
        self.shape, self.dtype, self.nvec, self.start = nvec.shape, np.dtype(dtype), nvec, start

    def __repr__(self) -> str:
        return f"MultiDiscrete({self.nvec.tolist()})"


class MultiBinary(Space):
    """Zeros and ones."""

    def __init__(self, n: int | tuple[int, ...]) -> None:
        self.n, self.dtype = n, np.dtype(np.int8)
        self.shape = (n,) if isinstance(n, int) else tuple(n)

    def __repr__(self) -> str:
        return f"MultiBinary({self.n})"


class Dict(Space):
    """Spaces by name."""

    def __init__(self, parts: Iterable[tuple[str, Space]] | dict[str, Space]) -> None:
        self.spaces = dict(parts)

    def __getitem__(self, name: str) -> Space:
        return self.spaces[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.spaces)

    def items(self) -> Iterable[tuple[str, Space]]:
        """The names and their spaces."""
        return self.spaces.items()

    def __repr__(self) -> str:
        return f"Dict({', '.join(f'{name!r}: {part}' for name, part in self.items())})"


class Tuple(Space):
    """Spaces one after the other."""

    def __init__(self, parts: Iterable[Space]) -> None:
        self.spaces = tuple(parts)

    def __iter__(self) -> Iterator[Space]:
        return iter(self.spaces)

    def __len__(self) -> int:
        return len(self.spaces)

    def __repr__(self) -> str:
        return f"Tuple({', '.join(map(repr, self.spaces))})"
