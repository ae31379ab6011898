"""Twin delayed deep deterministic policy gradients (Fujimoto et al., 2018).

https://arxiv.org/abs/1802.09477: the critics learn from n-step transitions drawn from a replay,
with targets by target networks: the least value of the target actor's action with a bounded noise.
Every `delay` gradient steps, the actor takes one along the critics' gradient, and the target
networks follow.
With hundreds of environments (FastTD3, Seo et al., 2025, https://arxiv.org/abs/2505.22642), each
slot may explore with a noise of its own, and critics may learn distributions of returns.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, ClassVar, Self

from srl.algorithms.algorithm import Total
from srl.algorithms.bounded_actor import BoundedActor, UniformUntil, expect_bounded, noise_by_slot
from srl.algorithms.critics import ActionCritics, expect_critics_fit, step_key
from srl.algorithms.distributions import Distribution, of_slots, only
from srl.algorithms.gradient_descent import Descent, adam, descend, gradient_sums, polyak, where
from srl.algorithms.off_policy import OffPolicy, TargetState
from srl.algorithms.replay import Transitions
from srl.algorithms.replay_ratio import zeros_unless
from srl.algorithms.sequences import (
    Batch,
    NamedNetworks,
    StepsInstance,
    expect_steps_fit,
    with_memory_settled,
)
from srl.algorithms.value_forms import expect_range_fits, value_form
from srl.core.errors import UserError
from srl.core.lazy import jax, jnp
from srl.core.schedule import Adjustable
from srl.core.settings import AtLeastOne, NotNegative, Range, ZeroToOne
from srl.core.types import Array, Metrics, Policy, Tree
from srl.networks import MLP, AutoNetwork, Network


@dataclass(frozen=True)
class TD3(OffPolicy):
    """The settings of TD3. All deviations are of actions whose bounds are -1 and 1."""

    unroll_length: Annotated[int, Range(0, 2**31 - 1)] = 0
    """Steps of each unroll, all with one version of the policy; 0 takes 8, or 32 with memory."""
    discount: ZeroToOne = 0.99
    """Weight of a reward one step later."""
    network: Network = field(default_factory=lambda: AutoNetwork(MLP(width=256, activation="relu")))
    """Network of the actor and of the critics; the observation decides the default."""
    normalize_observations: bool = False
    """Standardise observations by running statistics when they are drawn."""
    replay: AtLeastOne = 1_000_000
    """The capacity of the replay, in steps of all environments."""
    warm_up: Annotated[int, Range(0)] = 5_000
    """Steps before learning begins, with uniformly drawn actions."""
    batch_size: AtLeastOne = 256
    """Transitions of a gradient step, rounded to a multiple or a part of the slots."""
    samples_per_insert: Annotated[float, Range(0.001)] = 256.0
    """The mean number of times that each step is learned from, exact despite the batch's rounding.
    256 with batches of 256 is a gradient step for each env step."""
    n_step: AtLeastOne = 1
    """Steps of a transition, which stays within its unroll: fewer near the unroll's end."""
    sequence: AtLeastOne = 16
    """Steps that a network with memory learns from in sequence; see `burn_in`."""
    burn_in: Annotated[int, Range(0)] = 16
    """Steps before a sequence that only bring the memory up to date; fewer at the start of an
    unroll, and none without memory."""
    target_rate: ZeroToOne = 0.005
    """The part of the way that the target networks move towards the networks at a time."""
    target_period: AtLeastOne = 1
    """The actor's gradient steps between moves of the target networks. A `target_rate` of 1 copies
    the networks."""
    critics: AtLeastOne = 2
    """The number of critics."""
    subset: AtLeastOne = 2
    """The number of critics in a target, redrawn for each gradient step."""
    atoms: AtLeastOne = 1
    """Atoms of the distributions of returns that critics learn: 1 learns the mean, 101 is
    FastTD3's."""
    value_range: tuple[float, float] | None = None
    """The returns of the first and the last atom; returns beyond are clipped. By default those of
    rewards from -1 to 1: reward_scale / (1 - discount) either way."""
    noise: tuple[float, float] = (0.1, 0.1)
    """The deviations of the first and the last slot's exploration noise; others lie evenly
    between."""
    target_noise: NotNegative = 0.2
    """The deviation of the noise of targets' actions."""
    noise_clip: NotNegative = 0.5
    """The bound of the noise of targets' actions."""
    delay: AtLeastOne = 2
    """Gradient steps of the critics for each step of the actor."""
    learning_rate: Annotated[Adjustable, Range(0.0)] = 1e-3
    """The step size of the actor's Adam."""
    critic_learning_rate: Annotated[Adjustable, Range(0.0)] = 1e-3
    """The step size of the critics' Adam."""
    weight_decay: NotNegative = 0.0
    """The decay of AdamW, of actor and critics; 0 is Adam. FastTD3 has 0.1."""

    values_see_more: ClassVar[bool] = True

    def validate(self) -> None:
        """Raises UserError where settings are out of their limits or do not fit each other."""
        super().validate()
        expect_steps_fit(self.settled())
        expect_critics_fit(self)
        expect_range_fits(self)
        if len(self.noise) != 2 or min(self.noise) < 0:
            raise UserError(f"TD3 with noise={self.noise}; expected two deviations of 0 or more")

    def settled(self, num_envs: int = 64) -> Self:
        """Gives the settings with the length of unrolls and the layer after memory."""
        return with_memory_settled(self)

    @property
    def instance(self) -> type[TD3Instance]:
        """The functions of TD3."""
        return TD3Instance


