"""Copies observations into a pool's rows, and checks them against their space on the way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from srl.core.spaces import limits, narrow_dtype, outside
from srl.core.types import Tree
from srl.pools.python.simulator import InvalidOutput, as_numpy
from srl.pools.timestep_arrays import empty_observation

Writer = Callable[[Any, Tree, Any], None]
"""Copies a value into one row, by its index, of a tree of arrays; raises `InvalidOutput` where the
space does not have it."""


def observation_writer(space: gymnasium.Space, path: str = "observation") -> Writer:
    """Makes the function that writes observations of a space.

    Args:
        space: A supported one, as in `Specs.observation`.
        path: What messages call the value.

    Raises:
        UserError: If the space is not supported.
    """
    if isinstance(space, spaces.Dict):
        return _dict_writer(space, path)
    if isinstance(space, spaces.Tuple):
        return _tuple_writer(space, path)
    empty_observation(space, (0,))  # raises for what is no array
    return _array_writer(space, path)


def _invalid(path: str, given: object, expected: object) -> InvalidOutput:
    return InvalidOutput(
        f"gave {path} of {given}, but its observation space has {expected}; fix the environment "
        "or its observation_space"
    )


def _refuse_wide(space: gymnasium.Space, array: np.ndarray, path: str) -> None:
    """Raises InvalidOutput for integers that need more than 32 bits, of a Box without bounds."""
    dtype = narrow_dtype(space.dtype)
    if dtype not in (np.int32, np.uint32):
        return
    (low, high), info = limits(space), np.iinfo(dtype)
    wide = ((low == info.min) & (array < info.min)) | ((high == info.max) & (array > info.max))
    if wide.any():
        raise InvalidOutput(
            f"gave {path} of value {array[wide][0]}, which {info.dtype} does not hold, and pools "
            "give 32 bits: scale it in a wrapper, such as gymnasium.wrappers.TransformObservation"
        )


def _dict_writer(space: spaces.Dict, path: str) -> Writer:
    parts = [(name, observation_writer(s, f"{path}[{name!r}]")) for name, s in space.items()]
    names = {name for name, _ in parts}

    def write(value: Any, memory: Tree, row: Any) -> None:
        if not isinstance(value, dict) or value.keys() != names:
            given = sorted(value) if isinstance(value, dict) else type(value).__name__
            raise _invalid(path, given, f"a dict of {sorted(names)}")
        for name, write_part in parts:
            write_part(value[name], memory[name], row)

    return write


def _tuple_writer(space: spaces.Tuple, path: str) -> Writer:
    parts = [observation_writer(part, f"{path}[{k}]") for k, part in enumerate(space)]

    def write(value: Any, memory: Tree, row: Any) -> None:
        if not isinstance(value, tuple | list) or len(value) != len(parts):
            raise _invalid(path, type(value).__name__, f"{len(parts)} parts")
        for write_part, part, part_memory in zip(parts, value, memory, strict=True):
            write_part(part, part_memory, row)

    return write


def _array_writer(space: gymnasium.Space, path: str) -> Writer:
    shape, dtype = space.shape, narrow_dtype(space.dtype)
    floats = dtype.kind == "f"
    copied = _copied(space, dtype)

    def fitted(value: Any) -> np.ndarray:
        array = as_numpy(value)
        if array.shape != shape:
            raise _invalid(path, f"shape {array.shape}", f"shape {shape}")
        if array.dtype.kind not in ("iubf" if floats else "iub"):
            raise _invalid(path, f"dtype {array.dtype}", f"dtype {dtype}")
        if not floats and (wrong := outside(array, space)).any():
            _refuse_wide(space, array, path)
            raise _invalid(path, f"value {array[wrong][0]}", space)
        return array

    def write(value: Any, memory: np.ndarray, row: Any) -> None:
        # The quick way is for what needs no more than a copy; the rest is looked at closely.
        if value.__class__ is not np.ndarray or value.shape != shape or value.dtype not in copied:
            value = fitted(value)
        memory[row] = value

    if not isinstance(space, spaces.Discrete):
        return write
    first, end = int(space.start), int(space.start + space.n)

    def write_number(value: Any, memory: np.ndarray, row: Any) -> None:
        if value.__class__ not in _INTEGERS or not first <= value < end:
            value = fitted(value)
        memory[row] = value

    return write_number


_INTEGERS = (int, np.int64, np.int32)


def _copied(space: gymnasium.Space, dtype: np.dtype) -> tuple[np.dtype, ...]:
    """The dtypes of arrays that fit a space if their shapes do."""
    if dtype.kind == "f":
        return np.dtype(np.float32), np.dtype(np.float64)
    if isinstance(space, spaces.Box) and dtype.kind in "iu":
        info = np.iinfo(dtype)
        if (space.low <= info.min).all() and (space.high >= info.max).all():
            return (dtype,)
    return ()
