"""Heads of networks of action values: the mean of returns, or their distribution (C51)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from srl.core.lazy import jax, jnp
from srl.core.types import Array


class ValueHead(Protocol):
    """The meaning of a network's outputs."""

    @property
    def streams(self) -> tuple[int, ...]:
        """The numbers of the network's outputs for each slot, with a hidden layer for each."""
        ...

    def values(self, outputs: Array) -> Array:
        """Gives the values of actions, [..., actions], of outputs [..., outputs]."""
        ...

    def loss(
        self,
        outputs: Array,
        action: Array,
        reward: Array,
        discount: Array,
        last: Array,
        best: Array,
    ) -> tuple[Array, Array]:
        """Gives the errors of transitions, and their losses, [S] each.

        Args:
            outputs: [S, outputs], at the first observations.
            action: int32 [S], that was taken there.
            reward: [S], on the way to the last observations.
            discount: [S], of the last observations' values.
            last: [S, outputs], of the target network at the last observations.
            best: int32 [S], the actions chosen there.
        """
        ...


@dataclass(frozen=True)
class MeanHead:
    """The value of each action; dueling (Wang et al., 2016, https://arxiv.org/abs/1511.06581)."""

    actions: int
    dueling: bool = False

    @property
    def streams(self) -> tuple[int, ...]:
        """One for each action; before these one for the state, where it is dueling."""
        return _streams(self.actions, 1, self.dueling)

    def values(self, outputs: Array) -> Array:
        """Gives the values of actions, [..., actions]."""
        return _by_action(outputs, 1, self.dueling)[..., 0]

    def loss(
        self,
        outputs: Array,
        action: Array,
        reward: Array,
        discount: Array,
        last: Array,
        best: Array,
    ) -> tuple[Array, Array]:
        """Gives the errors of transitions, and half their squares."""
        target = reward + discount * chosen(self.values(last), best)
        error = target - chosen(self.values(outputs), action)
        return error, 0.5 * jnp.square(error)


@dataclass(frozen=True)
class CategoricalHead:
    """The distribution of returns (C51; Bellemare et al., 2017, arXiv:1707.06887)."""

    actions: int
    dueling: bool
    atoms: int
    value_range: tuple[float, float]
    """The returns of the least and of the last atom."""

    @property
    def streams(self) -> tuple[int, ...]:
        """The atoms of each action; before these those of the state, where it is dueling."""
        return _streams(self.actions, self.atoms, self.dueling)

    @cached_property
    def returns(self) -> np.ndarray:
        """The return that each atom stands for."""
        return np.linspace(*self.value_range, self.atoms, dtype=np.float32)

    def logits(self, outputs: Array) -> Array:
        """Gives the logits of the atoms, [..., actions, atoms]."""
        return _by_action(outputs, self.atoms, self.dueling)

    def values(self, outputs: Array) -> Array:
        """Gives the mean returns of actions, [..., actions]."""
        return jnp.sum(jax.nn.softmax(self.logits(outputs)) * self.returns, axis=-1)

    def loss(
        self,
        outputs: Array,
        action: Array,
        reward: Array,
        discount: Array,
        last: Array,
        best: Array,
    ) -> tuple[Array, Array]:
        """Gives the divergences from the targets, and the cross-entropies, [S] each."""
        following = jax.nn.softmax(_of_action(self.logits(last), best))
        target = self.projected(reward, discount, following)
        log_probs = jax.nn.log_softmax(_of_action(self.logits(outputs), action))
        loss = -jnp.sum(target * log_probs, axis=-1)
        # The divergence, which is what the loss can still fall by, is the error (Rainbow).
        divergence = loss + jnp.sum(jax.scipy.special.xlogy(target, target), axis=-1)
        return divergence, loss

    def projected(self, reward: Array, discount: Array, probability: Array) -> Array:
        """The distribution of targets over the atoms (algorithm 1), [S, atoms]."""
        low, high = self.value_range
        step = (high - low) / (self.atoms - 1)
        moved = reward[..., None] + discount[..., None] * self.returns
        distance = jnp.abs(moved.clip(low, high)[..., None] - self.returns) / step
        share = jnp.clip(1 - distance, 0.0, 1.0)  # of each atom's mass, to each atom
        return jnp.einsum("...i,...ij->...j", probability, share)


def chosen(values: Array, action: Array) -> Array:
    """Gives the value of the action taken: [..., actions] and [...] to [...]."""
    # A sum over one-hot rows: its gradient needs no scatter, which is slow on CPU.
    one_hot = action[..., None] == jnp.arange(values.shape[-1])
    return jnp.sum(jnp.where(one_hot, values, 0.0), axis=-1)


def _streams(actions: int, size: int, dueling: bool) -> tuple[int, ...]:
    """The outputs of the state and of all actions, or of the actions alone."""
    return (size, actions * size) if dueling else (actions * size,)


def _by_action(outputs: Array, size: int, dueling: bool) -> Array:
    """Each action's part of the outputs, [..., actions, size]."""
    parts = outputs.reshape(*outputs.shape[:-1], -1, size)
    if not dueling:
        return parts
    value, advantage = parts[..., :1, :], parts[..., 1:, :]
    return value + advantage - jnp.mean(advantage, axis=-2, keepdims=True)


def _of_action(logits: Array, action: Array) -> Array:
    """The logits of the action taken: [..., actions, atoms] and [...] to [..., atoms]."""
    one_hot = action[..., None] == jnp.arange(logits.shape[-2])
    return jnp.sum(jnp.where(one_hot[..., None], logits, 0.0), axis=-2)
