"""Recurrent replay distributed DQN (R2D2; Kapturowski et al., 2019).

https://openreview.net/forum?id=r1lyTjAqYX: DQN by a network with memory, from sequences of a
prioritised replay. A sequence begins with the memory that acting had there; its first rows only
bring the memory up to date (burn-in), the others are learned from. Values are rescaled, so that
rewards are learned from as they are, and slots explore with shares of random actions of their own.
Much is smaller than in the paper, the discount too, and the target network follows slowly;
docs/algorithms/r2d2.md lists what differs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from srl.algorithms.algorithm import Rewards
from srl.algorithms.dqn import DQN, DQNInstance, DQNState
from srl.algorithms.q_learning import chosen
from srl.algorithms.replay import Replay
from srl.algorithms.returns import n_step_returns
from srl.core.errors import UserError
from srl.core.lazy import jax, jnp
from srl.core.types import Array, Tree
from srl.networks import MLP, AutoNetwork, Network


@dataclass(frozen=True)
class R2D2(DQN):
    """The settings of R2D2: the paper's exponents and 5-step returns, for smaller problems."""

    network: Network = field(
        default_factory=lambda: AutoNetwork(
            MLP(width=128, activation="relu"), memory=128, cell="lstm"
        )
    )
    """Network of the action values, with memory."""
    unroll_length: int = 40
    """Steps that are taken with one version of the network before they are learned from."""
    batch_size: int = 32
    """Sequences of a gradient step."""
    chunk: int = 10
    """Steps from the beginning of one sequence to that of the next, of the same unroll."""
    burn_in: int = 10
    """Steps at the beginning of a sequence that are not learned from."""
    sequence: int = 20
    """Steps of a sequence that are learned from."""
    n_step: int = 5
    """Steps of rewards in a target; fewer at the end of a sequence."""
    rescale: bool = True
    """True if the network gives h(x) = sign(x) (sqrt(|x| + 1) - 1) + 0.001 x of values x."""
    dueling: bool = True
    """True if a state's value and the advantages of actions are separate outputs, of one linear
    layer; in the paper each has a hidden layer, too."""
    priorities: float = 0.9
    """The exponent of priorities; 0 draws evenly."""
    correction: float = 0.6
    """The exponent of the importance weights that correct for priorities; 1 corrects in full."""
    rewards: Rewards = field(default="raw", kw_only=True)
    """The rewards to learn from: as they are (raw), their signs, or cut at -1 and 1.
    usual is sign in atari:..., else raw. Returns are reported of rewards as they are."""
    largest: float = 0.9
    """The weight of a sequence's largest error in its priority; the rest is that of the mean."""
    epsilon_start: float = 0.4
    """The share of random actions in the beginning."""
    epsilon_end: float = 0.4
    """That share after exploration."""
    epsilon_spread: float = 7.0
    """The difference between slots: slot i of N draws the share to the power of
    1 + epsilon_spread * i / (N - 1)."""

    limits: ClassVar[Mapping[str, tuple[float, ...]]] = {
        **DQN.limits,
        "chunk": (1,),
        "burn_in": (0,),
        "sequence": (1,),
        "largest": (0.0, 1.0),
    }
    sequences = True

    def validate(self) -> None:
        """Raises UserError where settings are out of their limits or do not fit each other."""
        super().validate()
        if not self.network.memory:
            raise UserError(
                "R2D2 learns from sequences, and the network has no memory: give it some, such as "
                "--algorithm.network.memory 128, or take DQN"
            )
        if self.atoms > 1:
            raise UserError(f"R2D2 with atoms={self.atoms}: it learns the mean of returns; leave 1")
        rows = self.burn_in + self.sequence
        if rows > self.unroll_length or self.unroll_length % self.chunk:
            raise UserError(
                f"R2D2 with burn_in={self.burn_in}, sequence={self.sequence}, chunk={self.chunk} "
                f"and unroll_length={self.unroll_length}: an unroll holds a burn-in and a "
                "sequence or more, and is a multiple of chunk"
            )

    @property
    def instance(self) -> type[R2D2Instance]:
        """The functions of R2D2."""
        return R2D2Instance


class Sequences(NamedTuple):
    """The batches for the rounds to learn from, [rounds, ...]."""

    rows: Replay  # [rounds, burn_in + sequence + 1, S, ...]
    valid: Array  # bool [rounds, sequence, S], those learned from that do not end an episode


