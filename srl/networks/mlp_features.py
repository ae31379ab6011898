"""The flax module of the multilayer perceptron."""

from __future__ import annotations

from flax import linen as nn

from srl.core.spaces import Space
from srl.core.types import Array, Tree
from srl.networks.layers import HIDDEN_SCALE, activation, dense, flatten


class MLPFeatures(nn.Module):
    """Flatten, then hidden layers."""

    space: Space
    widths: tuple[int, ...]
    activation: str
    layer_norm: bool = False

    @nn.compact
    def __call__(self, observation: Tree) -> Array:
        """Gives [..., the last width]."""
        x = flatten(self.space, observation)
        for width in self.widths:
            x = dense(width, HIDDEN_SCALE)(x)
            x = activation(self.activation)(nn.LayerNorm()(x) if self.layer_norm else x)
        return x
