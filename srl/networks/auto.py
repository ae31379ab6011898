"""The network that fits what is observed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from srl.networks.cnn import CNN
from srl.networks.entity_attention import EntityAttention
from srl.networks.mlp import MLP
from srl.networks.network import Network, PolicyAndValue
from srl.spaces import Space


@dataclass(frozen=True)
class AutoNetwork(Network):
    """EntityAttention for entities with masks, CNN for images, MLP otherwise."""

    mlp: MLP = field(default_factory=MLP)
    """The perceptron; memory and layer normalisation are those of the whole."""

    def build(self, space: Space, num_outputs: int) -> PolicyAndValue:
        """Gives the functions of the chosen network."""
        return self.choose(space).build(space, num_outputs)

    def choose(self, space: Space) -> Network:
        """Gives the network's configuration."""
        kind: Network = EntityAttention() if EntityAttention.fits(space) else self.mlp
        if not EntityAttention.fits(space) and CNN.fits(space):
            kind = CNN()
        common = {name: getattr(self, name) for name in ("memory", "cell", "layer_norm", "shared")}
        return replace(kind, **common)
