"""The flax module of the multilayer perceptron."""

from __future__ import annotations

import gymnasium
from flax import linen as nn

from srl.networks._layers import HIDDEN_SCALE, activation, dense, flatten
from srl.types import Array, Tree


class MLPFeatures(nn.Module):
    """Flatten, then hidden layers."""

    space: gymnasium.Space
    width: int
    depth: int
    activation: str

    @nn.compact
    def __call__(self, observation: Tree) -> Array:
        """Gives [..., width]."""
        x = flatten(self.space, observation)
        for _ in range(self.depth):
            x = activation(self.activation)(dense(self.width, HIDDEN_SCALE)(x))
        return x
