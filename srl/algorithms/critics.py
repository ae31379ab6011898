"""An ensemble of critics.

The least value by a random subset of the critics is the target of all (REDQ, Chen et al., 2021,
https://arxiv.org/abs/2101.05982); with two of two that is clipped double Q-learning (Fujimoto et
al., 2018, https://arxiv.org/abs/1802.09477).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from srl.algorithms.normalization import ObservationNormalizer
from srl.algorithms.replay import Rows
from srl.algorithms.value_forms import Mean, ValueForm
from srl.core.errors import UserError
from srl.core.lazy import jax, jnp
from srl.core.spaces import spaces
from srl.core.types import Array, Specs, Tree
from srl.networks import Network, PolicyAndValue

_STEPS = 2**32 - 1  # folded into keys, as replays fold the number of the update, which is less


@dataclass(frozen=True)
class ActionCritics:
    """Critics of an observation and an action of bounded numbers."""

    settings: Network
    specs: Specs
    normalizer: ObservationNormalizer
    number: int
    subset: int
    form: ValueForm = field(default_factory=Mean)

    @cached_property
    def network(self) -> PolicyAndValue:
        """The functions of one critic."""
        size = math.prod(self.specs.action.shape or ())
        action = spaces.Box(-1.0, 1.0, (size,), np.float32)
        both = spaces.Dict({"observation": self.specs.observation, "action": action})
        built = self.settings.build(self.normalizer.policy_space, 1, both)
        return built.with_value_outputs(self.form.size)

    def init(self, key: Array) -> Tree:
        """Draws the parameters of all critics, [number, ...]."""
        return _stacked(self.network.init_value, key, self.number)

    def initial_memory(self, batch: int) -> Tree:
        """Gives all critics' memory of nothing, [batch, number, units]; () where there is none."""
        return _memory_of_each(self.network, batch, self.number)

    def memories(self, params: Tree, statistics: Any, rows: Rows, memory: Tree) -> Array:
        """Gives the memory before each row and after the last, [L + 1, S, number, units].

        Of the actions of rows [L, S, ...], too; see `srl.algorithms.sequences`.
        """
        inputs = self._inputs(statistics, rows.observation, rows.action, 2)
        return _memories_of_each(self.network, params, inputs, memory, rows.ended)

    def values(
        self, params: Tree, statistics: Any, observation: Tree, action: Array, memory: Tree = ()
    ) -> Array:
        """Gives the values of actions by all critics, [number, S]; see `outputs`."""
        return self.form.value(self.outputs(params, statistics, observation, action, memory))

    def outputs(
        self, params: Tree, statistics: Any, observation: Tree, action: Array, memory: Tree = ()
    ) -> Array:
        """Gives the outputs of all critics, [number, S, outputs].

        Args:
            params: [number, ...].
            statistics: Of observations.
            observation: [S, ...].
            action: [S, ...].
            memory: [S, number, units], before these rows; () without memory.
        """
        inputs = self._inputs(statistics, observation, action, 1)
        return _outputs_of_each(self.network, params, inputs, memory)

    def _inputs(
        self, statistics: Any, observation: Tree, action: Array, axes: int
    ) -> dict[str, Tree]:
        """The network's inputs, with so many leading axes."""
        return {
            "observation": self.normalizer.normalize(statistics, observation),
            "action": action.reshape(*action.shape[:axes], -1),
        }

    def least(self, outputs: Array, key: Array) -> Array:
        """Gives the outputs of the critic of the least value in a random subset of them.

        Args:
            outputs: [number, S, outputs].
            key: Chooses the subset.

        Returns:
            [S, outputs].
        """
        drawn = _drawn(outputs, key, self.subset)
        least = jnp.argmin(self.form.value(drawn), axis=0)
        one_hot = jnp.arange(self.subset)[:, None] == least
        return jnp.sum(jnp.where(one_hot[..., None], drawn, 0.0), axis=0)


