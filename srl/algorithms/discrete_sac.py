"""Soft actor-critic for discrete actions (Christodoulou, 2019, https://arxiv.org/abs/1910.07207).

As SAC, but critics give the values of all actions, and what the actor's choice is worth is an exact
expectation: nothing is drawn to learn.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, ClassVar, Self

from srl.algorithms.algorithm import Total
from srl.algorithms.critics import ChoiceCritics, expect_critics_fit, min_of_subset, step_key
from srl.algorithms.distributions import (
    ActionSpace,
    Categorical,
    action_distribution,
    action_mask,
    any_allowed,
)
from srl.algorithms.gradient_descent import Descent, adam, gradient_sums
from srl.algorithms.normalization import ObservationNormalizer
from srl.algorithms.off_policy import OffPolicy, TargetState
from srl.algorithms.replay import Rows, Transitions
from srl.algorithms.sac import soft_step
from srl.algorithms.sequences import (
    Batch,
    NamedNetworks,
    StepsInstance,
    expect_steps_fit,
    with_memory_settled,
)
from srl.algorithms.value_heads import chosen
from srl.core.errors import UserError
from srl.core.lazy import jax, jnp
from srl.core.schedule import Adjustable
from srl.core.settings import AtLeastOne, NotNegative, Range, ZeroToOne
from srl.core.spaces import spaces
from srl.core.types import Array, Metrics, Policy, Tree
from srl.networks import MLP, AutoNetwork, Network, PolicyAndValue


@dataclass(frozen=True)
class DiscreteSAC(OffPolicy):
    """The settings of soft actor-critic for discrete actions."""

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
    """Steps before learning begins."""
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
    """Gradient steps between moves of the target networks. A `target_rate` of 1 copies the
    networks."""
    critics: AtLeastOne = 2
    """The number of critics."""
    subset: AtLeastOne = 2
    """The number of critics in a target, redrawn for each gradient step."""
    temperature: NotNegative = 1.0
    """The first weight of the entropy."""
    target_entropy: Annotated[Adjustable, Range(-100.0, 100.0)] = 0.89
    """The target of the entropy, as a part of a uniform choice's among the allowed actions."""
    learning_rate: Annotated[Adjustable, Range(0.0)] = 3e-4
    """The step size of the actor's Adam."""
    critic_learning_rate: Annotated[Adjustable, Range(0.0)] = 3e-4
    """The step size of the critics' Adam."""
    temperature_learning_rate: Annotated[Adjustable, Range(0.0)] = 3e-4
    """The step size of the temperature's Adam."""

    values_see_more: ClassVar[bool] = True

    def validate(self) -> None:
        """Raises UserError where settings are out of their limits or do not fit each other."""
        super().validate()
        expect_steps_fit(self.settled())
        expect_critics_fit(self)

    def settled(self, num_envs: int = 64) -> Self:
        """Gives the settings with the length of unrolls and the layer after memory."""
        return with_memory_settled(self)

    @property
    def instance(self) -> type[DiscreteSACInstance]:
        """The functions of SAC for discrete actions."""
        return DiscreteSACInstance


@dataclass(frozen=True)
class ChoiceActor:
    """An actor that gives logits."""

    network: PolicyAndValue
    normalizer: ObservationNormalizer
    actions: ActionSpace

    def initial_memory(self, batch: int) -> Tree:
        """Gives the network's memory of nothing."""
        return self.network.initial_memory(batch)

    def env_action(self, action: Array) -> Array:
        """Gives what the simulator takes for the actions of a decision; needs no JAX."""
        return self.actions.to_env(action)

    def distribution(
        self, policy: Policy, observation: Tree, memory: Tree, slot: Array
    ) -> tuple[Categorical, Tree]:
        """Gives the distribution of actions, and the next memory."""
        return self.choice_and_memory(policy.params, policy.normalizer, observation, memory)

    def choice(
        self, params: Tree, statistics: Any, observation: Tree, memory: Tree = ()
    ) -> Categorical:
        """Gives the distributions of actions; without memory, for any leading axes."""
        return self.choice_and_memory(params, statistics, observation, memory)[0]

    def choice_and_memory(
        self, params: Tree, statistics: Any, observation: Tree, memory: Tree
    ) -> tuple[Categorical, Tree]:
        """Gives the distributions of actions, and the next memory."""
        inputs = self.normalizer.policy_inputs(statistics, observation)
        outputs, memory = self.network.policy(params, inputs, memory)
        choice = self.actions((), outputs, action_mask(observation))
        return choice, memory  # type: ignore[return-value]

    def memories(self, params: Tree, statistics: Any, rows: Rows, memory: Tree) -> Array:
        """Gives the memory before each row and after the last; see `srl.algorithms.sequences`."""
        inputs = self.normalizer.policy_inputs(statistics, rows.observation)
        return self.network.policy_memories(params, inputs, memory, rows.ended)


