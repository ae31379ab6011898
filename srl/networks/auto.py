"""The network that fits what is observed."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING

from srl.core.errors import UserError
from srl.core.settings import AtLeastOne
from srl.core.spaces import (
    SMALLEST_GRID,
    SMALLEST_PICTURE,
    Space,
    image_sides,
    is_image,
    space_tree,
)
from srl.core.tree import leaves_of
from srl.networks.cnn import CNN
from srl.networks.entities import entity_sets, mask_of, named_leaves, sets_without_mask
from srl.networks.entity_attention import EntityAttention
from srl.networks.mlp import MLP
from srl.networks.network import Network

if TYPE_CHECKING:
    from flax import linen


_GRID = CNN(filters=(16,), kernels=(3,), strides=(1,), width=128)


@dataclass(frozen=True)
class AutoNetwork(Network):
    """EntityAttention for entities with masks, CNN for images, MLP otherwise.

    Images with a side below 32, grids of small worlds, get the one convolution of MinAtar's
    authors (Young and Tian, 2019) in place of Atari's three, and those with a side below 8 the
    perceptron.
    """

    mlp: MLP = field(default_factory=MLP)
    """The perceptron; memory and layer normalisation belong to the whole network."""
    widths: tuple[AtLeastOne, ...] = field(default=(), kw_only=True)
    """Units of each hidden layer of the perceptron, such as 400 300; by default those of mlp."""
    value_widths: tuple[AtLeastOne, ...] = field(default=(), kw_only=True)
    """Units of each hidden layer of the value's perceptron, or of critics; by default the
    policy's."""

    def features(self, space: Space) -> linen.Module:
        """Gives the policy's layers of the network that fits its observations."""
        return self.choose(space).features(space)

    def value_features(self, space: Space) -> linen.Module:
        """Gives the value's layers of the network that fits its observations."""
        return self.choose(space).value_features(space)

    def remarks(self, space: Space) -> list[str]:
        """Names what looks like sets of entities, and is not attended to."""
        kind, leaves = type(self.choose(space)), named_leaves(space)

        def line(name: str, way: str) -> str:
            shape = list(leaves[name].shape or ())
            return f"the network {kind.__name__} takes {name} {shape} as one vector: {way}"

        masked = () if kind is EntityAttention else entity_sets(space)
        why, way = "attention does not go with images", "for attention to a set of entities observe"
        return [line(name, why) for name in masked] + [
            line(name, f"{way} their mask, {mask_of(name)} {list((leaves[name].shape or ())[:1])}")
            for name in sets_without_mask(space)
        ]

    def choose(self, space: Space) -> Network:
        """Gives the network's configuration."""
        images = [leaf for leaf in leaves_of(space_tree(space)) if is_image(leaf)]
        side = max((min(image_sides(image)) for image in images), default=0)
        kind: Network = self.mlp
        if EntityAttention.fits(space):
            kind = EntityAttention()
        elif side >= SMALLEST_GRID:
            kind = CNN() if side >= SMALLEST_PICTURE else _GRID
        own = {"widths": self.widths, "value_widths": self.value_widths}
        given = {name: widths for name, widths in own.items() if widths}
        if given and not isinstance(kind, MLP):
            raise UserError(
                f"network.{next(iter(given))} is of a perceptron, and what is observed gets the "
                f"network {type(kind).__name__}: give network={type(kind).__name__}(width=...)"
            )
        kind = replace(kind, **given)
        common = {item.name: getattr(self, item.name) for item in fields(Network)}
        return replace(kind, **common)
