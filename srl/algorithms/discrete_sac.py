"""Soft actor-critic for discrete actions (Christodoulou, 2019, https://arxiv.org/abs/1910.07207).

As SAC, but critics give the values of all actions, and what the actor's choice is worth is an exact
expectation: nothing is drawn to learn.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, NamedTuple

from srl.algorithms.algorithm import Instance, Total
from srl.algorithms.critics import ChoiceCritics, expect_critics_fit, min_of_subset, step_key
from srl.algorithms.distributions import (
    ActionSpace,
    Categorical,
    action_distribution,
    action_mask,
    any_allowed,
)
from srl.algorithms.gradient_descent import Descent, adam, descend, gradient_sums, polyak, where
from srl.algorithms.normalization import ObservationNormalizer, Statistics
from srl.algorithms.off_policy import OffPolicy, replay_for
from srl.algorithms.replay import Replay, Transitions
from srl.algorithms.replay_ratio import ReplayRatio, zeros_unless
from srl.algorithms.uniform_replay import Sampling, expect_transitions_fit
from srl.algorithms.value_heads import chosen
from srl.core.errors import UserError
from srl.core.lazy import jax, jnp
from srl.core.schedule import Adjustable
from srl.core.settings import AtLeastOne, NotNegative, Range, ZeroToOne
from srl.core.spaces import spaces
from srl.core.types import Array, Metrics, Policy, Tree, Unroll
from srl.networks import MLP, AutoNetwork, Network, PolicyAndValue


@dataclass(frozen=True)
class DiscreteSAC(OffPolicy):
    """The settings of soft actor-critic for discrete actions."""

    unroll_length: Annotated[int, Range(1, 2**31 - 1)] = 8
    """Steps of each unroll, all with one version of the policy."""
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

    def validate(self) -> None:
        """Raises UserError where settings are out of their limits or do not fit each other."""
        super().validate()
        expect_transitions_fit(self)
        expect_critics_fit(self)

    @property
    def instance(self) -> type[DiscreteSACInstance]:
        """The functions of SAC for discrete actions."""
        return DiscreteSACInstance


class DiscreteSACState(NamedTuple):
    """The state of DiscreteSAC's learning; see `State`."""

    params: dict[str, Tree]  # "actor", "critics" [critics, ...], "log_temperature"
    optimizer: dict[str, Tree]  # an Adam for each of these
    key: Array
    n: Array
    observations: dict[str, Statistics]
    targets: Tree  # the critics' target networks


class Batch(NamedTuple):
    """The transitions for all gradient steps, [gradient_steps, S, ...]."""

    transitions: Transitions
    observations: dict[str, Statistics]


@dataclass(frozen=True)
class ChoiceActor:
    """An actor that gives logits."""

    network: PolicyAndValue
    normalizer: ObservationNormalizer
    actions: ActionSpace

    def initial_memory(self, batch: int) -> Tree:
        """Gives no memory."""
        return ()

    def env_action(self, action: Array) -> Array:
        """Gives what the simulator takes for the actions of a decision; needs no JAX."""
        return self.actions.to_env(action)

    def distribution(
        self, policy: Policy, observation: Tree, memory: Tree, slot: Array
    ) -> tuple[Categorical, Tree]:
        """Gives the distribution of actions."""
        return self.choice(policy.params, policy.normalizer, observation), memory

    def choice(self, params: Tree, statistics: Any, observation: Tree) -> Categorical:
        """Gives the distributions of actions, for any leading axes."""
        inputs = self.normalizer.normalize(statistics, observation)
        outputs = self.network.policy_sequence(params, inputs)
        return self.actions((), outputs, action_mask(observation))  # type: ignore[return-value]


