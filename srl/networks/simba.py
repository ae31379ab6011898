"""SimBa (Lee et al., 2024, https://arxiv.org/abs/2410.09754): residual blocks for large critics."""

from __future__ import annotations

from dataclasses import dataclass, field

from srl.core.errors import UserError, expect_number
from srl.core.spaces import Space
from srl.networks.network import Network, PolicyAndValue


@dataclass(frozen=True)
class SimBa(Network):
    """Residual blocks over everything that is observed, flattened, for vectors and categories.

    A linear layer embeds the observation; a block adds two layers, of four times the width and of
    the width, of what it gets, normalised; a last normalisation comes before the head. The paper
    has `SimBa(width=128, blocks=1, value_width=512, value_blocks=2)` for SAC, and standardised
    observations (`normalize_observations=True`). Layers are always normalised.
    """

    width: int = 128
    """Units of the policy's embedding and blocks."""
    blocks: int = 1
    """The policy's blocks."""
    value_width: int = field(default=512, kw_only=True)
    """Units of the embedding and the blocks of the value, or of critics."""
    value_blocks: int = field(default=2, kw_only=True)
    """Blocks of the value, or of critics."""

    def build(self, space: Space, num_outputs: int) -> PolicyAndValue:
        """Gives a policy and a value network of the same form."""
        from srl.networks._heads import policy_and_value
        from srl.networks._simba import SimBaFeatures

        for name in ("width", "blocks", "value_width", "value_blocks"):
            expect_number(f"network.{name}", getattr(self, name), 1)
        if self.shared:
            raise UserError(
                "network.shared=True: policy and value of SimBa differ in size; leave it out, or "
                "take MLP"
            )
        policy = SimBaFeatures(space, self.width, self.blocks)
        value = SimBaFeatures(space, self.value_width, self.value_blocks)
        return policy_and_value(space, policy, value, num_outputs, self)
