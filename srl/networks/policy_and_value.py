"""The functions of a policy and a value network, as algorithms call them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from srl.core.errors import UserError
from srl.core.lazy import jax, jnp
from srl.core.spaces import Space, space_tree, spaces
from srl.core.tree import map_tree
from srl.core.types import Array, Tree

if TYPE_CHECKING:
    from flax import linen


@dataclass(frozen=True)
class PolicyAndValue:
    """A policy and a value network, of which only the policy leaves the learner.

    They share no parameters, or all but the last layer: then the policy has the common ones.

    Observations are already normalised. Without memory they may have any leading axes. With memory
    they are [B, ...] for one step and [L, B, ...] for a sequence; memory starts as zeros.

    A module is a function of (observations, memory, ended) like `policy_sequence`; it gives
    outputs [L, B, ...], memories [L + 1, B, units], before each row and after the last, and the
    features [L, B, ...] that the last layer computes outputs from.
    """

    space: Space
    """The space of the policy's observations."""
    policy_module: linen.Module
    """The module whose outputs are the policy's, [..., num_outputs]."""
    value_module: linen.Module
    """The module whose output is the value, [..., 1]; a function of the policy's features alone,
    where they are shared."""
    memory: int = 0
    """Numbers in the memory of each of the two, or in the one that they share; 0: none."""
    shared: bool = False
    """True if they share all but the last layer."""
    value_space: Space | None = None
    """The space of the value's observations; None where it is the policy's."""

    def init(self, key: Array) -> dict[str, Tree]:
        """Draws the parameters, under the names `policy` and `value`."""
        return {"policy": self.init_policy(key), "value": self.init_value(key)}

    def init_policy(self, key: Array) -> Tree:
        """Draws the policy's parameters, those that `init` gives with this key."""
        policy_key, _ = jax.random.split(key)
        return _drawn(self.policy_module, policy_key, *self._row(self.space))

    def init_value(self, key: Array) -> Tree:
        """Draws the value's parameters, those that `init` gives with this key."""
        _, value_key = jax.random.split(key)
        inputs = self._row(self.space if self.value_space is None else self.value_space)
        if self.shared:
            policy = jax.eval_shape(self.init_policy, key)
            *_, features = jax.eval_shape(partial(self._apply, self.policy_module), policy, *inputs)
            inputs = (features,)
        return _drawn(self.value_module, value_key, *inputs)

    def _row(self, space: Space) -> tuple[Any, ...]:
        """Gives the shapes of a module's inputs, for one row of one slot."""
        rows = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct((1, 1, *x.shape), x.dtype), example(space)
        )
        return rows, self.initial_memory(1), jnp.zeros((1, 1), bool)

    def with_value_outputs(self, number: int) -> PolicyAndValue:
        """Gives the same with several outputs of the value, such as those of a distribution.

        Raises:
            UserError: If the value's module has not the fields of those that srl builds.
        """
        if number == 1:
            return self
        module: Any = self.value_module
        if not {"num_outputs", "head_scale"} <= set(vars(module)):
            raise UserError(
                f"the value's module {type(module).__name__} has one output, and {number} are "
                "needed, for atoms or actions: give it the fields num_outputs and head_scale, or "
                "take atoms=1"
            )
        # Small last layers give distributions that are nearly even.
        return replace(self, value_module=module.clone(num_outputs=number, head_scale=0.01))

    def value_outputs(self, params: Tree, observation: Tree, memory: Tree = ()) -> Array:
        """Gives the outputs of a value without shared layers, [..., outputs].

        With memory it takes one step: observations [B, ...], and memory before them, [B, units].
        """
        if not self.memory:
            return self._apply(self.value_module, params, observation)[0]
        return self._one_row(self.value_module, params, observation, memory)[0]

    def value_memories(self, params: Tree, observation: Tree, memory: Tree, ended: Array) -> Array:
        """Gives the memories of a value without shared layers; see `policy_memories`."""
        return self._apply(self.value_module, params, observation, memory, ended)[1]

    def initial_memory(self, batch: int) -> Tree:
        """Gives the memory of a network at the start of an episode."""
        return jnp.zeros((batch, self.memory)) if self.memory else ()

    def policy(self, params: Tree, observation: Tree, memory: Tree = ()) -> tuple[Array, Tree]:
        """Gives the action distribution's numbers, [..., num_outputs], and the next memory."""
        if not self.memory:
            return self.policy_sequence(params, observation), memory
        return self._one_row(self.policy_module, params, observation, memory)

    def policy_sequence(
        self, params: Tree, observation: Tree, memory: Tree = (), ended: Array | None = None
    ) -> Array:
        """Gives the action distribution's numbers of each row.

        Args:
            params: Of the policy.
            observation: [L, B, ...].
            memory: [B, units], before the first row.
            ended: bool [L, B]; after a row where it is set, memory starts anew. Only a network
                with memory needs it.
        """
        return self._apply(self.policy_module, params, observation, memory, ended)[0]

    def policy_memories(self, params: Tree, observation: Tree, memory: Tree, ended: Array) -> Array:
        """Gives the policy's memories before each row and after the last, [L + 1, B, units].

        See `policy_sequence` for the arguments.
        """
        return self._apply(self.policy_module, params, observation, memory, ended)[1]

    def value_sequence(
        self, params: Tree, observation: Tree, memory: Tree = (), ended: Array | None = None
    ) -> tuple[Array, Tree]:
        """Gives the value of each row [L, B], and the memory before it [L, B, units].

        Args:
            params: {"policy", "value"}; of the policy only where layers are shared.
            observation: [L, B, ...].
            memory: [B, units], of the network that has it: of the policy, where layers are shared.
            ended: As for `policy_sequence`.
        """
        if self.shared:
            inputs = params["policy"], observation, memory, ended
            _, memories, features = self._apply(self.policy_module, *inputs)
            value = self._value_of(params, features)
        else:
            inputs = params["value"], observation, memory, ended
            outputs, memories, _ = self._apply(self.value_module, *inputs)
            value = outputs[..., 0]
        return value, jax.tree.map(lambda x: x[:-1], memories)

    def both_sequences(
        self,
        params: Tree,
        observation: Tree,
        value_observation: Tree,
        memory: Mapping[str, Tree],
        ended: Array,
    ) -> tuple[Array, Array]:
        """Gives what `policy_sequence` and `value_sequence` do; one pass where layers are shared.

        Args:
            params: {"policy", "value"}.
            observation: [L, B, ...], the policy's.
            value_observation: [L, B, ...], the value's, which does not count where layers are
                shared.
            memory: {"policy", "value"}, before the first row; of the policy alone where layers are
                shared.
            ended: As for `policy_sequence`.
        """
        if not self.shared:
            outputs = self.policy_sequence(params["policy"], observation, memory["policy"], ended)
            value = self.value_sequence(params, value_observation, memory["value"], ended)[0]
            return outputs, value
        inputs = params["policy"], observation, memory["policy"], ended
        outputs, _, features = self._apply(self.policy_module, *inputs)
        return outputs, self._value_of(params, features)

    def _value_of(self, params: Tree, features: Array) -> Array:
        return self._apply(self.value_module, params["value"], features)[..., 0]

    def _one_row(
        self, module: linen.Module, params: Tree, observation: Tree, memory: Tree
    ) -> tuple[Array, Tree]:
        """The outputs of a module with memory, for one step, and the memory after it."""
        row = jax.tree.map(lambda x: x[None], observation)
        going_on = jnp.zeros((1, memory.shape[0]), bool)
        outputs, memories, _ = self._apply(module, params, row, memory, going_on)
        return outputs[0], memories[1]

    def _apply(self, module: linen.Module, params: Tree, *inputs: Any) -> Any:
        return module.apply({"params": params}, *inputs)


def _drawn(module: linen.Module, key: Array, *inputs: Any) -> Tree:
    """Draws the parameters of a module; UserError if it has other variables, too."""
    variables = module.lazy_init(key, *inputs)
    if others := sorted(set(variables) - {"params"}):
        raise UserError(
            f"{type(module).__name__} has {', '.join(others)} beside parameters, as batch "
            "normalisation has: networks may have parameters alone, so take nn.LayerNorm"
        )
    return variables["params"]


def example(space: Space) -> Tree:
    """Gives the shapes and dtypes of one observation, without leading axes."""
    return map_tree(_example, space_tree(space))


def _example(leaf: Space) -> Array:
    if leaf.shape is None or leaf.dtype is None:
        raise unsupported(leaf, "Box, Discrete, MultiDiscrete, MultiBinary, and Dict or Tuple")
    dtype = jnp.int32 if isinstance(leaf, spaces.Discrete | spaces.MultiDiscrete) else jnp.float32
    return jax.ShapeDtypeStruct(leaf.shape, dtype)


def unsupported(space: Space, supported: str) -> UserError:
    """The error for a space that has no network."""
    return UserError(f"no network for observations of {space}; supported: {supported} of these")
