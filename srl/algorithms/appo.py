"""Asynchronous PPO, for policies that acted with older parameters than those that learn.

V-trace (Espeholt et al., 2018, https://arxiv.org/abs/1802.01561) corrects the value targets and the
advantages, as in Sample Factory (Petrenko et al., 2020, https://arxiv.org/abs/2006.11751). The
clipped objective is decoupled (Hilton et al., 2022, https://arxiv.org/abs/2110.00641): it keeps the
policy near the proximal one, which is that at the start of the update, and not near those that
acted, whose samples are weighted instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from srl.algorithms.actor_critic import log_probs
from srl.algorithms.ppo import PPO, Estimates, PPOInstance, PPOState
from srl.algorithms.returns import valid_rows, vtrace
from srl.core.lazy import jax, jnp
from srl.core.schedule import Adjustable
from srl.core.settings import AtLeastOne, NotNegative, Range
from srl.core.types import Array, Unroll


@dataclass(frozen=True)
class APPO(PPO):
    """The settings of asynchronous PPO; `gae_lambda` is V-trace's lambda.

    There are fewer epochs than in PPO: the learner has to keep up with actors.
    """

    epochs: AtLeastOne = 4
    """Passes of learning through each batch."""
    max_grad_norm: Annotated[Adjustable, Range(0.0)] = 4.0
    """The largest norm of a gradient, as in Sample Factory; longer ones are scaled to it."""
    clip: Annotated[Adjustable, Range(0.0)] = 0.1
    """The distance from 1 at which the probability ratio is clipped, as in Sample Factory: with
    data of some updates ago, PPO's 0.2 lets policies collapse."""
    entropy_cost: Annotated[Adjustable, Range(0.0)] = 0.01
    """The weight of the reward for entropy."""
    max_weight: Annotated[float, Range(1.0)] = 10.0
    """The largest weight of a sample: the proximal policy's probability of its action over that of
    the policy that acted."""
    clip_rho: NotNegative = 1.0
    """Rho-bar: the largest importance weight of the values' errors."""
    clip_c: NotNegative = 1.0
    """C-bar: the largest factor that an importance weight has on the errors after it."""

    @property
    def instance(self) -> type[APPOInstance]:
        """The functions of asynchronous PPO."""
        return APPOInstance


@dataclass(frozen=True)
class APPOInstance(PPOInstance):
    """Asynchronous PPO for one trained policy."""

    config: APPO

    def estimates(self, state: PPOState, unroll: Unroll, value: Array) -> Estimates:
        """Gives V-trace's estimates, and the samples' weights; see `PPOInstance`."""
        valid = valid_rows(unroll.terminated, unroll.truncated)
        ended = unroll.terminated | unroll.truncated
        memory = jax.tree.map(lambda x: x[0], unroll.memory)
        # Of all rows, as the value is: layers that the two share are computed once.
        inputs = unroll.observation, memory, ended
        policy = self.actor.distributions(self.policy(state), *inputs)
        proximal = log_probs(policy, unroll.action, valid)
        log_ratio = jnp.where(valid, proximal - unroll.log_prob, 0.0)
        rows = unroll.reward, unroll.terminated, unroll.truncated, value
        config = self.config
        factors = config.discount, config.gae_lambda, config.clip_rho, config.clip_c
        advantage, correction = vtrace(*rows, log_ratio, *factors)
        weight = jnp.exp(jnp.minimum(log_ratio, jnp.log(config.max_weight)))
        own = self.not_by_teacher(unroll.log_prob)
        return Estimates(advantage, correction, jnp.where(own, proximal, jnp.inf), weight)