@dataclass(frozen=True)
class DiscreteSACInstance(StepsInstance):
    """SAC for one trained policy of discrete actions."""

    config: DiscreteSAC

    def __post_init__(self) -> None:
        """Raises UserError for actions that are not one choice."""
        if not isinstance(self.specs.action, spaces.Discrete):
            raise UserError(
                f"DiscreteSAC needs Discrete actions, and the action space is {self.specs.action}: "
                "take SAC or TD3 for bounded continuous ones, PPO, APPO or IMPALA for others"
            )

    @cached_property
    def actor(self) -> ChoiceActor:
        """The actor, with the network of the critics as its value."""
        actions = action_distribution(self.specs.action)
        seen, outputs = self.normalizer.policy_space, actions.num_outputs
        network = self.config.network.build(seen, outputs, self.specs.observation)
        return ChoiceActor(network, self.normalizer, actions)

    @cached_property
    def critics(self) -> ChoiceCritics:
        """The critics, each of which has a target network."""
        network = self.actor.network.with_value_outputs(self.actor.actions.num_outputs)
        return ChoiceCritics(network, self.normalizer, self.config.critics)

    @property
    def descents(self) -> dict[str, Descent]:
        """The optimizers of the networks and of the temperature."""
        return dict.fromkeys(("actor", "critics", "log_temperature"), adam())

    def init(self, key: Array) -> TargetState:
        """Draws parameters, which the target networks start from, too."""
        params_key, learning_key = jax.random.split(key)
        actor_key, critic_key = jax.random.split(params_key)
        params = {
            "actor": self.actor.network.init_policy(actor_key),
            "critics": self.critics.init(critic_key),
            "log_temperature": jnp.log(jnp.float32(self.config.temperature)),
        }
        optimizer = {name: self.descents[name].init(x) for name, x in params.items()}
        return TargetState.first(self, learning_key, params, optimizer, targets=params["critics"])

    def policy(self, state: TargetState) -> Policy:
        """Gives the actor's parameters and the statistics of observations."""
        return Policy(state.params["actor"], self.normalizer.policy_statistics(state.observations))

    def targets(self, state: TargetState) -> NamedNetworks:
        """Gives the target networks; see `StepsInstance`."""
        return {"targets": ("critics", self.critics, state.targets)}

    def expected(self, choice: Categorical, values: Array) -> Array:
        """Gives the expected value of the actor's choice (eq. 10), [S]."""
        return jnp.sum(jnp.exp(choice.log_probs[0]) * values, axis=-1)

    def entropy(self, choice: Categorical, observation: Tree) -> Array:
        """Gives the entropy of the choice, [S]; 0 where nothing may be chosen."""
        return jnp.where(any_allowed(observation), choice.entropy(), 0.0)

    def critic_loss(
        self, critics: Tree, state: TargetState, steps: Transitions, key: Array
    ) -> tuple[Array, Metrics]:
        """Half the squared soft Bellman residuals, [S]."""
        params, statistics = state.params, state.observations
        last = statistics, steps.last
        choice = self.actor.choice(params["actor"], *last, steps.last_memory("actor"))
        next_values = self.critics.values(state.targets, *last, steps.last_memory("targets"))
        next_values = min_of_subset(next_values, key, self.config.subset)
        next_value = self.expected(choice, next_values)
        soft_value = next_value + jnp.exp(params["log_temperature"]) * self.entropy(
            choice, steps.last
        )
        target = steps.reward + steps.discount * soft_value
        seen = statistics, steps.observation, steps.memory("critics")
        values = self.critics.values(critics, *seen)
        values = chosen(values, steps.action)
        loss = 0.5 * jnp.sum(jnp.square(values - target), axis=0)
        return loss, {"critic_loss": loss, "q_value": jnp.mean(values, axis=0)}

    def actor_loss(
        self, actor: Tree, state: TargetState, steps: Transitions
    ) -> tuple[Array, Metrics]:
        """The expected value and the entropy, negative (eq. 12), [S]."""
        observation = steps.observation
        seen = state.observations, observation
        choice = self.actor.choice(actor, *seen, steps.memory("actor"))
        values = self.critics.values(state.params["critics"], *seen, steps.memory("critics"))
        # With two critics the actor goes by the least value, with more by the mean (REDQ).
        joined = jnp.min if self.config.critics == 2 else jnp.mean
        value = self.expected(choice, joined(values, axis=0))
        entropy = self.entropy(choice, observation)
        loss = -(value + jnp.exp(state.params["log_temperature"]) * entropy)
        return loss, {"actor_loss": loss, "entropy": entropy}

    def alpha_loss(
        self, log_alpha: Array, entropy: Array, observation: Tree
    ) -> tuple[Array, Metrics]:
        """The entropy's difference to its target, times log alpha (eq. 11), [S]."""
        mask, count = action_mask(observation), self.actor.actions.num_outputs
        allowed = count if mask is None else jnp.sum(mask.astype(bool), axis=-1)
        # Masks after the last action may allow nothing.
        most = jnp.log(jnp.maximum(allowed, 1).astype(jnp.float32))
        surplus = entropy - self.config.target_entropy * most
        alpha = jnp.broadcast_to(jnp.exp(log_alpha), entropy.shape)
        return log_alpha * surplus, {"temperature": alpha}

    def gradient_step(
        self, state: TargetState, batch: Batch, step: Array, total: Total
    ) -> tuple[TargetState, Metrics]:
        """Takes a step of Adam for each network and for alpha; the target networks follow."""
        params = state.params
        drawn = jax.tree.map(lambda x: x[step], batch.transitions)
        key = jax.random.split(step_key(state, step), 3)[0]

        def critic_loss(critics: Tree) -> tuple[Array, Metrics]:
            return self.critic_loss(
                critics, state, self.transitions_of(drawn, state, critics=critics), key
            )

        def actor_loss(actor: Tree) -> tuple[Array, Metrics]:
            return self.actor_loss(actor, state, self.transitions_of(drawn, state, actor=actor))

        def gradients() -> Any:
            steps = self.transitions_of(drawn, state)
            critics, _ = gradient_sums(critic_loss, params["critics"], steps.valid)
            actor, by_sample = gradient_sums(actor_loss, params["actor"], steps.valid)
            loss = lambda x: self.alpha_loss(x, by_sample["entropy"], steps.observation)  # noqa: E731
            alpha, _ = gradient_sums(loss, params["log_temperature"], steps.valid)
            return {"critics": critics, "actor": actor, "log_temperature": alpha}

        return soft_step(self, state, step, gradients, total)