@dataclass(frozen=True)
class R2D2Instance(DQNInstance):
    """R2D2 for one trained policy."""

    config: R2D2

    @property
    def chunk(self) -> int:
        """Steps between the memories that are stored."""
        return self.config.chunk

    @property
    def learned(self) -> int:
        """Steps that a gradient step learns from."""
        return self.draws * self.config.sequence

    # The replay.

    @property
    def length(self) -> int:
        """Rows of a sequence, with its burn-in and the row that it is bootstrapped from."""
        return self.config.burn_in + self.config.sequence + 1

    @property
    def stride(self) -> int:
        """Rows from one sequence's first to the next one's."""
        return self.config.chunk

    def window_of(self, rows: Replay) -> Sequences:
        """Adds which rows are learned from."""
        learned = jnp.logical_not(rows.terminated | rows.truncated)[:, self.config.burn_in : -1]
        return Sequences(rows, learned)

    def priority(self, error: Array, valid: Array) -> Array:
        """Mixes the largest and the mean error of sequences: [sequence, S] to [S] (section 2.3)."""
        size = jnp.where(valid, jnp.abs(error), 0.0)
        mean = jnp.sum(size, axis=0) / jnp.maximum(jnp.sum(valid, axis=0), 1)
        mixed = self.config.largest * jnp.max(size, axis=0) + (1 - self.config.largest) * mean
        return super().priority(mixed, jnp.any(valid, axis=0))

    # Learning.

    def errors(self, params: Tree, state: DQNState, drawn: Sequences) -> tuple[Array, Array, Array]:
        """Gives the errors of steps, their losses, and the values of their actions."""
        rows: Any = jax.tree.map(lambda x: x[self.config.burn_in :], drawn.rows._replace(memory=()))
        values = self.sequence_values(params, state, drawn.rows)
        targets = self.sequence_values(state.targets, state, drawn.rows)
        best = jnp.argmax(values if self.config.double else targets, axis=-1)
        value = chosen(values[:-1], rows.action)
        following = jnp.where(self.possible(rows.observation), chosen(targets, best), 0.0)
        following = self._unscaled(following)
        ends = rows.reward, rows.terminated, rows.truncated
        returns = n_step_returns(*ends, following, self.config.discount, self.config.n_step)
        error = jax.lax.stop_gradient(self._scaled(returns)) - value
        return error, 0.5 * jnp.square(error), value

    def sequence_values(self, params: Tree, state: DQNState, rows: Replay) -> Array:
        """Gives the values of all actions after the burn-in, [sequence + 1, S, actions].

        No gradient reaches the burn-in.
        """
        statistics, memory, first = state.observations, rows.memory, self.config.burn_in
        seen = rows.observation, rows.terminated | rows.truncated
        observation, ended = jax.tree.map(lambda x: x[first:], seen)
        if first:
            earlier, ended_earlier = jax.tree.map(lambda x: x[:first], seen)
            inputs = self.normalizer.normalize(statistics, earlier)
            memory = self.network.policy_memory(params, inputs, memory, ended_earlier)
        memory = jax.lax.stop_gradient(memory)
        return self.values(params, statistics, observation, memory, ended)

    def _scaled(self, value: Array) -> Array:
        return rescaled(value) if self.config.rescale else value

    def _unscaled(self, value: Array) -> Array:
        return unrescaled(value) if self.config.rescale else value


_SLOPE = 1e-3


def rescaled(x: Array) -> Array:
    """Gives h(x) = sign(x) (sqrt(|x| + 1) - 1) + 0.001 x (Pohlen et al., 2018).

    See https://arxiv.org/abs/1805.11593, proposition A.2.
    """
    # sqrt(|x| + 1) - 1, without a difference of nearly equal numbers.
    return x / (jnp.sqrt(jnp.abs(x) + 1) + 1) + _SLOPE * x


def unrescaled(x: Array) -> Array:
    """Gives the number of which x is `rescaled`, to the precision of float32.

    With w = sqrt(|y| + 1) - 1, which the quadratic equation 0.001 w^2 + 1.002 w = |x| gives, the
    number is w (w + 2).
    """
    root = jnp.sqrt(1 + 4 * _SLOPE * (jnp.abs(x) + 1 + _SLOPE))
    w = 2 * jnp.abs(x) / (root + 1 + 2 * _SLOPE)
    return jnp.sign(x) * w * (w + 2)