@dataclass(frozen=True)
class NoisyAction(Distribution):
    """An action with normal noise, clipped to [-1, 1]."""

    action: Array  # [B, *shape]
    deviation: Array  # [B]
    mask: Array | None = None  # bool [B, *shape], the numbers that there are; None for all

    def sample(self, keys: Array) -> Array:
        """Draws an action for each slot with the slot's own key: keys [B]."""
        noise = jax.vmap(lambda key: jax.random.normal(key, self.action.shape[1:]))(keys)
        deviation = self.deviation.reshape(-1, *[1] * (self.action.ndim - 1))
        return only(self.mask, jnp.clip(self.action + deviation * noise, -1.0, 1.0))

    def mode(self) -> Array:
        """Gives the action without noise."""
        return self.action

    def log_prob(self, action: Array) -> Array:
        """Gives zeros: an action that is clipped has no density."""
        return jnp.zeros(self.action.shape[:1])

    def parameters(self) -> dict[str, Array]:
        """Gives nothing: the action says it all."""
        return {}


class NoisyActor(BoundedActor):
    """An actor that gives actions, before the hyperbolic tangent."""

    def distribution(
        self, policy: Policy, observation: Tree, memory: Tree, slot: Array
    ) -> tuple[UniformUntil, Tree]:
        """Gives the actions with the slots' own noise; uniform ones during warm-up."""
        given = policy.params["actor"], policy.normalizer, observation, memory
        outputs, memory = self.step(*given)
        mask = self.shaped_mask(observation)
        action = only(mask, self.shaped(jnp.tanh(outputs)))
        deviation = of_slots(policy.params["noise"], slot)
        begun, shape = policy.params["acts"], action.shape[1:]
        return UniformUntil(begun, NoisyAction(action, deviation, mask), shape, mask), memory


