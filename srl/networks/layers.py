"""Layers and input handling that the network modules share."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from srl.core.errors import UserError
from srl.core.spaces import Space, space_tree, spaces
from srl.core.tree import map_tree, names_of
from srl.core.types import Array, Tree
from srl.networks.policy_and_value import unsupported

SUPPORTED = "Box, Discrete, MultiDiscrete, MultiBinary, and Dict or Tuple"


HIDDEN_SCALE = math.sqrt(2.0)


def activation(name: str) -> Callable[[Array], Array]:
    """Finds an activation function by its name in `jax.nn`."""
    function = getattr(jax.nn, name, None)
    if not callable(function):
        raise UserError(f"activation {name!r} is not a function of jax.nn; try tanh, relu or silu")
    return function


def dense(
    units: int,
    scale: float = HIDDEN_SCALE,
    name: str | None = None,
    use_bias: bool = True,
    bias: nn.initializers.Initializer = nn.initializers.zeros,
) -> nn.Dense:
    """Gives a dense layer with an orthogonal kernel, as PPO implementations use it.

    Args:
        units: Outputs.
        scale: The kernel's factor: sqrt(2) before an activation, 1 for values, 0.01 for policies'
            last layers.
        name: The layer's name among the parameters.
        use_bias: False leaves the bias out.
        bias: The initializer of the bias.
    """
    kernel = orthogonal(scale)
    return nn.Dense(units, use_bias=use_bias, kernel_init=kernel, bias_init=bias, name=name)


class DenseWeights(nn.Module):
    """The parameters of `dense`, for a product that serves several layers."""

    units: int
    scale: float

    @nn.compact
    def __call__(self, features: int) -> tuple[Array, Array]:
        """Gives the kernel [features, units] and the bias [units]."""
        kernel = self.param("kernel", orthogonal(self.scale), (features, self.units))
        return kernel, self.param("bias", nn.initializers.zeros, (self.units,))


def orthogonal(scale: float) -> nn.initializers.Initializer:
    """An initializer of orthonormal rows or columns times `scale` (Saxe et al., 2014)."""

    def draw(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        rows, columns = math.prod(shape[:-1]), shape[-1]
        x = random.standard_normal((max(rows, columns), min(rows, columns)))
        # QR by Cholesky: uniform over orthonormal matrices, and fast whatever else the host does.
        q = np.linalg.solve(np.linalg.cholesky(x.T @ x), x.T).T
        return scale * (q if rows >= columns else q.T).reshape(shape)

    return _on_host(draw)


def normal(deviation: float) -> nn.initializers.Initializer:
    """An initializer of independent normal numbers."""
    return _on_host(lambda random, shape: deviation * random.standard_normal(shape))


def _on_host(
    draw: Callable[[np.random.Generator, tuple[int, ...]], np.ndarray],
) -> nn.initializers.Initializer:
    """Draws with NumPy: to compile an initializer for every shape would take seconds."""

    def initializer(key: Array, shape: Any, dtype: Any = jnp.float32, out_sharding: Any = None):
        del out_sharding

        def host(data: Array) -> np.ndarray:
            return draw(np.random.default_rng(np.asarray(data)), tuple(shape)).astype(dtype)

        if not isinstance(key, jax.core.Tracer):
            return jnp.asarray(host(jax.random.key_data(key)))
        result = jax.ShapeDtypeStruct(tuple(shape), dtype)
        return jax.pure_callback(host, result, jax.random.key_data(key))

    return initializer


def flatten(space: Space, observation: Tree) -> Array:
    """Joins all that is observed, except `action_mask`, into vectors.

    Args:
        space: What is observed.
        observation: Its values, with any leading axes.

    Returns:
        float32 [..., features]; categories are one-hot.
    """
    parts = [part for leaf in leaves(space, observation) for part in vectors(*leaf)]
    if not parts:
        raise unsupported(space, SUPPORTED)
    return parts[0] if len(parts) == 1 else jnp.concatenate(parts, axis=-1)


def leaves(space: Space, observation: Tree) -> list[tuple[Space, Array]]:
    """Lists what is observed in the space's order, without `action_mask`."""
    found: list[tuple[Space, Array]] = []

    def visit(name: str, leaf: Space, value: Array) -> None:
        if "action_mask" not in name.split("/"):
            found.append((leaf, value))

    tree = space_tree(space)
    map_tree(visit, names_of(tree), tree, observation)
    return found


def vectors(space: Space, observation: Array) -> list[Array]:
    """Gives vectors [..., features] of one array; categories are one-hot."""
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
