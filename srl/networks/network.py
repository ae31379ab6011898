"""What a network is to an algorithm: a configuration that builds two pure functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import gymnasium
from gymnasium import spaces

from srl.errors import UserError
from srl.lazy import jax, jnp
from srl.types import Array, Tree

if TYPE_CHECKING:
    from flax import linen


@dataclass(frozen=True)
class Network:
    """Base of the network configurations."""

    def build(self, space: gymnasium.Space, num_outputs: int) -> PolicyAndValue:
        """Gives the functions for observations of `space` and a policy of `num_outputs` numbers."""
        raise NotImplementedError


@dataclass(frozen=True)
class PolicyAndValue:
    """Two networks that share nothing: only the policy leaves the learner.

    Both take observations with any number of leading axes, already normalised.
    """

    space: gymnasium.Space
    policy_module: linen.Module
    """Observation to [..., num_outputs]."""
    value_module: linen.Module
    """Observation to [..., 1]."""

    def init(self, key: Array) -> dict[str, Tree]:
        """Draws the parameters, under the names `policy` and `value`."""
        observation = example(self.space)
        policy_key, value_key = jax.random.split(key)
        return {
            "policy": self.policy_module.lazy_init(policy_key, observation)["params"],
            "value": self.value_module.lazy_init(value_key, observation)["params"],
        }

    def policy(self, params: Tree, observation: Tree, memory: Tree = ()) -> tuple[Array, Tree]:
        """Gives the action distribution's numbers, [..., num_outputs], and the next memory."""
        return self.policy_module.apply({"params": params}, observation), memory

    def value(self, params: Tree, observation: Tree) -> Array:
        """Gives the value of each observation, [...]."""
        output: Any = self.value_module.apply({"params": params}, observation)
        return output[..., 0]


def example(space: gymnasium.Space) -> Tree:
    """Gives the shapes and dtypes of one observation, without leading axes."""
    if isinstance(space, spaces.Dict):
        return {name: example(part) for name, part in space.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(example(part) for part in space)
    if space.shape is None or space.dtype is None:
        raise unsupported(space, "Box, Discrete, MultiDiscrete, MultiBinary, and Dict or Tuple")
    dtype = jnp.int32 if isinstance(space, spaces.Discrete | spaces.MultiDiscrete) else jnp.float32
    return jax.ShapeDtypeStruct(space.shape, dtype)


def unsupported(space: gymnasium.Space, supported: str) -> UserError:
    """Says which spaces there is a network for."""
    return UserError(f"no network for observations of {space}; supported: {supported} of these")