@dataclass(frozen=True)
class ChoiceCritics:
    """Critics of an observation, which give the values of all actions."""

    network: PolicyAndValue
    """A network with as many outputs of its value as there are actions."""
    normalizer: ObservationNormalizer
    number: int

    def init(self, key: Array) -> Tree:
        """Draws the parameters of all critics, [number, ...]."""
        return _stacked(self.network.init_value, key, self.number)

    def initial_memory(self, batch: int) -> Tree:
        """Gives all critics' memory of nothing, [batch, number, units]; () where there is none."""
        return _memory_of_each(self.network, batch, self.number)

    def memories(self, params: Tree, statistics: Any, rows: Rows, memory: Tree) -> Array:
        """Gives the memory before each row and after the last, [L + 1, S, number, units].

        Actions have no part in it; see `srl.algorithms.sequences`.
        """
        inputs = self.normalizer.normalize(statistics, rows.observation)
        return _memories_of_each(self.network, params, inputs, memory, rows.ended)

    def values(self, params: Tree, statistics: Any, observation: Tree, memory: Tree = ()) -> Array:
        """Gives the values of all actions by all critics, [number, S, actions].

        The memory before these rows is [S, number, units], or () without memory.
        """
        inputs = self.normalizer.normalize(statistics, observation)
        return _outputs_of_each(self.network, params, inputs, memory)


def min_of_subset(values: Array, key: Array, subset: int) -> Array:
    """Gives the least value by a random subset of the critics: [critics, ...] to [...]."""
    return jnp.min(_drawn(values, key, subset), axis=0)


def _drawn(of_critics: Array, key: Array, subset: int) -> Array:
    """Draws a random subset of the critics: [critics, ...] to [subset, ...]."""
    return of_critics[jax.random.permutation(key, len(of_critics))[:subset]]


def step_key(state: Any, step: Array) -> Array:
    """Gives the random key of a gradient step; replays draw by keys of slots, which are others."""
    key = jax.random.fold_in(jax.random.wrap_key_data(state.key), _STEPS)
    return jax.random.fold_in(jax.random.fold_in(key, state.n), step)


def expect_critics_fit(config: Any) -> None:
    """Raises UserError where there are fewer critics than make a target."""
    if config.subset > config.critics:
        raise UserError(
            f"{type(config).__name__} with subset={config.subset} of critics={config.critics}: "
            "give a subset that is no larger"
        )


def expect_no_memory(config: Any) -> None:
    """Raises UserError where the network has memory."""
    if config.network.memory:
        raise UserError(
            f"{type(config).__name__} learns from single transitions, and the network has memory: "
            "take R2D2 or PQN for discrete actions, SAC, TD3 or PPO for others"
        )


def _memory_of_each(network: PolicyAndValue, batch: int, number: int) -> Tree:
    """The memory of nothing of critics, [batch, number, units]."""
    memory = network.initial_memory(batch)
    return jax.tree.map(lambda x: jnp.repeat(x[:, None], number, axis=1), memory)


def _memories_of_each(
    network: PolicyAndValue, params: Tree, inputs: Tree, memory: Tree, ended: Array
) -> Array:
    """The memories of critics before each row and after the last, [L + 1, S, number, units]."""
    of = lambda one, memory: network.value_memories(one, inputs, memory, ended)  # noqa: E731
    return jax.vmap(of, (0, 1), 2)(params, memory)


def _outputs_of_each(network: PolicyAndValue, params: Tree, inputs: Tree, memory: Tree) -> Array:
    """The outputs of critics, [number, S, outputs]."""
    of = lambda one, memory: network.value_outputs(one, inputs, memory)  # noqa: E731
    return jax.vmap(of, (0, 1))(params, memory)


def _stacked(init: Callable[[Array], Tree], key: Array, number: int) -> Tree:
    drawn = [init(key) for key in jax.random.split(key, number)]
    return jax.tree.map(lambda *x: jnp.stack(x), *drawn)
