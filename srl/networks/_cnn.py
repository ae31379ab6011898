"""The flax modules of the convolutional network."""

from __future__ import annotations

import math

import jax.numpy as jnp
from flax import linen as nn

from srl.networks._layers import HIDDEN_SCALE, dense, flatten, leaves
from srl.spaces import Space, is_image
from srl.types import Array, Tree


class CNNFeatures(nn.Module):
    """Convolutions of each image; their features and all else, a dense layer."""

    space: Space
    layers: tuple[tuple[int, int, int], ...]
    width: int
    layer_norm: bool = False

    @nn.compact
    def __call__(self, observation: Tree) -> Array:
        """Gives [..., width]."""
        parts: list[Array] = []
        for space, value in leaves(self.space, observation):
            parts.append(self._convolve(value) if is_image(space) else flatten(space, value))
        x = parts[0] if len(parts) == 1 else jnp.concatenate(parts, axis=-1)
        return self._activate(dense(self.width, HIDDEN_SCALE)(x))

    def _convolve(self, image: Array) -> Array:
        leading, shape = image.shape[:-3], image.shape[-3:]
        x = image.reshape(math.prod(leading), *shape)
        if shape[0] < shape[2]:
            x = jnp.moveaxis(x, 1, 3)
        for filters, kernel, stride in self.layers:
            # A window never is larger than the image, so small images work too.
            side = min(kernel, *x.shape[1:3])
            x = self._activate(Convolution(filters, side, min(stride, side))(x))
        return x.reshape(*leading, -1)

    def _activate(self, x: Array) -> Array:
        return nn.relu(nn.LayerNorm()(x) if self.layer_norm else x)


class Convolution(nn.Module):
    """A convolution without padding, as a matrix product over patches.

    XLA's convolutions, and above all their gradients, are slow on CPU inside loops.
    """

    filters: int
    kernel: int
    stride: int

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Takes [rows, height, width, channels]."""
        height, width = ((side - self.kernel) // self.stride + 1 for side in x.shape[1:3])
        rows = [self._every(x, 1, offset, height) for offset in range(self.kernel)]
        x = jnp.stack(rows, axis=3)  # [rows, height, input width, kernel, channels]
        columns = [self._every(x, 2, offset, width) for offset in range(self.kernel)]
        x = jnp.stack(columns, axis=4)  # [rows, height, width, kernel, kernel, channels]
        return dense(self.filters, HIDDEN_SCALE)(x.reshape(*x.shape[:3], -1))

    def _every(self, x: Array, axis: int, start: int, count: int) -> Array:
        """Takes `count` places of an axis, one for each stride."""
        if self.stride == 1:
            return jnp.take(x, jnp.arange(start, start + count), axis=axis, mode="clip")
        index = [slice(None)] * x.ndim
        index[axis] = slice(start, start + (count - 1) * self.stride + 1, self.stride)
        return x[tuple(index)]
