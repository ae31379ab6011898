"""Attention over sets of entities with masks: other agents, boxes, ramps, units, objects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from srl.core.errors import UserError
from srl.core.settings import AtLeastOne
from srl.core.spaces import Space, is_image
from srl.networks.entities import entity_sets, named_leaves
from srl.networks.network import Network
from srl.networks.policy_and_value import unsupported

if TYPE_CHECKING:
    from flax import linen


@dataclass(frozen=True)
class EntityAttention(Network):
    """The network of hide-and-seek (Baker et al., 2020, appendix B).

    `EntityAttention(width=128, memory=256, cell="lstm")` is the published one.

    It takes any Dict with sets of entities: a Box `NAME` [places, features] with a mask
    `mask_NAME` [places], 1 where there is an entity that the agent sees. All else that is observed
    belongs to the agent itself; `lidar` [rays, channels] goes through a circular convolution.

    The value network and critics look at `mask_NAME_spoof` in place of `mask_NAME` where there is
    one: it marks the entities that exist, seen or not.
    """

    width: AtLeastOne = 64
    """Units of the embeddings and of the attention; the layer after pooling has twice as many."""
    heads: AtLeastOne = 4
    """Attention heads, which share the width."""
    lidar_filters: AtLeastOne = 9
    """Filters of the circular convolution over the lidar's rays."""

    def features(self, space: Space) -> linen.Module:
        """Gives the policy's layers, which attend to visible entities."""
        return self._features(space, omniscient=False)

    def value_features(self, space: Space) -> linen.Module:
        """Gives the value's layers, which attend to all entities that there are."""
        return self._features(space, omniscient=True)

    def _features(self, space: Space, *, omniscient: bool) -> linen.Module:
        from srl.networks.entity_attention_features import EntityAttentionFeatures

        if not self.fits(space):
            form = "a Dict with a Box NAME [places, features] and its mask, mask_NAME [places],"
            raise unsupported(space, f"{form} and without images, or a Dict or Tuple")
        if self.shared:
            raise UserError(
                "network.shared=True: the value of EntityAttention sees what is hidden from the "
                "policy, so they cannot share layers; leave it out"
            )
        if self.width % self.heads:
            raise UserError(f"width={self.width} must be a multiple of heads={self.heads}")

        sizes = (self.width, self.heads, self.lidar_filters)
        return EntityAttentionFeatures(space, *sizes, omniscient)

    @staticmethod
    def fits(space: Space) -> bool:
        """Tells if an observation has sets of entities with masks, and no images."""
        return bool(entity_sets(space)) and not any(map(is_image, named_leaves(space).values()))
