"""The flax modules of SimBa."""

from __future__ import annotations

from flax import linen as nn

from srl.core.spaces import Space
from srl.core.types import Array, Tree
from srl.networks.layers import HIDDEN_SCALE, dense, flatten


class SimBaFeatures(nn.Module):
    """Flatten, embed, residual blocks, and a last normalisation."""

    space: Space
    width: int
    blocks: int

    @nn.compact
    def __call__(self, observation: Tree) -> Array:
        """Gives [..., width]."""
        x = dense(self.width, 1.0)(flatten(self.space, observation))
        for _ in range(self.blocks):
            hidden = nn.relu(dense(4 * self.width, HIDDEN_SCALE)(nn.LayerNorm()(x)))
            x = x + dense(self.width, HIDDEN_SCALE)(hidden)
        return nn.LayerNorm()(x)
