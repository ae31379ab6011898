"""The network that fits what is observed."""

from __future__ import annotations

from dataclasses import dataclass

import gymnasium

from srl.networks.cnn import CNN
from srl.networks.entity_attention import EntityAttention
from srl.networks.mlp import MLP
from srl.networks.network import Network, PolicyAndValue


@dataclass(frozen=True)
class AutoNetwork(Network):
    """EntityAttention for entities with masks, CNN for images, MLP otherwise; default sizes."""

    def build(self, space: gymnasium.Space, num_outputs: int) -> PolicyAndValue:
        """Gives the functions of the chosen network."""
        return self.choose(space).build(space, num_outputs)

    def choose(self, space: gymnasium.Space) -> Network:
        """Gives the network's configuration."""
        if EntityAttention.fits(space):
            return EntityAttention(memory=self.memory, cell=self.cell)
        kind = CNN if CNN.fits(space) else MLP
        return kind(memory=self.memory, cell=self.cell)
