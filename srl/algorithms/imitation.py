"""Imitation of a teacher, next to learning from rewards, for algorithms with a policy and a value.

The policy's loss becomes

    policy_cost * (loss from rewards) + imitation_cost * KL(teacher || policy)

as in kickstarting (Schmitt et al., 2018, arXiv:1803.03835), with schedules for both. A teacher may
also take a share of the actions, as in DAgger (Ross et al., 2011, arXiv:1011.0686), so that the
policy is corrected in states that both lead to. A teacher's own actions count as drawn by a policy
that is infinitely far from this one: their log-probability is infinite, and their importance weight
is 0. So the policy's loss from rewards leaves them out, and V-trace ends at them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Self

import numpy as np

from srl.algorithms.algorithm import Algorithm, Instance
from srl.algorithms.distributions import Distribution
from srl.algorithms.gradient_descent import Descent, where
from srl.core.errors import UserError
from srl.core.lazy import jax, jnp
from srl.core.schedule import Adjustable, Schedule
from srl.core.settings import Range
from srl.core.types import Array, Decision, Metrics, Policy, Specs, Timestep, Tree
from srl.dataflow.loop import Loop

ACTION, DISTRIBUTION = "action", "distribution"
"""The parts of a teacher's advice: its most probable action, and the parameters of its distribution
where the policy's has the same ones."""
SHARE = "teacher_share"
FALLING = ((0.0, 1.0), (0.3, 0.0))
"""The points of the weight of imitation where none is given: a teacher that knows more than the
policy can see holds it back in the end."""
_SALT = 2**32 - 1  # that a slot's key is folded with, for who acts; parts of actions count from 0


@dataclass(frozen=True)
class Imitating(Algorithm):
    """Settings of an algorithm that can learn from a teacher, which `Experiment.teacher` names."""

    imitation_cost: Annotated[Adjustable, Range(0.0)] = field(default=0.0, kw_only=True)
    """The weight of the divergence from the teacher's distributions, or of the negative
    log-probability of its actions. If this and `teacher_share` are 0, a teacher sets it to fall
    from 1 to 0 in the first 30 % of the updates."""
    policy_cost: Annotated[Adjustable, Range(0.0)] = field(default=1.0, kw_only=True)
    """The weight of the policy's loss from rewards next to that; with 0 it only imitates."""
    teacher_share: Annotated[Adjustable, Range(0.0, 1.0)] = field(default=0.0, kw_only=True)
    """The share of actions that the teacher takes, drawn for each step. A share of 0 at the start
    needs a schedule to grow."""
    value_warm_up: Annotated[int, Range(0)] = field(default=0, kw_only=True)
    """The number of first updates in which only the value is learned, such as with a policy from
    another run."""

    @property
    def imitates(self) -> bool:
        """True if the loop asks a teacher for advice."""
        return self.imitation_cost != 0 or self.mixes

    @property
    def mixes(self) -> bool:
        """True if the teacher may act."""
        return self.teacher_share != 0

    def with_teacher(self) -> Self:
        """Gives the settings with a weight of imitation, where none is given."""
        return self if self.imitates else replace(self, imitation_cost=Schedule(FALLING))

    def bind(self, specs: Specs, updates: int | None = None, slots: int = 0) -> Instance:
        """Gives the functions for one trained policy; see `Algorithm`."""
        bound: Any = super().bind(specs, updates, slots)
        return replace(bound, imitates=self.imitates, mixes=self.mixes)

    def loop(self, run: Loop) -> None:
        """One update as by `Algorithm.loop`, with advice on every step where a teacher is set."""
        if not self.imitates:
            return super().loop(run)
        policy = run.latest()

        def interact(timestep: Timestep, memory: Tree) -> tuple[Timestep, Tree, Any]:
            decision, advice = run.act(policy, timestep, memory), run.teach(timestep)
            following = run.step(decision.action)
            return following, decision.memory, run.collect(timestep, decision, advice)

        run.learn(run.gather(run.unroll(interact, self.unroll_length)))


def no_teacher(self: Instance, observation: Tree) -> Tree:
    """Raises UserError: an experiment's teacher gives the advice, and it has none."""
    raise UserError("the experiment has no teacher; give teacher=RUN_DIR[:V]")


