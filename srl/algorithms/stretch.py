"""Numbers in [-1, 1] as the actions of a Box: one rule for every algorithm. Needs no JAX.

NumPy's arrays get the type of the space, and are stretched in float64 where that is float64 or one
of integers, else in float32. JAX's are stretched in float32, and get at most 32 bits. Bounds are
rounded inwards where a type does not hold them, so that no action is beyond them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from srl.core.spaces import bounded, inner_bounds, narrow_dtype, spaces
from srl.core.types import Array


class Stretch:
    """Stretches [-1, 1] to the bounds of a Box; numbers without two bounds stay as they are.

    Integers are rounded, halves to even, from an interval that is wider by a half at both ends:
    each gets the same part of [-1, 1].
    """

    def __init__(self, space: spaces.Box) -> None:
        self.space, self._low, self._high = space, space.low, space.high
        self._integers = np.dtype(space.dtype).kind != "f"
        marked = bounded(space)
        low, high = (np.where(marked, x, 0).astype(np.float64) for x in (space.low, space.high))
        margin = 0.5 if self._integers else 0.0
        self._middle = low / 2 + high / 2
        self._half = np.where(marked, high / 2 - low / 2 + margin, 1.0)
        self._limit = np.where(marked, 1.0, np.inf)
        self._bounds: dict[Any, tuple[np.ndarray, np.ndarray]] = {
            dtype: inner_bounds(space, dtype) for dtype in (np.float64, np.float32, np.float16)
        }

    def __call__(self, action: Array) -> Array:
        """Gives what the simulator takes for numbers [..., *shape], which may leave [-1, 1]."""
        dtype = np.dtype(self.space.dtype)
        wide: Any = np.float64 if self._integers or dtype == np.float64 else np.float32
        if not isinstance(action, np.ndarray):
            dtype, wide = narrow_dtype(dtype), np.float32
        middle, half, limit = (x.astype(wide) for x in (self._middle, self._half, self._limit))
        stretched = middle + half * action.astype(wide).clip(-limit, limit)
        if self._integers:
            # The bounds of floats, and then, where these are further apart, of integers.
            rounded = stretched.round().clip(*self._bounds[wide]).astype(dtype)
            info = np.iinfo(dtype)  # pyright: ignore[reportArgumentType, reportCallIssue]
            return rounded.clip(*(x.clip(info.min, info.max) for x in (self._low, self._high)))
        return stretched.astype(dtype).clip(*self._bounds[dtype.type])

    def inverse(self, action: np.ndarray) -> np.ndarray:
        """Gives the numbers in [-1, 1], float32 [..., *shape], of a simulator's actions."""
        number = (action.astype(np.float64) - self._middle) / self._half
        return number.clip(-self._limit, self._limit).astype(np.float32)
