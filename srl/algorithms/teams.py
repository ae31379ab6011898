"""Teams: agents of one environment that share one policy, and one value of all their actions.

VDN (Sunehag et al., 2018, https://arxiv.org/abs/1706.05296) adds up the agents' values. QMIX
(Rashid et al., 2018, https://arxiv.org/abs/1803.11485) mixes them by a network that rises with each
of them, and has weights from the state. So the best actions of a team are the best of each agent.
Either works with any algorithm that learns values of actions: to it, a team is a slot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

from srl.algorithms.distributions import any_allowed
from srl.algorithms.normalization import ObservationNormalizer
from srl.algorithms.q_network import EpsilonGreedy, QNetwork, q_network
from srl.algorithms.value_heads import ValueHead, of_action
from srl.core.errors import UserError, expect_apart
from srl.core.lazy import jax, jnp
from srl.core.settings import AtLeastOne, Settings
from srl.core.spaces import Space, spaces
from srl.core.types import Array, Policy, Specs, Tree, Unroll
from srl.networks import PolicyAndValue

Kind = Literal["vdn", "qmix"]


@dataclass(frozen=True)
class Mixer(Settings):
    """The value of a team, from those of its agents."""

    kind: Kind = "qmix"
    """The form: vdn adds up, qmix is a network with weights from the state."""
    width: AtLeastOne = 32
    """Hidden units of qmix."""
    weights_width: AtLeastOne = 64
    """Hidden units of the networks that give the weights of qmix."""
    state_key: str = ""
    """The part of a Dict observation that is the state of the environment, for qmix. By default the
    state is all that the team's agents observe."""


def expect_mixable(config: Any) -> None:
    """Raises UserError where an algorithm's settings do not fit its mixer."""
    if config.mixer is None:
        return
    for name in ("prior", "hindsight", "mirror"):
        why = f"{name} is about the rows of single agents, and a team learns from joint ones"
        expect_apart(config, f"{name} and a mixer", why, getattr(config, name, None))
    if getattr(config, "atoms", 1) > 1:
        raise UserError(
            f"{type(config).__name__} with atoms={config.atoms} and a mixer: values of agents are "
            "mixed, and distributions are not; give atoms=1, or leave the mixer out"
        )


class TeamObservation(NamedTuple):
    """The observations of teams of A agents, and which of them are there."""

    agents: Tree  # [..., A, ...]
    terminated: Array  # bool [..., A]
    truncated: Array  # bool [..., A]

    @property
    def ended(self) -> Array:
        """The rows of agents that end an episode, or are not there, bool [..., A]."""
        return jnp.logical_or(self.terminated, self.truncated)

    @property
    def present(self) -> Array:
        """The agents that count in the value of a team, bool [..., A].

        Of the last row of an episode these are the agents that were cut off there.
        """
        last = jnp.all(self.ended, axis=-1, keepdims=True)
        return ~self.terminated & (~self.truncated | last)


def team_unroll(unroll: Unroll, agents: int) -> Unroll:
    """Gives an unroll whose columns are teams: observations, actions and memory are [.., A, ...].

    A team's reward is the mean of its agents' rewards. Its episode ends where no agent goes on; it
    is truncated if some agent is.

    Args:
        unroll: Of slots, in which each `agents` neighbours are a team.
        agents: A.
    """

    def split(tree: Tree, axis: int = 1) -> Tree:
        def of(x: Array) -> Array:
            return x.reshape(*x.shape[:axis], -1, agents, *x.shape[axis + 1 :])

        return jax.tree.map(of, tree)

    observed = _with_absent_ended(
        *map(split, (unroll.observation, unroll.terminated, unroll.truncated))
    )
    ended = jnp.all(observed.ended, axis=-1)
    truncated = ended & jnp.any(observed.truncated, axis=-1)
    return unroll._replace(
        observation=observed,
        reward=jnp.mean(split(unroll.reward), axis=-1),
        terminated=ended & ~truncated,
        truncated=truncated,
        action=split(unroll.action),
        log_prob=split(unroll.log_prob),
        memory=split(unroll.memory),
        slot=split(unroll.slot, axis=0)[:, 0],
    )


def _with_absent_ended(agents: Tree, terminated: Array, truncated: Array) -> TeamObservation:
    """Gives the observation in which agents that were not there have no part in a team's end.

    Rows before an agent joins are truncated. If its team's episode ends before it does, its last
    row would be taken for one that was cut off.
    """
    ended = terminated | truncated
    last = jnp.all(ended, axis=-1, keepdims=True)
    absent = jnp.concatenate([jnp.zeros_like(ended[:1]), ended[:-1] & ~last[:-1]]) & last
    return TeamObservation(agents, terminated | absent, truncated & ~absent)


