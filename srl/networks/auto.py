"""The network that fits what is observed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from srl.core.errors import UserError
from srl.core.spaces import Space
from srl.networks.cnn import CNN
from srl.networks.entities import mask_of, named_leaves, sets_without_mask
from srl.networks.entity_attention import EntityAttention
from srl.networks.mlp import MLP
from srl.networks.network import Network, PolicyAndValue


@dataclass(frozen=True)
class AutoNetwork(Network):
    """EntityAttention for entities with masks, CNN for images, MLP otherwise."""

    mlp: MLP = field(default_factory=MLP)
    """The perceptron; memory and layer normalisation belong to the whole network."""
    widths: tuple[int, ...] = field(default=(), kw_only=True)
    """Units of each hidden layer of the perceptron, such as 400 300; by default those of mlp."""
    value_widths: tuple[int, ...] = field(default=(), kw_only=True)
    """Units of each hidden layer of the value's perceptron, or of critics; by default the
    policy's."""

    def build(self, space: Space, num_outputs: int) -> PolicyAndValue:
        """Gives the functions of the chosen network."""
        return self.choose(space).build(space, num_outputs)

    def remarks(self, space: Space) -> list[str]:
        """Names what looks like sets of entities, and is not attended to."""
        missing, leaves = sets_without_mask(space), named_leaves(space)
        name = type(self.choose(space)).__name__
        return [
            f"the network {name} takes {leaf} {list(leaves[leaf].shape or ())} as one vector: for "
            f"attention to a set of entities observe their mask, {mask_of(leaf)} "
            f"{list((leaves[leaf].shape or ())[:1])}"
            for leaf in missing
        ]

    def choose(self, space: Space) -> Network:
        """Gives the network's configuration."""
        kind: Network = EntityAttention() if EntityAttention.fits(space) else self.mlp
        if not EntityAttention.fits(space) and CNN.fits(space):
            kind = CNN()
        own = {"widths": self.widths, "value_widths": self.value_widths}
        given = {name: widths for name, widths in own.items() if widths}
        if given and not isinstance(kind, MLP):
            raise UserError(
                f"network.{next(iter(given))} is of a perceptron, and what is observed gets the "
                f"network {type(kind).__name__}: give network={type(kind).__name__}(width=...)"
            )
        kind = replace(kind, **given)
        common = {name: getattr(self, name) for name in ("memory", "cell", "layer_norm", "shared")}
        return replace(kind, **common)
