"""Common code of the adapters for libraries of environments written in JAX."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
from gymnasium import spaces

from srl.core.errors import UserError
from srl.core.optional_packages import install_command
from srl.core.types import Tree

PREFIX = "jax:"


def imported(library: str, module: str) -> Any:
    """A module of an optional library.

    Raises:
        UserError: If it cannot be imported.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UserError(
            f"{library} cannot be imported ({error}); try: {install_command(library)}"
        ) from error


def gymnax_space(space: Any) -> spaces.Space:
    """The space of a gymnax space, or of one of JaxMARL's, which are copies of them.

    Raises:
        UserError: If it is of another kind.
    """
    kind = type(space).__name__
    if kind == "Discrete":
        return spaces.Discrete(int(space.n))
    if kind == "Box":
        return box(space.low, space.high, space)
    if kind == "MultiDiscrete":
        return spaces.MultiDiscrete(np.asarray(space.num_categories))
    if kind == "Dict":
        return spaces.Dict({name: gymnax_space(part) for name, part in space.spaces.items()})
    raise UserError(
        f"the space {kind} is not supported; there may be Discrete, MultiDiscrete, Box and Dict"
    )


def box(low: Any, high: Any, array: Any) -> spaces.Box:
    """The space of arrays of a shape and a dtype, with bounds that are broadcast to it."""
    dtype, shape = np.dtype(array.dtype), tuple(array.shape)
    low, high = (np.broadcast_to(bound, shape).astype(dtype) for bound in (low, high))
    return spaces.Box(low, high, shape, dtype.type)


def unbounded(observation: Tree) -> spaces.Space:
    """The space of all arrays of these shapes and dtypes; a Dict of a dict."""
    if isinstance(observation, dict):
        return spaces.Dict({name: unbounded(part) for name, part in observation.items()})
    dtype = np.dtype(observation.dtype)
    if np.issubdtype(dtype, np.bool_):
        return spaces.Box(0, 1, observation.shape, np.uint8)
    if np.issubdtype(dtype, np.integer):
        return box(np.iinfo(dtype).min, np.iinfo(dtype).max, observation)
    return box(-np.inf, np.inf, observation)
