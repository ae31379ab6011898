"""A multilayer perceptron over everything that is observed, flattened."""

from __future__ import annotations

from dataclasses import dataclass

from srl.networks.network import Network, PolicyAndValue
from srl.spaces import Space


@dataclass(frozen=True)
class MLP(Network):
    """Dense layers for vectors, numbers and categories, or any nesting of them."""

    width: int = 64
    """Units of each hidden layer."""
    depth: int = 2
    """Number of hidden layers."""
    activation: str = "tanh"
    """Any function of `jax.nn`, such as tanh, relu or silu."""

    def build(self, space: Space, num_outputs: int) -> PolicyAndValue:
        """Gives a policy and a value network of the same form."""
        from srl.networks._heads import policy_and_value
        from srl.networks._mlp import MLPFeatures

        features = MLPFeatures(space, self.width, self.depth, self.activation, self.layer_norm)
        return policy_and_value(space, features, features, num_outputs, self)
