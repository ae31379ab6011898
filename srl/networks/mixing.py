"""The flax module of QMIX."""

from __future__ import annotations

import jax.numpy as jnp
from flax import linen as nn

from srl.core.spaces import Space
from srl.core.types import Array, Tree
from srl.networks.layers import HIDDEN_SCALE, dense, flatten


class Mixing(nn.Module):
    """Mixes values by a layer of elu units, with weights that networks give of the state.

    Rashid et al. (2018), figure 2; weights by two layers, as in PyMARL. Absolute values make the
    result rise with each of the values.
    """

    space: Space
    width: int
    weights_width: int

    @nn.compact
    def __call__(self, values: Array, state: Tree) -> Array:
        """Takes values [..., A] and the parts of the state [..., parts, ...]; gives [...]."""
        state = flatten(self.space, state).reshape(*values.shape[:-1], -1)

        def weights(name: str, units: int, size: int, scale: float = 1.0) -> Array:
            hidden = nn.relu(dense(units, HIDDEN_SCALE, name=f"{name}_hidden")(state))
            return dense(size, scale, name=name)(hidden)

        agents, units = values.shape[-1], self.weights_width
        first = jnp.abs(weights("first", units, agents * self.width))
        first = first.reshape(*first.shape[:-1], agents, self.width)
        bias = dense(self.width, 1.0, name="bias")(state)
        hidden = nn.elu(jnp.einsum("...a,...ah->...h", values, first) + bias)
        last = jnp.abs(weights("last", units, self.width))
        value = weights("value", self.width, 1)[..., 0]
        return jnp.sum(hidden * last, axis=-1) + value
