"""Layers and input handling that the network modules share."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from gymnasium import spaces

from srl.errors import UserError
from srl.networks.network import unsupported
from srl.types import Array, Tree

SUPPORTED = "Box, Discrete, MultiDiscrete, MultiBinary, and Dict or Tuple"


HIDDEN_SCALE = math.sqrt(2.0)


def activation(name: str) -> Callable[[Array], Array]:
    """Finds an activation function by its name in `jax.nn`."""
    function = getattr(jax.nn, name, None)
    if not callable(function):
        raise UserError(f"activation {name!r} is not a function of jax.nn; try tanh, relu or silu")
    return function


def dense(units: int, scale: float, name: str | None = None, use_bias: bool = True) -> nn.Dense:
    """A dense layer with an orthogonal kernel, as PPO implementations use it."""
    return nn.Dense(units, use_bias=use_bias, kernel_init=orthogonal(scale), name=name)


def orthogonal(scale: float) -> Callable[..., Array]:
    """An initializer of orthonormal rows or columns times `scale` (Saxe et al., 2014).

    Initializers draw with NumPy from the parameter's own key: compiling them for every shape of
    parameter would take seconds.
    """

    def draw(key: Array, shape: tuple[int, ...], dtype: Any = jnp.float32) -> Array:
        rows, columns = math.prod(shape[:-1]), shape[-1]
        long, short = max(rows, columns), min(rows, columns)
        x = _generator(key).standard_normal((long, short))
        # QR by Cholesky: uniform over orthonormal matrices, and fast whatever else the host does.
        q = np.linalg.solve(np.linalg.cholesky(x.T @ x), x.T).T
        return jnp.asarray(scale * (q if rows >= columns else q.T).reshape(shape), dtype)

    return draw


def normal(deviation: float) -> Callable[..., Array]:
    """An initializer of independent normal numbers."""

    def draw(key: Array, shape: tuple[int, ...], dtype: Any = jnp.float32) -> Array:
        return jnp.asarray(deviation * _generator(key).standard_normal(shape), dtype)

    return draw


def _generator(key: Array) -> np.random.Generator:
    return np.random.default_rng(np.asarray(jax.random.key_data(key)))


def flatten(space: gymnasium.Space, observation: Tree) -> Array:
    """Joins all that is observed, except `action_mask`, into vectors.

    Args:
        space: What is observed.
        observation: Its values, with any leading axes.

    Returns:
        float32 [..., features]; categories are one-hot.
    """
    parts = _parts(space, observation)
    if not parts:
        raise unsupported(space, SUPPORTED)
    return parts[0] if len(parts) == 1 else jnp.concatenate(parts, axis=-1)


def _parts(space: gymnasium.Space, observation: Tree) -> list[Array]:
    if isinstance(space, spaces.Dict):
        names = [name for name in space if name != "action_mask"]
        return [part for name in names for part in _parts(space[name], observation[name])]
    if isinstance(space, spaces.Tuple):
        pairs = zip(space, observation, strict=True)
        return [part for inner, value in pairs for part in _parts(inner, value)]
    if isinstance(space, spaces.Discrete):
        return [jax.nn.one_hot(observation - int(space.start), int(space.n))]
    if isinstance(space, spaces.MultiDiscrete):
        sizes = space.nvec.reshape(-1)
        values = _flat(observation - jnp.asarray(space.start), len(space.shape))
        return [jax.nn.one_hot(values[..., i], int(size)) for i, size in enumerate(sizes)]
    if isinstance(space, spaces.Box | spaces.MultiBinary):
        return [_flat(jnp.asarray(observation, jnp.float32), len(space.shape))]
    raise unsupported(space, SUPPORTED)


def _flat(x: Array, rank: int) -> Array:
    """Makes one axis of the last `rank` ones."""
    return x.reshape(*x.shape[: x.ndim - rank], -1)
