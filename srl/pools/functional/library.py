"""Common code of the adapters for libraries of environments written in JAX."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
from gymnasium import spaces

from srl.core.errors import UserError
from srl.core.optional_packages import install_command

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
        dtype = np.dtype(space.dtype)
        low, high = (
            np.broadcast_to(bound, space.shape).astype(dtype) for bound in (space.low, space.high)
        )
        return spaces.Box(low, high, tuple(space.shape), dtype.type)
    if kind == "MultiDiscrete":
        return spaces.MultiDiscrete(np.asarray(space.num_categories))
    if kind == "Dict":
        return spaces.Dict({name: gymnax_space(part) for name, part in space.spaces.items()})
    raise UserError(
        f"the space {kind} is not supported; there may be Discrete, MultiDiscrete, Box and Dict"
    )
