"""A goal environment written in JAX: bits that are to be flipped until they are as wanted.

srl run bit_flip.py                                    (in the folder of this file)

A reward of -1 for every step says nothing about the way (Andrychowicz et al., 2017, section 3.1).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from srl import Experiment
from srl.algorithms import DQN, Hindsight
from srl.networks import MLP
from srl.pools.functional.environment import Step


class State(NamedTuple):
    """The bits now, and as they are wanted: float32 [size] of 0 and 1."""

    bits: jax.Array
    goal: jax.Array


class BitFlip:
    """A step flips one bit and costs 1, but the one that reaches the goal."""

    def __init__(self, size: int = 8) -> None:
        """Options are `--env.size 12` on the command line."""
        self.size = self.max_episode_steps = size
        keys = ("observation", "achieved_goal", "desired_goal")
        self.observation_space = spaces.Dict(
            {k: spaces.Box(0, 1, (size,), np.float32) for k in keys}
        )
        self.action_space = spaces.Discrete(size)

    def reset(self, key: jax.Array) -> tuple[State, dict[str, jax.Array]]:
        """Random bits, and a random goal."""
        bits, goal = jax.random.bernoulli(key, 0.5, (2, self.size)).astype(jnp.float32)
        return State(bits, goal), self._observed(State(bits, goal))

    def step(self, state: State, action: jax.Array, key: jax.Array) -> Step:
        """Flips a bit."""
        state = State(state.bits.at[action].set(1.0 - state.bits[action]), state.goal)
        done = reached(state.bits, state.goal)
        return Step(state, self._observed(state), done - 1.0, done)

    def _observed(self, state: State) -> dict[str, jax.Array]:
        seen = {"observation": state.bits, "achieved_goal": state.bits}
        return {**seen, "desired_goal": state.goal}


def reached(achieved: jax.Array, desired: jax.Array) -> jax.Array:
    """Tells if goals [..., size] are reached, bool [...]: where the episode ends."""
    return jnp.all(achieved == desired, axis=-1)


experiment = Experiment(
    name="bit_flip",
    env="jax:bit_flip:BitFlip",
    num_envs=16,
    algorithm=DQN(
        network=MLP(width=128, depth=1, activation="relu"),
        unroll_length=32,
        warm_up=1_000,
        batch_size=128,
        hindsight=Hindsight(k=4, distance=0.5, terminated=reached),
    ),
    env_steps=40_000,
)
