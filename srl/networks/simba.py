"""SimBa (Lee et al., 2024, https://arxiv.org/abs/2410.09754): residual blocks for large critics."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from srl.core.errors import UserError
from srl.core.settings import AtLeastOne
from srl.core.spaces import Space
from srl.networks.network import Network

if TYPE_CHECKING:
    from flax import linen


@dataclass(frozen=True)
class SimBa(Network):
    """Residual blocks over everything that is observed, flattened, for vectors and categories.

    A linear layer embeds the observation; a block adds two layers, of four times the width and of
    the width, of what it gets, normalised; a last normalisation comes before the head. The paper
    has `SimBa(width=128, blocks=1, value_width=512, value_blocks=2)` for SAC, and standardised
    observations (`normalize_observations=True`). Layers are always normalised.
    """

    width: AtLeastOne = 128
    """Units of the policy's embedding and blocks."""
    blocks: AtLeastOne = 1
    """The policy's blocks."""
    value_width: AtLeastOne = field(default=512, kw_only=True)
    """Units of the embedding and the blocks of the value, or of critics."""
    value_blocks: AtLeastOne = field(default=2, kw_only=True)
    """Blocks of the value, or of critics."""

    def features(self, space: Space) -> linen.Module:
        """Gives the policy's blocks."""
        from srl.networks.simba_features import SimBaFeatures

        if self.shared:
            raise UserError(
                "network.shared=True: policy and value of SimBa differ in size; leave it out, or "
                "take MLP"
            )
        return SimBaFeatures(space, self.width, self.blocks)

    def value_features(self, space: Space) -> linen.Module:
        """Gives the value's blocks."""
        from srl.networks.simba_features import SimBaFeatures

        return SimBaFeatures(space, self.value_width, self.value_blocks)
