"""IMPALA: importance-weighted actor-learners (Espeholt et al., 2018, arXiv:1802.01561).

Each batch of unrolls is learned from once, by one gradient step. V-trace corrects the targets of
the value and the advantages of the policy for actions that an older policy took.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from srl.algorithms.actor_critic import ActorCritic, ActorCriticInstance, log_probs
from srl.algorithms.observing import ObservingState
from srl.algorithms.optimizer_step import annealed_step
from srl.algorithms.returns import sums_over, valid_rows, vtrace
from srl.core.lazy import jax, jnp, optax
from srl.core.schedule import Adjustable
from srl.core.types import Array, Metrics, Tree, Unroll


@dataclass(frozen=True)
class IMPALA(ActorCritic):
    """The settings of IMPALA.

    Unroll length, importance weights and entropy cost are of the size of the paper's (appendix D).
    The paper sums losses over a batch and takes RMSProp; here they are means, for Adam.
    """

    unroll_length: int = 20
    """Steps that are taken with one version of the policy before they are learned from."""
    learning_rate: Adjustable = 3e-3
    """The step size of Adam, which replaces the paper's RMSProp."""
    anneal: bool = True
    """True if the learning rate falls linearly to 0 over the run, where its length is known."""
    max_grad_norm: Adjustable = 40.0
    """The norm to which longer gradients of the mean loss are shortened, which it rarely is at 40;
    where it is small, large errors of the value hold the policy back, and what was learned is lost
    again."""
    clip_rho: float = 1.0
    """Rho-bar: the largest importance weight of the policy's and of the values' errors."""
    clip_c: float = 1.0
    """C-bar: the largest factor that an importance weight has on the errors after it."""
    vtrace_lambda: float = 1.0
    """Lambda: 1 is V-trace as it was first given, 0 the one-step temporal difference."""
    value_cost: Adjustable = 0.5
    """The weight of the value's squared error; the paper's is 0.5 of half the squared error."""
    entropy_cost: Adjustable = 0.01
    """The weight of the entropy, which is rewarded."""

    limits: ClassVar[Mapping[str, tuple[float, ...]]] = {
        **ActorCritic.limits,
        "learning_rate": (0.0,),
        "max_grad_norm": (0.0,),
        "clip_rho": (0.0,),
        "clip_c": (0.0,),
        "vtrace_lambda": (0.0, 1.0),
        "value_cost": (0.0,),
        "entropy_cost": (0.0,),
    }

    adjustable = ("learning_rate", "value_cost", "entropy_cost", "max_grad_norm")

    @property
    def instance(self) -> type[IMPALAInstance]:
        """The functions of IMPALA."""
        return IMPALAInstance


@dataclass(frozen=True)
class IMPALAInstance(ActorCriticInstance[ObservingState]):
    """IMPALA for one trained policy."""

    config: IMPALA

    @property
    def chunk(self) -> int:
        """A policy with memory is learned from over whole unrolls."""
        return self.config.unroll_length if self.network.memory else 0

    @property
    def optimizer(self) -> optax.GradientTransformation:
        """Adam with the gradient's norm bounded; the learning rate comes later."""
        clip = optax.clip_by_global_norm(self.config.max_grad_norm)
        return optax.flatten(optax.chain(clip, optax.scale_by_adam(eps=1e-5)))

    def gradient(self, state: ObservingState, batch: Unroll, round: Array) -> dict[str, Any]:
        """Gives the sums over the batch: of the loss's gradient, and of metrics."""
        gradient, metrics = jax.grad(self.loss, has_aux=True)(state.params, state, batch)
        count = jnp.sum(valid_rows(batch.terminated, batch.truncated), dtype=jnp.float32)
        return {"gradient": gradient, "metrics": metrics, "count": count}

    def loss(self, params: Tree, state: ObservingState, unroll: Unroll) -> tuple[Array, Metrics]:
        """Policy gradient, value and entropy terms (Espeholt et al., 2018, section 4.2), summed.

        Args:
            params: Of the policy and of the value.
            state: Its statistics are looked at.
            unroll: Rows [T + 1, B, ...].
        """
        config = self.config
        valid = valid_rows(unroll.terminated, unroll.truncated)
        ended = jnp.logical_or(unroll.terminated, unroll.truncated)
        memory = {
            "policy": jax.tree.map(lambda x: x[0], unroll.memory),
            "value": self.value_memory(unroll),
        }
        inputs = params, state.observations, unroll.observation, memory, ended
        distribution, value = self.evaluate(*inputs)
        log_prob = log_probs(distribution, unroll.action, valid)
        log_ratio = jnp.where(valid, log_prob - unroll.log_prob, 0.0)

        rows = unroll.reward, unroll.terminated, unroll.truncated, jax.lax.stop_gradient(value)
        fixed = jax.lax.stop_gradient(log_ratio)
        clips = config.clip_rho, config.clip_c
        advantage, correction = vtrace(*rows, fixed, config.discount, config.vtrace_lambda, *clips)
        weight = jnp.minimum(jnp.exp(fixed), config.clip_rho)
        error = value[:-1] - jax.lax.stop_gradient(value[:-1]) - correction
        metrics = {
            "policy_loss": -weight * advantage * log_prob,
            "value_loss": jnp.square(error),
            "entropy": distribution.entropy()[:-1],
            "importance": weight,
        }
        sums = sums_over(valid, metrics)
        value_loss = config.value_cost * sums["value_loss"]
        return sums["policy_loss"] + value_loss - config.entropy_cost * sums["entropy"], sums

    def update(self, state: ObservingState, sums: Any) -> tuple[ObservingState, Metrics]:
        """Takes one step of Adam."""
        return annealed_step(self, state, sums)
