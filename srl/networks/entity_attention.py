"""Attention over what an agent sees: itself, other agents, boxes, ramps, and what tasks add."""

from __future__ import annotations

from dataclasses import dataclass

from srl.core.errors import UserError
from srl.core.spaces import Space, spaces
from srl.networks.entities import ENTITIES, SELF
from srl.networks.network import Network, PolicyAndValue, unsupported


@dataclass(frozen=True)
class EntityAttention(Network):
    """The network of hide-and-seek (Baker et al., 2020, appendix B).

    `EntityAttention(width=128, memory=256, cell="lstm")` is the published one.

    The value network is omniscient: visibility masks are replaced by `<mask>_spoof`, which marks
    the entities that exist, or by ones.
    """

    width: int = 64
    """Units of the embeddings and of the attention; the layer after pooling has twice as many."""
    heads: int = 4
    """Attention heads, which share the width."""
    lidar_filters: int = 9
    """Filters of the circular convolution over the lidar's rays."""

    def build(self, space: Space, num_outputs: int) -> PolicyAndValue:
        """Gives a policy network that sees what is visible, and a value network that sees all."""
        from srl.networks._entity_attention import EntityAttentionFeatures
        from srl.networks._heads import policy_and_value

        if not self.fits(space):
            raise unsupported(space, f"a Dict with {SELF}, and with any of {', '.join(ENTITIES)}")
        if self.shared:
            raise UserError(
                "network.shared=True: the value of EntityAttention sees what is hidden from the "
                "policy, so they cannot share layers; leave it out"
            )
        if self.width % self.heads:
            raise UserError(f"width={self.width} must be a multiple of heads={self.heads}")

        sizes = (self.width, self.heads, self.lidar_filters)
        seeing = EntityAttentionFeatures(*sizes, omniscient=False)
        omniscient = EntityAttentionFeatures(*sizes, omniscient=True)
        return policy_and_value(space, seeing, omniscient, num_outputs, self)

    @staticmethod
    def fits(space: Space) -> bool:
        """Tells if the entities are observed under the names that this network knows."""
        if not isinstance(space, spaces.Dict):
            return False
        seen = [entity for entity in ENTITIES if entity in space.spaces]
        masked = all(ENTITIES[entity] in space.spaces for entity in seen)
        return SELF in space.spaces and bool(seen) and masked
