"""The parts that DQN and R2D2 share: a network of action values that learns from a replay."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from srl.algorithms.algorithm import Instance, Total
from srl.algorithms.gradient_descent import Descent, clipped, polyak, where
from srl.algorithms.off_policy import Sampling, TargetState
from srl.algorithms.q_network import epsilon, exploring_policy
from srl.algorithms.replay_ratio import ReplayRatio, zeros_unless
from srl.core.lazy import jax, jnp, optax
from srl.core.types import Array, Metrics, Policy, Unroll


@dataclass(frozen=True)
class QLearning(Instance):
    """An instance whose `actor` is a network of action values with a target network."""

    config: Any

    def __post_init__(self) -> None:
        """Raises UserError for actions that are not one choice."""
        _ = self.actor

    @cached_property
    def ratio(self) -> ReplayRatio:
        """The gradient steps of each update; each algorithm gives them."""
        raise NotImplementedError

    @cached_property
    def replay(self) -> Sampling:
        """The replay; each algorithm gives it."""
        raise NotImplementedError

    @property
    def adam(self) -> Descent:
        """Adam with the gradient's norm bounded."""
        return clipped(self.config.max_grad_norm, optax.scale_by_adam())

    @property
    def gradient_steps(self) -> int:
        """Gradient steps of an update."""
        return self.ratio.gradient_steps

    def init(self, key: Array) -> TargetState:
        """Draws parameters, which the target network starts from, too."""
        params_key, learning_key = jax.random.split(key)
        actor: Any = self.actor
        params = actor.init(params_key)
        optimizer = self.adam.init(params)
        return TargetState.first(self, learning_key, params, optimizer, targets=params)

    def policy(self, state: TargetState) -> Policy:
        """Gives the network's parameters, epsilon, and the statistics of observations."""
        return exploring_policy(self, state)

    def empty_replay(self, unroll: Unroll) -> Any:
        """Gives a replay of nothing for the slots of this unroll."""
        return self.replay.empty(unroll)

    def descend(
        self, state: TargetState, step: Array, gradients: Callable[[], Any], rate: Any, total: Total
    ) -> tuple[TargetState, Metrics]:
        """Takes a step of Adam, where one is due; the target network follows.

        Args:
            state: After the step before.
            step: int32 [], which of the `gradient_steps` this is.
            gradients: Gives the gradient's sums and the new priorities, float32 [S].
            rate: The step size.
            total: Adds sums to those of the slots that are elsewhere.

        Returns:
            The state, and metrics with `priority` [S], which `finish` writes into the replay.
        """
        sums, priority = zeros_unless(self.ratio.due(state.n, step), gradients)
        sums = total(sums)
        gradient, metrics = sums.mean()
        params, optimizer = self.adam.step(state.params, state.optimizer, gradient, rate)
        moves = self.ratio.every(self.config.target_period, state.n, step)
        tau = jnp.where(moves, self.config.target_rate, 0.0)
        targets = polyak(params, state.targets, tau)
        learned = state._replace(params=params, optimizer=optimizer, targets=targets)
        metrics |= {"grad_norm": jnp.linalg.norm(gradient), "priority": priority}
        return where(sums.count > 0, learned, state), metrics

    def finish(
        self, state: TargetState, replay: Any, batch: Any, metrics: Metrics
    ) -> tuple[TargetState, Any, Metrics]:
        """Writes the priorities back, and counts the update; `batch` has a `sample`."""
        priority, means = metrics["priority"], {n: x for n, x in metrics.items() if n != "priority"}
        due = self.ratio.due(state.n, jnp.arange(self.gradient_steps))
        replay = self.replay.update_priorities(replay, batch.sample, priority, due)
        share = jnp.mean(epsilon(self.config, state.n, self.updates, self.slots))
        learned = state._replace(n=state.n + 1, observations=batch.observations)
        return learned, replay, {**self.ratio.means(means), "epsilon": share}