@dataclass(frozen=True)
class TD3Instance(StepsInstance):
    """TD3 for one trained policy."""

    config: TD3

    def __post_init__(self) -> None:
        """Raises UserError for actions that are not bounded numbers."""
        expect_bounded(self.config, self.specs)

    @cached_property
    def actor(self) -> NoisyActor:
        """The actor."""
        return NoisyActor(self.config.network, self.specs, self.normalizer, 1)

    @cached_property
    def critics(self) -> ActionCritics:
        """The critics."""
        config = self.config
        inputs = config.network, self.specs, self.normalizer
        return ActionCritics(*inputs, config.critics, config.subset, value_form(config))

    @property
    def descents(self) -> dict[str, Descent]:
        """The optimizers of the networks."""
        return dict.fromkeys(("critics", "actor"), adam(self.config.weight_decay))

    def init(self, key: Array) -> TargetState:
        """Draws parameters, which the target networks start from, too."""
        params_key, learning_key = jax.random.split(key)
        actor_key, critic_key = jax.random.split(params_key)
        params = {"actor": self.actor.init(actor_key), "critics": self.critics.init(critic_key)}
        optimizer = {name: self.descents[name].init(x) for name, x in params.items()}
        return TargetState.first(self, learning_key, params, optimizer, targets=params)

    def policy(self, state: TargetState) -> Policy:
        """Gives the actor's parameters, the noise of the slots, and whether the actor acts yet."""
        params = {
            "actor": state.params["actor"],
            "noise": jnp.linspace(*self.config.noise, max(self.slots, 1)),
            "acts": self.ratio.past_warm_up(state.n),
        }
        return Policy(params, self.normalizer.policy_statistics(state.observations))

    def targets(self, state: TargetState) -> NamedNetworks:
        """Gives the target networks; see `StepsInstance`."""
        return {
            "target_actor": ("actor", self.actor, state.targets["actor"]),
            "target_critics": ("critics", self.critics, state.targets["critics"]),
        }

    def critic_loss(
        self, critics: Tree, state: TargetState, steps: Transitions, key: Array, slot: Array
    ) -> tuple[Array, Metrics]:
        """Half the squared errors to clipped double Q-targets (algorithm 1), [S].

        With atoms, the cross-entropies to the distribution of the critic of least value (FastTD3).
        """
        statistics, form = state.observations, self.critics.form
        subset_key, noise_key = jax.random.split(key)
        numbers = self.ratio.share, self.actor.size, self.sequence
        noise = noise_by_slot(noise_key, slot, *numbers)
        last = statistics, steps.last, steps.last_memory("target_actor")
        action = self.smoothed(self.actor.outputs(state.targets["actor"], *last), noise)
        action = only(self.actor.mask(steps.last), action)
        last = statistics, steps.last, action, steps.last_memory("target_critics")
        following = self.critics.outputs(state.targets["critics"], *last)
        inputs = steps.reward, steps.discount, self.critics.least(following, subset_key)
        taken = steps.observation, steps.action, steps.memory("critics")
        outputs = self.critics.outputs(critics, statistics, *taken)
        loss = jnp.sum(form.loss(outputs, form.target(*inputs))[1], axis=0)
        value = jnp.mean(form.value(outputs), axis=0)
        return loss, {"critic_loss": loss, "q_value": value, **form.metrics(*inputs)}

    def smoothed(self, outputs: Array, noise: Array) -> Array:
        """Gives the targets' actions from the actor's outputs and normal numbers, [S, numbers]."""
        bound = self.config.noise_clip
        noise = jnp.clip(self.config.target_noise * noise, -bound, bound)
        return jnp.clip(jnp.tanh(outputs) + noise, -1.0, 1.0)

    def actor_loss(
        self, actor: Tree, state: TargetState, steps: Transitions
    ) -> tuple[Array, Metrics]:
        """The value of the actor's actions, negative (algorithm 1), [S]."""
        statistics, observation = state.observations, steps.observation
        given = statistics, observation, steps.memory("actor")
        outputs = self.actor.outputs(actor, *given)
        action = only(self.actor.mask(observation), jnp.tanh(outputs))
        given = statistics, observation, action, steps.memory("critics")
        values = self.critics.values(state.params["critics"], *given)
        # With two critics the actor goes by the first, with more by the mean (REDQ).
        return -(values[0] if self.config.critics == 2 else jnp.mean(values, axis=0)), {}

    def gradient_step(
        self, state: TargetState, batch: Batch, step: Array, total: Total
    ) -> tuple[TargetState, Metrics]:
        """Takes a step of Adam for the critics; every `delay` steps for the actor and targets."""
        config, ratio, params = self.config, self.ratio, state.params
        drawn, slot = jax.tree.map(lambda x: x[step], (batch.transitions, batch.slot))
        key = step_key(state, step)
        actor_due = ratio.every(config.delay, state.n, step)

        def critic_loss(critics: Tree) -> tuple[Array, Metrics]:
            steps = self.transitions_of(drawn, state, critics=critics)
            return self.critic_loss(critics, state, steps, key, slot)

        def actor_loss(actor: Tree) -> tuple[Array, Metrics]:
            return self.actor_loss(actor, state, self.transitions_of(drawn, state, actor=actor))

        def actor_gradient() -> Any:
            valid = self.transitions_of(drawn, state).valid
            return gradient_sums(actor_loss, params["actor"], valid)[0]

        def gradients() -> Any:
            valid = self.transitions_of(drawn, state).valid
            critics, _ = gradient_sums(critic_loss, params["critics"], valid)
            return {"critics": critics, "actor": zeros_unless(actor_due, actor_gradient)}

        sums = total(zeros_unless(ratio.due(state.n, step), gradients))
        rates = {"critics": config.critic_learning_rate, "actor": config.learning_rate}
        moved, optimizer, metrics = descend(self.descents, state, sums, rates)
        moved["actor"], optimizer["actor"] = where(
            actor_due,
            (moved["actor"], optimizer["actor"]),
            (params["actor"], state.optimizer["actor"]),
        )
        moves = ratio.every(config.delay * config.target_period, state.n, step)
        targets = polyak(moved, state.targets, jnp.where(moves, config.target_rate, 0.0))
        learned = state._replace(params=moved, optimizer=optimizer, targets=targets)
        return where(sums["critics"].count > 0, learned, state), metrics
