"""A network of action values, and acting by it: epsilon-greedy."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from srl.algorithms.distributions import Distribution, action_mask, of_slots
from srl.algorithms.normalization import ObservationNormalizer
from srl.algorithms.value_heads import ValueHead, of_action
from srl.core.errors import UserError
from srl.core.lazy import jax, jnp
from srl.core.spaces import spaces
from srl.core.types import Array, Policy, Specs, Tree, Unroll
from srl.networks import Network, PolicyAndValue


def epsilon(config: Any, n: Array, updates: int | Array | None, slots: int) -> Array:
    """Gives the share of random actions: of each slot, or [1] where they are alike.

    Slot i of N draws the share to the power of 1 + epsilon_spread * i / (N - 1) (Ape-X, Horgan et
    al., 2018).

    Args:
        config: The share changes linearly from `epsilon_start` to `epsilon_end` in the part
            `exploration` of the run; `epsilon_spread` is the difference between slots.
        n: int32 [], earlier updates.
        updates: Of the run, where that is known.
        slots: Of the run.
    """
    passed = jnp.ones(())
    if updates is not None and config.exploration:
        passed = jnp.minimum(n / (config.exploration * updates), 1.0)
    share = config.epsilon_start + passed * (config.epsilon_end - config.epsilon_start)
    slots = max(slots, 1) if config.epsilon_spread else 1
    return share ** (1 + config.epsilon_spread * jnp.linspace(0.0, 1.0, slots))


def exploring_policy(instance: Any, state: Any) -> Policy:
    """Gives the policy that `QNetwork.distribution` takes.

    Args:
        instance: Of an algorithm with the settings that `epsilon` takes, and a `QNetwork` or a
            `TeamNetwork` as its `actor`.
        state: With the parameters, the statistics of observations, and the count of updates.
    """
    share = epsilon(instance.config, state.n, instance.updates, instance.slots)
    params = {"network": instance.actor.acting(state.params), "epsilon": share}
    return Policy(params, state.observations)


@dataclass(frozen=True)
class EpsilonGreedy(Distribution):
    """The best action, or with probability epsilon any allowed one."""

    values: Array  # [B, actions], the least number for forbidden ones
    allowed: Array  # bool [B, actions]
    epsilon: Array  # [B]

    def sample(self, keys: Array) -> Array:
        """Draws an action for each slot with the slot's own key: keys [B]."""

        def draw(key: Array) -> tuple[Array, Array]:
            coin, choice = jax.random.split(key)
            return jax.random.uniform(coin), jax.random.gumbel(choice, self.values.shape[-1:])

        coin, noise = jax.vmap(draw)(keys)
        any_action = jnp.argmax(jnp.where(self.allowed, noise, -jnp.inf), axis=-1)
        return jnp.where(coin < self.epsilon, any_action, self.mode()).astype(jnp.int32)

    def mode(self) -> Array:
        """Gives the action of the highest value."""
        return jnp.argmax(self.values, axis=-1).astype(jnp.int32)

    def log_prob(self, action: Array) -> Array:
        """Gives the logarithm of the probability of an action."""
        share = self.epsilon / jnp.sum(self.allowed, axis=-1)
        return jnp.log(share + jnp.where(action == self.mode(), 1 - self.epsilon, 0.0))

    def parameters(self) -> dict[str, Array]:
        """Gives the values of actions."""
        return {"action_values": self.values}


