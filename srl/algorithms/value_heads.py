"""The head of a network of action values."""

from __future__ import annotations

from dataclasses import dataclass, field

from srl.algorithms.value_forms import Mean, ValueForm
from srl.core.lazy import jnp
from srl.core.types import Array


@dataclass(frozen=True)
class ValueHead:
    """The value of each action; dueling (Wang et al., 2016, https://arxiv.org/abs/1511.06581)."""

    actions: int
    form: ValueForm = field(default_factory=Mean)
    dueling: bool = False
    """True if the outputs are the state's value and the advantages of actions."""

    @property
    def streams(self) -> tuple[int, ...]:
        """The numbers of the network's outputs, with a hidden layer for each if they are two."""
        advantages = self.actions * self.form.size
        return (self.form.size, advantages) if self.dueling else (advantages,)

    def parts(self, outputs: Array) -> Array:
        """Gives each action's part of the outputs, [..., actions, size of the form]."""
        parts = outputs.reshape(*outputs.shape[:-1], -1, self.form.size)
        if not self.dueling:
            return parts
        value, advantage = parts[..., :1, :], parts[..., 1:, :]
        return value + advantage - jnp.mean(advantage, axis=-2, keepdims=True)

    def values(self, outputs: Array) -> Array:
        """Gives the values of actions, [..., actions], of outputs [..., outputs]."""
        return self.form.value(self.parts(outputs))


def chosen(values: Array, action: Array) -> Array:
    """Gives the value of the action taken: [..., actions] and [...] to [...]."""
    # A sum over one-hot rows: its gradient needs no scatter, which is slow on CPU.
    one_hot = action[..., None] == jnp.arange(values.shape[-1])
    return jnp.sum(jnp.where(one_hot, values, 0.0), axis=-1)


def of_action(parts: Array, action: Array) -> Array:
    """Gives the part of the action taken: [..., actions, size] and [...] to [..., size]."""
    one_hot = action[..., None] == jnp.arange(parts.shape[-2])
    return jnp.sum(jnp.where(one_hot[..., None], parts, 0.0), axis=-2)
