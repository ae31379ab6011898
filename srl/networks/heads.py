"""The layers after a network's features: a recurrent one, if it has memory, and a head."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from srl.core.errors import UserError, reported
from srl.core.types import Array, Tree
from srl.networks.layers import HIDDEN_SCALE, dense, orthogonal


class Headed(nn.Module):
    """Features, memory where there is any, and a linear head."""

    features: nn.Module
    memory: int
    cell: str
    after_memory: int
    num_outputs: int
    head_scale: float

    @nn.compact
    def __call__(
        self, observation: Tree, memory: Tree = (), ended: Array | None = None
    ) -> tuple[Array, Tree, Array]:
        """See PolicyAndValue."""
        x = self._features_of(observation)
        if self.memory:
            inputs = x
            cell = CELLS[self.cell](self.memory, self.after_memory > 0, name="memory")
            x, memory = cell(x, memory, ended)
            if self.after_memory:
                both = jnp.concatenate([inputs, x], axis=-1)
                x = nn.relu(dense(self.after_memory, name="after_memory")(both))
        if not self.num_outputs:
            return x, memory, x
        return dense(self.num_outputs, self.head_scale, name="head")(x), memory, x

    def _features_of(self, observation: Tree) -> Array:
        if not self.is_initializing():
            return self.features(observation)
        forms = jax.tree.map(lambda x: x.shape, observation)  # of one row of one slot
        expected = f"it takes observations of shape {forms} here and gives [1, 1, units]"
        with reported("the module of a network's features", expected):
            x = self.features(observation)
        if jnp.shape(x)[:-1] != (1, 1):
            raise UserError(
                f"the module of a network's features gives {jnp.shape(x)} for observations of "
                f"shape {forms}; expected [1, 1, units]: it keeps leading axes"
            )
        return x


class Streams(nn.Module):
    """Groups of outputs, each with a hidden layer as wide as a network's features."""

    network: nn.Module
    """The policy's module of a network built with 0 outputs."""
    sizes: tuple[int, ...]
    """Outputs of each group; all are joined, [..., the sum]."""

    @nn.compact
    def __call__(
        self, observation: Tree, memory: Tree = (), ended: Array | None = None
    ) -> tuple[Array, Tree, Array]:
        """See PolicyAndValue."""
        _, memory, x = self.network(observation, memory, ended)
        groups = []
        for i, size in enumerate(self.sizes):
            hidden = nn.relu(dense(x.shape[-1], HIDDEN_SCALE, name=f"hidden_{i}")(x))
            groups.append(dense(size, 0.01, name=f"head_{i}")(hidden))
        return jnp.concatenate(groups, axis=-1), memory, x


class GatedRecurrentUnit(nn.Module):
    """A layer with memory (Cho et al., 2014, with the reset gate applied after the product)."""

    units: int
    ratios: bool = False

    @nn.compact
    def __call__(self, x: Array, memory: Array, ended: Array) -> tuple[Array, Array]:
        """Takes x [L, B, features]; gives its outputs and the memories, see PolicyAndValue."""
        # What does not depend on memory is computed for all rows at once.
        inputs = dense(3 * self.units, 1.0, "inputs", bias=_warped(0, 1, 0, ratios=self.ratios))(x)
        shape, gates = (self.units, self.units), ("reset", "keep", "new")
        recurrent = jnp.concatenate(
            [self.param(gate, orthogonal(1.0), shape) for gate in gates], axis=-1
        )

        def step(memory: Array, row: tuple[Array, Array]) -> tuple[Array, tuple[Array, Array]]:
            inputs, ended = row
            reset, keep, new = jnp.split(inputs, 3, axis=-1)
            from_reset, from_keep, from_new = jnp.split(memory @ recurrent, 3, axis=-1)
            keep = jax.nn.sigmoid(keep + from_keep)
            new = jnp.tanh(new + jax.nn.sigmoid(reset + from_reset) * from_new)
            output = keep * memory + (1 - keep) * new
            following = jnp.where(ended[:, None], 0.0, output)
            return following, (output, following)

        _, (outputs, following) = jax.lax.scan(step, memory, (inputs, ended))
        return outputs, jnp.concatenate([memory[None], following])


class LongShortTermMemory(nn.Module):
    """A layer with memory (Hochreiter and Schmidhuber, 1997), whose outputs are layer-normalised.

    A row of memory is the last output and then the cell, twice `units` numbers.
    """

    units: int
    ratios: bool = False

    @nn.compact
    def __call__(self, x: Array, memory: Array, ended: Array) -> tuple[Array, Array]:
        """Takes x [L, B, features]; gives its outputs and the memories, see PolicyAndValue."""
        inputs = dense(
            4 * self.units, 1.0, "inputs", bias=_warped(-1, 1, 0, 0, ratios=self.ratios)
        )(x)
        shape, gates = (self.units, self.units), ("input", "forget", "new", "output")
        recurrent = jnp.concatenate(
            [self.param(gate, orthogonal(1.0), shape) for gate in gates], axis=-1
        )

        def step(memory: Array, row: tuple[Array, Array]) -> tuple[Array, tuple[Array, Array]]:
            inputs, ended = row
            output, cell = jnp.split(memory, 2, axis=-1)
            enter, forget, new, leave = jnp.split(inputs + output @ recurrent, 4, axis=-1)
            cell = jax.nn.sigmoid(forget + 1) * cell + jax.nn.sigmoid(enter) * jnp.tanh(new)
            output = jax.nn.sigmoid(leave) * jnp.tanh(cell)
            both = jnp.concatenate([output, cell], axis=-1)
            following = jnp.where(ended[:, None], 0.0, both)
            return following, (output, following)

        _, (outputs, following) = jax.lax.scan(step, memory, (inputs, ended))
        return nn.LayerNorm()(outputs), jnp.concatenate([memory[None], following])


_LONGEST = 100.0  # steps that some units remember from the start


def _warped(*signs: int, ratios: bool) -> nn.initializers.Initializer:
    """Biases with which units forget after 1 to `_LONGEST` steps (Tallec and Ollivier, 2018).

    Those of an LSTM, which adds 1 to its forget gate, forget after 4 to 270 steps.

    Without, half of what is remembered is gone after each step, and no gradient reaches far back.

    Args:
        signs: Of each gate: 1 keeps, -1 lets in, 0 does neither.
        ratios: True if the numbers of steps have equal ratios, not equal differences.
    """

    def biases(key: Array, shape: Any, dtype: Any = jnp.float32, out_sharding: Any = None) -> Array:
        number = shape[0] // len(signs)
        if ratios:
            times = jnp.linspace(0.0, jnp.log(_LONGEST), number, dtype=dtype)
        else:
            times = jnp.log(jnp.linspace(1.0, _LONGEST, number, dtype=dtype))
        return jnp.concatenate([sign * times for sign in signs])

    return biases


CELLS = {"gru": GatedRecurrentUnit, "lstm": LongShortTermMemory}
