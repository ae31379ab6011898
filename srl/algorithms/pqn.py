"""Parallelised Q-network (Gallici et al., 2025, https://arxiv.org/abs/2407.04811).

Q-learning on fresh unrolls of many environments: Q(lambda) returns under the parameters that a
batch arrives at, then some epochs of minibatches. There is no replay and no target network; layer
normalisation keeps the values from diverging. A network with memory is learned from in chunks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from srl.algorithms.minibatches import Batch, Minibatched, MinibatchedInstance
from srl.algorithms.observing import ObservingState
from srl.algorithms.optimizer_step import annealed_step
from srl.algorithms.q_learning import QInstance, QLearning, chosen
from srl.algorithms.returns import generalized_advantages, sums_over, valid_rows, zero_unless
from srl.core.lazy import jax, jnp, optax
from srl.core.schedule import Adjustable
from srl.core.types import Array, Metrics, Tree, Unroll


@dataclass(frozen=True)
class PQN(QLearning, Minibatched):
    """The settings of PQN."""

    unroll_length: int = 16
    """Steps that are taken with one version of the network before they are learned from."""
    epochs: int = 4
    """Passes of learning through each batch."""
    learning_rate: Adjustable = 1e-3
    """The step size of RAdam."""
    anneal: bool = True
    """True if the learning rate falls linearly to 0 over the run, where its length is known."""
    max_grad_norm: Adjustable = 10.0
    """The norm to which longer gradients are shortened."""
    q_lambda: float = 0.65
    """Lambda of the returns: 0 gives one-step targets, 1 Monte Carlo ones with bootstrap."""

    limits: ClassVar[Mapping[str, tuple[float, ...]]] = {
        **QLearning.limits,
        **Minibatched.limits,
        "learning_rate": (0.0,),
        "max_grad_norm": (0.0,),
        "q_lambda": (0.0, 1.0),
    }

    adjustable = ("learning_rate", "max_grad_norm")

    @property
    def instance(self) -> type[PQNInstance]:
        """The functions of PQN."""
        return PQNInstance


class ValueSamples(NamedTuple):
    """Steps to learn from, [T, B, ...]."""

    observation: Tree
    action: Array
    target: Array
    valid: Array  # bool


@dataclass(frozen=True)
class PQNInstance(MinibatchedInstance, QInstance[ObservingState]):
    """PQN for one trained policy."""

    config: PQN

    @property
    def optimizer(self) -> optax.GradientTransformation:
        """RAdam with the gradient's norm bounded; the learning rate comes later."""
        clip = optax.clip_by_global_norm(self.config.max_grad_norm)
        return optax.flatten(optax.chain(clip, optax.scale_by_radam()))

    def measure(self, state: ObservingState, unroll: Unroll) -> tuple[Batch, dict[str, Any]]:
        """Computes the targets, Q(lambda) returns by the best actions (Gallici et al., eq. 8)."""
        _, sums = super().measure(state, unroll)
        valid = valid_rows(unroll.terminated, unroll.truncated)
        ended = unroll.terminated | unroll.truncated
        memory = jax.tree.map(lambda x: x[0], unroll.memory)
        values = self.values(state.params, state.observations, unroll.observation, memory, ended)
        best = jnp.where(self.possible(unroll.observation), jnp.max(values, axis=-1), 0.0)
        rows = (unroll.reward, unroll.terminated, unroll.truncated, best)
        # The lambda return is the value of a row and the lambda-weighted errors from there on.
        target = best[:-1] + generalized_advantages(
            *rows, self.config.discount, self.config.q_lambda
        )
        samples = ValueSamples(
            observation=jax.tree.map(lambda x: x[:-1], unroll.observation),
            action=unroll.action,
            target=zero_unless(valid, target),
            valid=valid,
        )
        return Batch(samples, unroll.memory, unroll.slot), sums

    def loss(
        self, params: Tree, state: ObservingState, samples: ValueSamples, memory: Tree
    ) -> tuple[Array, Metrics]:
        """Half the squared error, summed.

        Args:
            params: Of the network.
            state: Its statistics are looked at.
            samples: [L, B, ...]
            memory: [B, ...], before the first row.
        """
        inputs = state.observations, samples.observation, memory, ~samples.valid
        value = chosen(self.values(params, *inputs), samples.action)
        metrics = {"q_loss": 0.5 * jnp.square(value - samples.target), "q_value": value}
        sums = sums_over(samples.valid, metrics)
        return sums["q_loss"], sums

    def update(self, state: ObservingState, sums: Any) -> tuple[ObservingState, Metrics]:
        """Takes one step of RAdam."""
        return annealed_step(self, state, sums)