@dataclass(frozen=True)
class TeamNetwork:
    """The action values of agents, and a mixer; for learning, a stand-in of `QNetwork`.

    Parameters are {"agents", "mixer"}. Acting is the agents' own, slot by slot.
    """

    agent: QNetwork
    mixer: Mixer

    @property
    def network(self) -> PolicyAndValue:
        """The agents' network."""
        return self.agent.network

    @property
    def head(self) -> ValueHead:
        """The head of the agents' network."""
        return self.agent.head

    @property
    def agents(self) -> int:
        """The number of agents in a team."""
        return len(self.agent.specs.agents)

    @cached_property
    def _state_space(self) -> Space:
        """The space of the state, or of each agent's part of it."""
        space, key = self.agent.specs.observation, self.mixer.state_key
        if not key:
            return space
        if not isinstance(space, spaces.Dict) or key not in space.spaces:
            raise UserError(
                f"algorithm.mixer.state_key is {key!r}, and observations are {space}; give a part "
                "of a Dict, or leave it out"
            )
        return space[key]

    @cached_property
    def _module(self) -> Any:
        from srl.networks.mixing import Mixing

        return Mixing(self._state_space, self.mixer.width, self.mixer.weights_width)

    def init(self, key: Array) -> dict[str, Tree]:
        """Draws the parameters."""
        from srl.networks.policy_and_value import example

        params, mixer = self.agent.init(key), {}
        if self.mixer.kind == "qmix":
            rows = 1 if self.mixer.state_key else self.agents
            state = jax.tree.map(
                lambda x: jax.ShapeDtypeStruct((1, rows, *x.shape), x.dtype),
                example(self._state_space),
            )
            inputs = jnp.zeros((1, self.agents)), state
            mixer = self._module.lazy_init(jax.random.fold_in(key, 1), *inputs)["params"]
        return {"agents": params, "mixer": mixer}

    def acting(self, params: Mapping[str, Tree]) -> Tree:
        """Gives the parameters that acting needs: those of the agents' network."""
        return params["agents"]

    def initial_memory(self, batch: int) -> Tree:
        """Gives the memory of `batch` agents at the start of an episode."""
        return self.agent.initial_memory(batch)

    def env_action(self, action: Array) -> Array:
        """Gives the actions as the simulator counts them; needs no JAX."""
        return self.agent.env_action(action)

    def distribution(
        self, policy: Policy, observation: Tree, memory: Tree, slot: Array
    ) -> tuple[EpsilonGreedy, Tree]:
        """Gives the distribution of each agent's actions, with the epsilon of its team."""
        return self.agent.distribution(policy, observation, memory, slot // self.agents)

    def outputs(
        self,
        params: Tree,
        statistics: Any,
        observation: TeamObservation,
        memory: Tree = (),
        ended: Array | None = None,
    ) -> Array:
        """Gives the outputs of the agents' network, [L, B, A, outputs]; see `QNetwork.outputs`.

        The memory before the first row is [B, A, ...]; that of an agent starts anew where its own
        rows end, whatever `ended` says.
        """
        if not self.network.memory:
            return self.agent.outputs(params["agents"], statistics, observation.agents)
        outputs = self.agent.outputs(params["agents"], statistics, *_by_agent(observation, memory))
        return outputs.reshape(*observation.ended.shape, -1)

    def memories(
        self,
        params: Tree,
        statistics: Any,
        observation: TeamObservation,
        memory: Tree,
        ended: Array,
    ) -> Array:
        """Gives the memories before each row and after the last, [L + 1, B, A, units]."""
        inputs = params["agents"], statistics, *_by_agent(observation, memory)
        memories = self.agent.memories(*inputs)
        return memories.reshape(len(memories), *observation.ended.shape[1:], -1)

    def best(self, observation: TeamObservation, outputs: Array) -> Array:
        """Gives each agent's best allowed action, int32 [..., A]: together, the team's best."""
        return self.agent.best(observation.agents, outputs)

    def joint(
        self,
        params: Tree,
        statistics: Any,
        observation: TeamObservation,
        outputs: Array,
        action: Array,
    ) -> Array:
        """Gives the value of the team's actions, [..., 1]; see `QNetwork.joint`.

        Outputs are [..., A, outputs], actions int32 [..., A].
        """
        values = of_action(self.head.parts(outputs), action)[..., 0]
        counts = observation.present & any_allowed(observation.agents)
        values = jnp.where(counts, values, 0.0)
        if self.mixer.kind == "vdn":
            return jnp.sum(values, axis=-1, keepdims=True)
        inputs = self.agent.normalizer.normalize(statistics, observation.agents)
        state = self._state(inputs, observation.present)
        return self._module.apply({"params": params["mixer"]}, values, state)[..., None]

    def _state(self, inputs: Tree, present: Array) -> Tree:
        """The observations of all agents, or one agent's copy of the key, [..., 1 or A, ...].

        It is that of the first agent that is there: those of others may be zeros.
        """
        if not self.mixer.state_key:
            return inputs
        first = jnp.argmax(present, axis=-1, keepdims=True)

        def of_first(x: Array) -> Array:
            index = first.reshape(*first.shape, *[1] * (x.ndim - first.ndim))
            return jnp.take_along_axis(x, index, axis=first.ndim - 1)

        return jax.tree.map(of_first, inputs[self.mixer.state_key])

    def seen(self, statistics: Any, unroll: Unroll, total: Any) -> Any:
        """Gives the statistics with the observations of all agents of an unroll of teams."""
        observed: TeamObservation = unroll.observation
        rows = unroll._replace(
            observation=observed.agents,
            terminated=observed.terminated,
            truncated=observed.truncated,
        )
        return self.agent.seen(statistics, rows, total)


def value_network(
    config: Any, specs: Specs, normalizer: ObservationNormalizer, head: Any
) -> QNetwork | TeamNetwork:
    """Gives the network of an algorithm's settings: of agents, or of teams if there is a mixer.

    See `q_network` for the arguments.
    """
    network = q_network(config, specs, normalizer, head)
    return network if config.mixer is None else TeamNetwork(network, config.mixer)


def _by_agent(observation: TeamObservation, memory: Tree) -> tuple[Tree, Tree, Array]:
    """Rows, memory and ends of agents as columns: [L, B, A, ...] to [L, B * A, ...]."""

    def flat(x: Array, axis: int) -> Array:
        return x.reshape(*x.shape[:axis], -1, *x.shape[axis + 2 :])

    rows, ended = jax.tree.map(lambda x: flat(x, 1), (observation.agents, observation.ended))
    return rows, jax.tree.map(lambda x: flat(x, 0), memory), ended
