"""A multilayer perceptron over everything that is observed, flattened."""

from __future__ import annotations

from dataclasses import dataclass, field

from srl.core.errors import UserError, expect, expect_number
from srl.core.spaces import Space
from srl.networks.network import Network, PolicyAndValue


@dataclass(frozen=True)
class MLP(Network):
    """Dense layers for vectors, numbers and categories, or any nesting of them."""

    width: int = 64
    """Units of each hidden layer."""
    depth: int = 2
    """Number of hidden layers."""
    activation: str = "tanh"
    """Any function of `jax.nn`, such as tanh, relu or silu."""
    widths: tuple[int, ...] = field(default=(), kw_only=True)
    """Units of each hidden layer, such as 400 300, in place of width and depth."""
    value_widths: tuple[int, ...] = field(default=(), kw_only=True)
    """Units of each hidden layer of the value's network, or of critics; by default the policy's."""

    def build(self, space: Space, num_outputs: int) -> PolicyAndValue:
        """Gives a policy and a value network of the same form."""
        from srl.networks._heads import policy_and_value
        from srl.networks._mlp import MLPFeatures

        widths = self.widths or (self.width,) * self.depth
        expect_widths("widths", widths)
        expect_widths("value_widths", self.value_widths)
        if self.shared and self.value_widths:
            raise UserError(
                "network.value_widths with network.shared: policy and value share their layers; "
                "leave one out"
            )
        policy, value = (
            MLPFeatures(space, tuple(each), self.activation, self.layer_norm)
            for each in (widths, self.value_widths or widths)
        )
        return policy_and_value(space, policy, value, num_outputs, self)


def expect_widths(name: str, widths: tuple[int, ...]) -> None:
    """Raises UserError unless these are the units of layers."""
    good = isinstance(widths, tuple | list)
    expect(good, f"network.{name}", widths, "the units of each layer, such as (400, 300)")
    for width in widths:
        expect_number(f"network.{name}", width, 1)