@dataclass(frozen=True)
class DiscreteSACInstance(Instance):
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
        """The actor, whose network is of the same form as a critic."""
        actions = action_distribution(self.specs.action)
        network = self.config.network.build(self.specs.observation, actions.num_outputs)
        return ChoiceActor(network, self.normalizer, actions)

    @cached_property
    def critics(self) -> ChoiceCritics:
        """The critics, each of which has a target network."""
        return ChoiceCritics(self.actor.network, self.normalizer, self.config.critics)

    @property
    def descents(self) -> dict[str, Descent]:
        """The optimizers of the networks and of the temperature."""
        return dict.fromkeys(("actor", "critics", "log_temperature"), adam())

    @cached_property
    def ratio(self) -> ReplayRatio:
        """The gradient steps of each update."""
        return ReplayRatio.of(self.config, self.slots)

    @cached_property
    def replay(self) -> Sampling:
        """The replay: of transitions, which are windows of n_step + 1 rows."""
        return replay_for(self, self.config.n_step + 1)

    @property
    def gradient_steps(self) -> int:
        """Gradient steps of an update."""
        return self.ratio.gradient_steps

    def init(self, key: Array) -> DiscreteSACState:
        """Draws parameters, which the target networks start from, too."""
        params_key, learning_key = jax.random.split(key)
        actor_key, critic_key = jax.random.split(params_key)
        params = {
            "actor": self.actor.network.init(actor_key)["policy"],
            "critics": self.critics.init(critic_key),
            "log_temperature": jnp.log(jnp.float32(self.config.temperature)),
        }
        return DiscreteSACState(
            params=params,
            optimizer={name: self.descents[name].init(x) for name, x in params.items()},
            key=jax.random.key_data(learning_key),
            n=jnp.zeros((), jnp.int32),
            observations=self.normalizer.init(),
            targets=jax.tree.map(jnp.copy, params["critics"]),
        )

    def policy(self, state: DiscreteSACState) -> Policy:
        """Gives the actor's parameters and the statistics of observations."""
        return Policy(state.params["actor"], state.observations)

    def empty_replay(self, unroll: Unroll) -> Replay:
        """Gives a replay of nothing for the slots of this unroll."""
        return self.replay.empty(unroll)

    def prepare(
        self, state: DiscreteSACState, replay: Replay, unroll: Unroll, total: Total
    ) -> tuple[DiscreteSACState, Replay, Batch]:
        """Inserts the unroll, and draws the transitions of all gradient steps."""
        replay = self.replay.insert(replay, unroll, state.n)
        draw = state, replay, unroll.slot, total, self.config.discount
        steps, _ = self.replay.sample_transitions(*draw)
        observations = self.normalizer.seen(state.observations, unroll, total)
        return state, replay, Batch(steps, observations)

    def expected(self, choice: Categorical, values: Array, observation: Tree) -> Array:
        """Gives the expected value of the actor's choice (eq. 10), [S]; 0 without any choice."""
        value = jnp.sum(jnp.exp(choice.log_probs[0]) * values, axis=-1)
        return jnp.where(any_allowed(observation), value, 0.0)

    def entropy(self, choice: Categorical, observation: Tree) -> Array:
        """Gives the entropy of the choice, [S]; 0 where nothing may be chosen."""
        return jnp.where(any_allowed(observation), choice.entropy(), 0.0)

    def critic_loss(
        self, critics: Tree, state: DiscreteSACState, steps: Transitions, key: Array
    ) -> tuple[Array, Metrics]:
        """Half the squared soft Bellman residuals, [S]."""
        params, statistics = state.params, state.observations
        choice = self.actor.choice(params["actor"], statistics, steps.last)
        next_values = self.critics.values(state.targets, statistics, steps.last)
        next_values = min_of_subset(next_values, key, self.config.subset)
        next_value = self.expected(choice, next_values, steps.last)
        soft_value = next_value + jnp.exp(params["log_temperature"]) * self.entropy(
            choice, steps.last
        )
        target = steps.reward + steps.discount * soft_value
        values = self.critics.values(critics, statistics, steps.observation)
        values = chosen(values, steps.action)
        loss = 0.5 * jnp.sum(jnp.square(values - target), axis=0)
        return loss, {"critic_loss": loss, "q_value": jnp.mean(values, axis=0)}

    def actor_loss(
        self, actor: Tree, state: DiscreteSACState, steps: Transitions
    ) -> tuple[Array, Metrics]:
        """The expected value and the entropy, negative (eq. 12), [S]."""
        observation = steps.observation
        choice = self.actor.choice(actor, state.observations, observation)
        values = self.critics.values(state.params["critics"], state.observations, observation)
        # With two critics the actor goes by the least value, with more by the mean (REDQ).
        joined = jnp.min if self.config.critics == 2 else jnp.mean
        value = self.expected(choice, joined(values, axis=0), observation)
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
        self, state: DiscreteSACState, batch: Batch, step: Array, total: Total
    ) -> tuple[DiscreteSACState, Metrics]:
        """Takes a step of Adam for each network and for alpha; the target networks follow."""
        config, params = self.config, state.params
        steps = jax.tree.map(lambda x: x[step], batch.transitions)
        key = jax.random.split(step_key(state, step), 3)[0]

        def gradients() -> Any:
            loss = lambda x: self.critic_loss(x, state, steps, key)  # noqa: E731
            critics, _ = gradient_sums(loss, params["critics"], steps.valid)
            loss = lambda x: self.actor_loss(x, state, steps)  # noqa: E731
            actor, each = gradient_sums(loss, params["actor"], steps.valid)
            loss = lambda x: self.alpha_loss(x, each["entropy"], steps.observation)  # noqa: E731
            alpha, _ = gradient_sums(loss, params["log_temperature"], steps.valid)
            return {"critics": critics, "actor": actor, "log_temperature": alpha}

        sums = total(zeros_unless(self.ratio.due(state.n, step), gradients))
        rates = {
            "critics": config.critic_learning_rate,
            "actor": config.learning_rate,
            "log_temperature": config.temperature_learning_rate,
        }
        moved, optimizer, metrics = descend(self.descents, state, sums, rates)
        moves = self.ratio.every(config.target_period, state.n, step)
        tau = jnp.where(moves, config.target_rate, 0.0)
        targets = polyak(moved["critics"], state.targets, tau)
        learned = state._replace(params=moved, optimizer=optimizer, targets=targets)
        return where(sums["critics"].count > 0, learned, state), metrics

    def finish(
        self, state: DiscreteSACState, replay: Replay, batch: Batch, metrics: Metrics
    ) -> tuple[DiscreteSACState, Replay, Metrics]:
        """Takes in the statistics of observations, and counts the update."""
        learned = state._replace(n=state.n + 1, observations=batch.observations)
        return learned, replay, self.ratio.means(metrics)
