"""An environment written in JAX: walk to the right end of a corridor, against gusts of wind.

srl run jax:corridor:Corridor --env-steps 100000      (in the folder of this file)
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from srl.pools.functional.environment import Step


class State(NamedTuple):
    """Where the walker is; any pytree of arrays does."""

    place: jax.Array  # float32 []


class Corridor:
    """A step costs 0.01; the end pays 1."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = spaces.Discrete(2)
    max_episode_steps = 50

    def __init__(self, length: float = 10.0) -> None:
        """Options are `--env.length 20` on the command line."""
        self.length = length

    def reset(self, key: jax.Array) -> tuple[State, jax.Array]:
        """Somewhere in the left half."""
        state = State(jax.random.uniform(key, maxval=self.length / 2))
        return state, self._observed(state)

    def step(self, state: State, action: jax.Array, key: jax.Array) -> Step:
        """Walks a step to the left or right."""
        gust = 0.5 * jax.random.normal(key)
        place = jnp.clip(state.place + 2.0 * action - 1.0 + gust, 0.0, self.length)
        arrived = place >= self.length
        state = State(place)
        return Step(state, self._observed(state), jnp.where(arrived, 1.0, -0.01), arrived)

    def _observed(self, state: State) -> jax.Array:
        return state.place[None] / self.length
