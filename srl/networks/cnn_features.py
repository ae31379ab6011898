"""The flax modules of the convolutional network."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from srl.core.spaces import Space, is_image
from srl.core.types import Array, Tree
from srl.networks.layers import HIDDEN_SCALE, dense, flatten, leaves, orthogonal
from srl.system.gpu_switches import gpu_choice
from srl.system.gpus import jax_gpus


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
    """A convolution without padding: on a GPU XLA's own, elsewhere a matrix product over patches.

    XLA's convolutions, and above all their gradients, are slow on CPU inside loops. Where squares
    of pixels tile both the window and its steps, they are taken as pixels with more channels: then
    a patch is made of a few long pieces.
    """

    filters: int
    kernel: int
    stride: int

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Takes [rows, height, width, channels]."""
        channels, side = x.shape[-1], math.gcd(self.kernel, self.stride)
        shape = (self.kernel, self.kernel, channels, self.filters)
        kernel = self.param("kernel", orthogonal(HIDDEN_SCALE), shape)
        bias = self.param("bias", nn.initializers.zeros, (self.filters,))
        if traced_for_gpu() and gpu_choice("convolutions") == "xla":
            steps, axes = (self.stride, self.stride), ("NHWC", "HWIO", "NHWC")
            own = jax.lax.conv_general_dilated(x, kernel, steps, "VALID", dimension_numbers=axes)
            return own + bias

        window, step = self.kernel // side, self.stride // side
        x, kernel = _squares(x, side), _squares(jnp.moveaxis(kernel, -1, 0), side)
        height, width = ((length - window) // step + 1 for length in x.shape[1:3])
        pieces = [
            x[:, top : top + step * height : step, left : left + step * width : step]
            for top in range(window)
            for left in range(window)
        ]
        return jnp.concatenate(pieces, axis=-1) @ kernel.reshape(self.filters, -1).T + bias


def traced_for_gpu() -> bool:
    """Tells if the program being traced will run on a GPU; starts no device."""
    config: Any = jax.config
    device = config.jax_default_device
    on_cpu = "cpu" in (device, getattr(device, "platform", None))
    return not on_cpu and bool(jax_gpus())


def _squares(x: Array, side: int) -> Array:
    """Takes squares of pixels [rows, height, width, channels] as pixels with more channels.

    What is left over at the edges is no square, and in no window.
    """
    if side == 1:
        return x
    rows, height, width, channels = x.shape
    height, width = height // side, width // side
    x = x[:, : height * side, : width * side]
    x = x.reshape(rows, height, side, width, side, channels)
    return x.transpose(0, 1, 3, 2, 4, 5).reshape(rows, height, width, -1)
