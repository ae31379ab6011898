"""Twin delayed deep deterministic policy gradients (Fujimoto et al., 2018).

https://arxiv.org/abs/1802.09477: the critics learn from n-step transitions drawn from a replay,
with targets by target networks: the least value of the target actor's action with a bounded noise.
Every `delay` gradient steps, the actor takes one along the critics' gradient, and the target
networks follow.
With hundreds of environments (FastTD3, Seo et al., 2025, https://arxiv.org/abs/2505.22642), each
slot may explore with a noise of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from srl.algorithms.critics import ContinuousInstance, Critics, CriticsState
from srl.algorithms.off_policy import Drawn, summed, where
from srl.core.errors import UserError
from srl.core.lazy import jax, jnp
from srl.core.schedule import Adjustable
from srl.core.types import Array, Decision, Metrics, Policy, Tree
from srl.networks import PolicyAndValue


@dataclass(frozen=True)
class TD3(Critics):
    """The settings of TD3. All deviations are of actions whose bounds are -1 and 1."""

    noise: tuple[float, float] = (0.1, 0.1)
    """The deviation of the noise that the first slot explores with, and the last one's; those
    between rise evenly from the one to the other."""
    target_noise: float = 0.2
    """The deviation of the noise of targets' actions."""
    noise_clip: float = 0.5
    """The bound of the noise of targets' actions."""
    delay: int = 2
    """Gradient steps of the critics for each of the actor."""
    learning_rate: Adjustable = 1e-3
    """The step size of the actor's Adam."""

    limits: ClassVar[Mapping[str, tuple[float, ...]]] = {
        **Critics.limits,
        "target_noise": (0.0,),
        "noise_clip": (0.0,),
        "delay": (1,),
    }

    def validate(self) -> None:
        """Raises UserError where settings are out of their limits or do not fit each other."""
        super().validate()
        if len(self.noise) != 2 or min(self.noise) < 0:
            raise UserError(f"TD3 with noise={self.noise}; expected two deviations of 0 or more")

    @property
    def instance(self) -> type[TD3Instance]:
        """The functions of TD3."""
        return TD3Instance


@dataclass(frozen=True)
class TD3Instance(ContinuousInstance):
    """TD3 for one trained policy."""

    config: TD3

    @cached_property
    def actor(self) -> PolicyAndValue:
        """The functions of the actor, which gives actions before the hyperbolic tangent."""
        return self.config.network.build(self.specs.observation, self.size)

    def slow(self, params: Tree) -> Tree:
        """Gives all parameters: the actor has a target network, too."""
        return params

    # Acting.

    def policy(self, state: CriticsState) -> Policy:
        """Gives the actor's parameters, the noise of the slots, and whether the actor acts yet."""
        params = {
            "actor": state.params["actor"],
            "noise": jnp.linspace(*self.config.noise, max(self.slots, 1)),
            "acts": self.warm(state.n),
        }
        return Policy(params, state.observations)

    def act(
        self, policy: Policy, observation: Tree, memory: Tree, keys: Array, slot: Array
    ) -> Decision:
        """Adds noise to the actor's action for each slot with its own random key: keys [B]."""
        action = jnp.tanh(self.act_on(policy.params["actor"], policy.normalizer, observation))
        deviation = policy.params["noise"][slot % len(policy.params["noise"])]
        noise = jax.vmap(lambda key: jax.random.normal(key, (self.size,)))(keys)
        noisy = jnp.clip(action + deviation[:, None] * noise, -1.0, 1.0)
        action = jnp.where(policy.params["acts"], noisy, self.evenly(keys))
        return Decision(self.shaped(action), jnp.zeros(len(action)), memory)

    def act_greedy(self, policy: Policy, observation: Tree, memory: Tree) -> Decision:
        """Takes the actor's action for each slot."""
        action = jnp.tanh(self.act_on(policy.params["actor"], policy.normalizer, observation))
        return Decision(self.shaped(action), jnp.zeros(action.shape[:1]), memory)

    # Learning.

    def actor_due(self, n: Array, round: Array) -> Array:
        """Tells if the actor learns in a round."""
        return self.every(self.config.delay, n, round)

    def targets_due(self, n: Array, round: Array) -> Array:
        """Tells if the target networks move: in the actor's steps alone."""
        return self.every(self.config.delay * self.config.target_period, n, round)

    def loss(
        self, params: Tree, state: CriticsState, drawn: Drawn, round: Array
    ) -> tuple[Array, tuple[dict[str, Any], Tree]]:
        """The losses of the critics and, where it is due, of the actor (Fujimoto, algorithm 1).

        They share no gradient: each holds the others' parameters fixed.
        """
        steps, statistics = drawn.transitions, state.observations
        key, noise_key = jax.random.split(self.round_key(state, round))
        noise = self.noise(noise_key, drawn.slot)
        action = self.smoothed(self.act_on(state.targets["actor"], statistics, steps.last), noise)
        following = self.values(state.targets["critics"], statistics, steps.last, action)
        target = steps.reward + steps.discount * self.least(following, key)
        values = self.values(params["critics"], statistics, steps.observation, steps.action)
        critic_loss = 0.5 * jnp.sum(jnp.square(values - target), axis=0)

        def actor_loss() -> Array:
            action = jnp.tanh(self.act_on(params["actor"], statistics, steps.observation))
            critics = jax.lax.stop_gradient(params["critics"])
            values = self.values(critics, statistics, steps.observation, action)
            # With two critics the actor goes by the first, with more by the mean (REDQ).
            return -(values[0] if self.config.critics == 2 else jnp.mean(values, axis=0))

        due = self.actor_due(state.n, round)
        worth = jax.lax.cond(due, actor_loss, lambda: jnp.zeros(steps.reward.shape))
        metrics = {"critic_loss": critic_loss, "q_value": jnp.mean(values, axis=0)}
        loss, (sums, notes) = summed(critic_loss + worth, metrics, steps.valid)
        return loss, ({**sums, "due": due.astype(jnp.float32)}, notes)

    def smoothed(self, outputs: Array, noise: Array) -> Array:
        """Gives the targets' actions from the actor's outputs and normal numbers, [S, numbers]."""
        bound = self.config.noise_clip
        noise = jnp.clip(self.config.target_noise * noise, -bound, bound)
        return jnp.clip(jnp.tanh(outputs) + noise, -1.0, 1.0)

    def update(self, state: CriticsState, sums: Any) -> tuple[CriticsState, Metrics]:
        """Takes a gradient step; the actor only where it is due."""
        moved, metrics = super().update(state, sums)
        due, before, after = sums["due"] > 0, state.optimizer, moved.optimizer
        actor = {"actor": where(due, moved.params["actor"], state.params["actor"])}
        adam = where(due, after.inner_states["actor"], before.inner_states["actor"])
        optimizer = after._replace(inner_states={**after.inner_states, "actor": adam})
        params = {**moved.params, **actor}
        return moved._replace(params=params, optimizer=optimizer), metrics
