"""A corridor that only an agent with memory can walk: `jax:srl.envs.t_maze:TMaze`.

A cue is shown in the first step alone, and the action of the last step has to equal it: the T-maze
of Bakker (2001), without the walk.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from srl.pools.functional.environment import Step


class State(NamedTuple):
    """The state of one maze."""

    step: jax.Array
    cue: jax.Array


class TMaze:
    """Observes the cue, -1 or 1 in the first step, whether the step is the last, and a constant.

    The last action is rewarded by 1 if it equals the cue and by -1 otherwise, all others by 0.
    """

    observation_space = spaces.Box(-1, 1, (3,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, length: int = 16) -> None:
        """Takes the steps of an episode."""
        self.length = int(length)

    def _seen(self, state: State) -> jax.Array:
        cue = jnp.where(state.step == 0, 2.0 * state.cue - 1.0, 0.0)
        last = (state.step == self.length - 1).astype(jnp.float32)
        return jnp.stack([cue, last, jnp.ones(())]).astype(jnp.float32)

    def reset(self, key: jax.Array) -> tuple[State, jax.Array]:
        """Draws the cue."""
        state = State(jnp.zeros((), jnp.int32), jax.random.bernoulli(key).astype(jnp.float32))
        return state, self._seen(state)

    def step(self, state: State, action: jax.Array, key: jax.Array) -> Step:
        """Walks on; the key is not used."""
        paid = jnp.where(action == state.cue, 1.0, -1.0)
        reward = jnp.where(state.step == self.length - 1, paid, 0.0)
        state = State(state.step + 1, state.cue)
        return Step(state, self._seen(state), reward, state.step >= self.length)