@dataclass(frozen=True)
class QNetwork:
    """The network, as pure functions of its parameters; `statistics` are those of observations."""

    settings: Network
    specs: Specs
    normalizer: ObservationNormalizer
    head: ValueHead

    @cached_property
    def network(self) -> PolicyAndValue:
        """The network's functions, of which action values use the policy's."""
        streams, space = self.head.streams, self.normalizer.policy_space
        if len(streams) == 1:
            return self.settings.build(space, *streams)
        from srl.networks.heads import Streams

        built = self.settings.build(space, 0)
        return replace(built, policy_module=Streams(built.policy_module, streams))

    def init(self, key: Array) -> Tree:
        """Draws the parameters."""
        return self.network.init_policy(key)

    def acting(self, params: Tree) -> Tree:
        """Gives the parameters that acting needs: all."""
        return params

    def initial_memory(self, batch: int) -> Tree:
        """Gives the network's memory of nothing."""
        return self.network.initial_memory(batch)

    def env_action(self, action: Array) -> Array:
        """Gives the actions as the simulator counts them; needs no JAX."""
        start = int(getattr(self.specs.action, "start", 0))
        return action + start if start else action

    def distribution(
        self, policy: Policy, observation: Tree, memory: Tree, slot: Array
    ) -> tuple[EpsilonGreedy, Tree]:
        """Gives the distribution of actions, with the slots' own epsilon, and the next memory.

        Args:
            policy: With the parameters {"network", "epsilon"}.
            observation: [B, ...].
            memory: [B, ...].
            slot: int32 [B].
        """
        inputs = self.normalizer.policy_inputs(policy.normalizer, observation)
        outputs, memory = self.network.policy(policy.params["network"], inputs, memory)
        values = self.mask(observation, self.head.values(outputs))
        shares = of_slots(policy.params["epsilon"], slot)
        return EpsilonGreedy(values, allowed(observation, values), shares), memory

    def outputs(
        self,
        params: Tree,
        statistics: Any,
        observation: Tree,
        memory: Tree = (),
        ended: Array | None = None,
    ) -> Array:
        """Gives the network's output for each row.

        Args:
            params: Of the network.
            statistics: Of observations.
            observation: [L, B, ...]; without memory, any leading axes.
            memory: [B, ...], before the first row.
            ended: bool [L, B], rows that end an episode; only memory needs it.
        """
        inputs = self.normalizer.policy_inputs(statistics, observation)
        return self.network.policy_sequence(params, inputs, memory, ended)

    def memories(
        self, params: Tree, statistics: Any, observation: Tree, memory: Tree, ended: Array
    ) -> Array:
        """Gives the memories before each row and after the last, [L + 1, B, units]."""
        inputs = self.normalizer.policy_inputs(statistics, observation)
        return self.network.policy_memories(params, inputs, memory, ended)

    def best(self, observation: Tree, outputs: Array) -> Array:
        """Gives the best allowed action of each row, int32 [...], by outputs [..., outputs].

        Where nothing is allowed, as while others have their turn, that is the first, as in acting.
        """
        return jnp.argmax(self.mask(observation, self.head.values(outputs)), axis=-1)

    def joint(
        self, params: Tree, statistics: Any, observation: Tree, outputs: Array, action: Array
    ) -> Array:
        """Gives the part of the outputs that is the value of the actions taken.

        Here that is the action's own part. It is the place where `TeamNetwork` joins agents.

        Args:
            params: Of the network.
            statistics: Of observations.
            observation: [...].
            outputs: [..., outputs], of these parameters and observations.
            action: int32 [...].

        Returns:
            [..., size of the head's form].
        """
        return of_action(self.head.parts(outputs), action)

    def seen(self, statistics: Any, unroll: Unroll, total: Any) -> Any:
        """Gives the statistics with the observations of an unroll, and of its other slots."""
        return self.normalizer.seen(statistics, unroll, total)

    def values(
        self,
        params: Tree,
        statistics: Any,
        observation: Tree,
        memory: Tree = (),
        ended: Array | None = None,
    ) -> Array:
        """Gives the values of all actions, [L, B, actions]; see `outputs`."""
        outputs = self.outputs(params, statistics, observation, memory, ended)
        return self.mask(observation, self.head.values(outputs))

    def mask(self, observation: Tree, values: Array) -> Array:
        """Gives the values with the least number in place of those of forbidden actions."""
        return jnp.where(allowed(observation, values), values, jnp.finfo(values.dtype).min)


def q_network(config: Any, specs: Specs, normalizer: ObservationNormalizer, head: Any) -> QNetwork:
    """Gives the network of an algorithm's settings.

    Args:
        config: The algorithm's settings, of which `network` is used.
        specs: Of the environments.
        normalizer: Of observations.
        head: Makes the head for a number of actions.

    Raises:
        UserError: If actions are not one choice.
    """
    if not isinstance(specs.action, spaces.Discrete):
        is_box = isinstance(specs.action, spaces.Box)
        other = "SAC or TD3 for bounded numbers, or PPO" if is_box else "PPO, APPO or IMPALA"
        raise UserError(
            f"{type(config).__name__} learns a value for each action, and cannot for "
            f"{specs.action}; it needs Discrete actions: take {other}"
        )
    return QNetwork(config.network, specs, normalizer, head(int(specs.action.n)))


def allowed(observation: Tree, values: Array) -> Array:
    """Gives which actions are allowed, bool [..., actions]."""
    mask = action_mask(observation)
    return jnp.ones(values.shape, bool) if mask is None else mask.astype(bool)
