"""A game whose actions tell which version of a policy took them, and for how long it remembers."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from srl import Experiment, SelfPlay
from srl.algorithms import Algorithm
from srl.algorithms.algorithm import Instance
from srl.core.lazy import jax, jnp
from srl.core.types import Decision, Policy

LONGEST = 11  # steps of an episode; the shortest has 3


class Duel:
    """Two agents, of which the one of the newer version wins.

    `episodes` holds what each did at each step, as (version, steps remembered).
    """

    metadata = {}  # noqa: RUF012
    possible_agents = ("cat", "dog")
    made = []  # noqa: RUF012

    def __init__(self):
        self.episodes, self.ended, self.first_seed = [], 0, None
        Duel.made.append(self)

    def observation_space(self, agent):
        return spaces.Box(-1, 1, (1,), np.float32)

    def action_space(self, agent):
        return spaces.Box(-1e6, 1e6, (2,), np.float32)

    def reset(self, seed=None, options=None):
        if seed is not None:
            self.random = np.random.default_rng(seed)
            self.first_seed = seed if self.first_seed is None else self.first_seed
        self.agents, self.left = list(self.possible_agents), self.random.integers(3, LONGEST + 1)
        self.episodes.append([])
        return self.observe(), {agent: {} for agent in self.agents}

    def close(self):
        pass

    def observe(self):
        return {agent: np.zeros(1, np.float32) for agent in self.agents}

    def step(self, actions):
        self.episodes[-1].append([tuple(map(int, actions[agent])) for agent in self.agents])
        self.left -= 1
        self.ended += not self.left
        ended = dict.fromkeys(self.agents, bool(self.left == 0))
        none = dict.fromkeys(self.agents, False)
        first, second = (version for version, _ in self.episodes[-1][-1])
        rewards = float(np.sign(first - second)), float(np.sign(second - first))
        reward = dict(zip(self.possible_agents, rewards, strict=True))
        observed, infos = self.observe(), {agent: {} for agent in self.agents}
        if self.left == 0:
            self.agents = []
        return observed, reward, ended, none, infos


class Equals(Duel):
    """One between agents of one kind."""

    possible_agents = ("ally_0", "ally_1")


class WideDuel(Duel):
    """One with other observations."""

    def observation_space(self, agent):
        return spaces.Box(-1, 1, (2,), np.float32)


class Masked(Duel):
    """One of three actions, of which each agent may take another two at each step."""

    def observation_space(self, agent):
        mask = spaces.Box(0, 1, (3,), np.int8)
        return spaces.Dict({"seen": spaces.Box(-1, 1, (1,), np.float32), "action_mask": mask})

    def action_space(self, agent):
        return spaces.Discrete(3)

    def observe(self):
        mask = np.ones(3, np.int8)
        mask[self.left % 3] = 0
        seen = np.full(1, self.left / LONGEST, np.float32)
        return {agent: {"seen": seen, "action_mask": mask} for agent in self.agents}

    def step(self, actions):
        assert self.left % 3 not in actions.values(), "an action that the mask forbids"
        return super().step({agent: (action, 0) for agent, action in actions.items()})


def take_duels():
    """The environments that were made since this was last asked, in their order in the run."""
    made = sorted((d for d in Duel.made if d.first_seed is not None), key=lambda d: d.first_seed)
    Duel.made.clear()
    return made


@dataclass(frozen=True)
class Label(Algorithm):
    """Acts with (its version, the steps that it remembers), and learns nothing but to count."""

    repeat: int = 1
    """Steps with each action."""

    def loop(self, run):
        policy = run.latest()

        def interact(timestep, memory):
            decision = run.act(policy, timestep, memory)
            following = run.step(decision.action, self.repeat)
            return following, decision.memory, run.collect(timestep, decision)

        run.learn(run.gather(run.unroll(interact, self.unroll_length)))

    @property
    def instance(self):
        return LabelInstance


class LabelState(NamedTuple):
    params: Any
    optimizer: Any
    key: Any
    n: Any


class LabelInstance(Instance):
    def init(self, key):
        zero = jnp.zeros(())
        return LabelState(zero, (), jax.random.key_data(key), jnp.zeros((), jnp.int32))

    def policy(self, state):
        return Policy(state.n.astype(jnp.float32), ())

    def initial_memory(self, batch):
        return jnp.zeros(batch)

    def act(self, policy, observation, memory, keys, slot):
        version = jnp.broadcast_to(policy.params, memory.shape)
        return Decision(jnp.stack([version, memory], -1), 0 * memory, memory + 1)

    def act_greedy(self, policy, observation, memory):
        return self.act(policy, observation, memory, None, None)

    def env_action(self, action):
        return action

    def gradient_step(self, state, batch, step, total):
        strange = batch.action[..., 0] != state.n
        strangers = strange.sum().astype(jnp.float32)
        return state, total({"strangers": strangers, "slots": 1.0 * batch.slot.size})


@dataclass(frozen=True)
class Halved(Label):
    """Acts likewise, in halves of what the simulator takes."""

    @property
    def instance(self):
        return HalvedInstance


class HalvedInstance(LabelInstance):
    def env_action(self, action):
        return 2 * action


DUEL = Experiment(
    name="duel",
    env=Duel,
    num_envs=8,
    algorithm=Label(unroll_length=4),
    self_play=SelfPlay(past=0.5, every=2, keep=4, hold=3, evaluate=0),
    env_steps=10_000,
)
