"""A multilayer perceptron over everything that is observed, flattened."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from srl.core.errors import UserError
from srl.core.settings import AtLeastOne, Count
from srl.core.spaces import Space
from srl.networks.network import Network

if TYPE_CHECKING:
    from flax import linen


@dataclass(frozen=True)
class MLP(Network):
    """Dense layers for vectors, numbers and categories, or any nesting of them."""

    width: AtLeastOne = 64
    """Units of each hidden layer."""
    depth: Count = 2
    """Number of hidden layers."""
    activation: str = ""
    """Any function of `jax.nn`, such as tanh, relu or silu. By default tanh for policies and relu
    for values: a value of tanh units forgets states that are rare, and then the policy leaves what
    it has learned (docs/algorithms/ppo.md)."""
    widths: tuple[AtLeastOne, ...] = field(default=(), kw_only=True)
    """Units of each hidden layer, such as 400 300, in place of width and depth."""
    value_widths: tuple[AtLeastOne, ...] = field(default=(), kw_only=True)
    """Units of each hidden layer of the value's network, or of critics; by default the policy's."""
    value_activation: str = field(default="", kw_only=True)
    """The activation of the value's network, or of critics; by default `activation`."""

    def features(self, space: Space) -> linen.Module:
        """Gives the policy's hidden layers."""
        from srl.networks.mlp_features import MLPFeatures

        for name in ("value_widths", "value_activation"):
            if self.shared and getattr(self, name):
                raise UserError(
                    f"network.{name} with network.shared: policy and value share their layers; "
                    "leave one out"
                )
        return MLPFeatures(space, self._widths, self.activation or "tanh", self.layer_norm)

    def value_features(self, space: Space) -> linen.Module:
        """Gives the value's hidden layers."""
        from srl.networks.mlp_features import MLPFeatures

        widths = tuple(self.value_widths) or self._widths
        activation = self.value_activation or self.activation or "relu"
        return MLPFeatures(space, widths, activation, self.layer_norm)

    @property
    def _widths(self) -> tuple[int, ...]:
        return tuple(self.widths) or (self.width,) * self.depth