@dataclass(frozen=True)
class ImitatingInstance(Instance):
    """The parts of an algorithm's functions that know a teacher."""

    config: Imitating
    imitates: bool = False
    """True if there is a teacher."""
    mixes: bool = False
    """True if the teacher may act."""

    teach = no_teacher

    def not_by_teacher(self, log_prob: Array) -> Array:
        """Gives the rows whose actions no teacher took, bool [...]."""
        return log_prob < jnp.inf if self.mixes else jnp.ones(log_prob.shape, bool)

    def acting_policy(self, params: Tree, observations: Any) -> Policy:
        """Gives the policy with the teacher's share, where it may act."""
        share = {SHARE: jnp.asarray(self.config.teacher_share, jnp.float32)} if self.mixes else ()
        return Policy(params, self.normalizer.policy_statistics(observations), share)

    def act(
        self, policy: Policy, observation: Tree, memory: Tree, keys: Array, slot: Array
    ) -> Decision:
        """Draws an action for each slot, and leaves some to the teacher; see `Instance`."""
        decision = super().act(policy, observation, memory, keys, slot)
        if not self.mixes:
            return decision
        draw = jax.vmap(lambda key: jax.random.uniform(jax.random.fold_in(key, _SALT)))
        left = draw(keys) < policy.settings[SHARE]
        return decision._replace(log_prob=jnp.where(left, jnp.inf, decision.log_prob))

    def divergence(self, policy: Distribution, advice: Tree) -> Array:
        """Gives the divergence from the teacher in each row, [...]; zeros without a teacher.

        It is KL(teacher || policy), or the negative log-probability of the teacher's action where
        its distribution is of another kind.

        Args:
            policy: Of each row.
            advice: ACTION and perhaps DISTRIBUTION by name, [...]. Without a teacher of the
                experiment's it may be (), or the advice that a loop asks for.
        """
        if not self.imitates:
            return jnp.zeros_like(policy.entropy())
        if DISTRIBUTION not in advice:
            return -policy.log_prob(advice[ACTION])
        return policy.divergence(advice[DISTRIBUTION])

    def policy_loss(
        self, n: Array, from_rewards: Array, divergence: Array
    ) -> tuple[Array, Metrics]:
        """Gives the policy's loss with imitation, [...], and its metrics.

        Args:
            n: int32 [], earlier updates.
            from_rewards: The loss without a teacher, [...].
            divergence: From the teacher, [...].
        """
        loss, metrics = from_rewards, {}
        if self.imitates:
            loss = self.config.policy_cost * loss + self.config.imitation_cost * divergence
            metrics = {"imitation_loss": divergence}
        if self.config.value_warm_up:
            loss = jnp.where(self.only_value_learns(n), 0.0, loss)
        return loss, metrics

    def only_value_learns(self, n: Array) -> Array:
        """Tells if only the value is learned in the update after n, bool []."""
        return n < self.config.value_warm_up

    def optimizer_before(self, state: Any, step: Array, adam: Descent) -> Any:
        """Gives the optimizer's state, anew at the policy's first step after `value_warm_up`.

        Adam has counted steps of the policy in which its gradient was 0.
        """
        if not self.config.value_warm_up:
            return state.optimizer
        begins = (state.n == self.config.value_warm_up) & (step == 0)
        return where(begins, adam.init(state.params), state.optimizer)

    def with_policy_frozen(self, n: Array, before: Tree, after: Tree) -> Tree:
        """Gives the parameters after a gradient step; during `value_warm_up` the policy's stay.

        Weight decay would move them, and the value's loss layers that both share.
        """
        if not self.config.value_warm_up:
            return after
        stays = lambda old, new: jnp.where(self.only_value_learns(n), old, new)  # noqa: E731
        return {**after, "policy": jax.tree.map(stays, before["policy"], after["policy"])}


def with_teachers(
    actions: Sequence[Array], log_prob: Array, advised: Sequence[Array], where: Callable[..., Array]
) -> list[Array]:
    """Gives the arrays of actions [B, ...], of a teacher where the policy left them to it.

    Args:
        actions: Drawn from the policy.
        log_prob: float32 [B], of these; inf where the teacher acts.
        advised: The arrays of the teacher's actions.
        where: That of NumPy or JAX.
    """
    left = log_prob == np.inf
    pairs = zip(actions, advised, strict=True)
    return [where(left.reshape(-1, *[1] * (a.ndim - 1)), b, a) for a, b in pairs]
