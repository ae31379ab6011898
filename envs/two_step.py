"""The two-step game of Rashid et al. (2018), section 5: `jax:srl.envs.two_step:TwoStep`.

The first agent's first action chooses between two matrix games. In one, every pair of actions pays
7; in the other, one pair pays 8, one 0, and two 1. Values that are sums of the agents' own cannot
stand for the second.
"""

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from srl.pools.functional.environment import Step

PAYOFFS = np.array([[[0, 0], [0, 0]], [[7, 7], [7, 7]], [[0, 1], [1, 8]]], np.float32)
"""The payment of each pair of actions in each state: the first step, and the two games."""


class TwoStep:
    """Both agents observe the state, one-hot, and both get the payment."""

    agents = ("agent_0", "agent_1")
    observation_space = spaces.Box(0, 1, (3,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Gives the first state; the key is not used."""
        return jnp.int32(0), self._seen(jnp.int32(0))

    def step(self, state: jax.Array, action: jax.Array, key: jax.Array) -> Step:
        """Goes to a game, or plays it."""
        paid = jnp.broadcast_to(jnp.asarray(PAYOFFS)[state, action[0], action[1]], 2)
        following = jnp.where(state == 0, 1 + action[0].astype(jnp.int32), state)
        return Step(following, self._seen(following), paid, state > 0)

    def _seen(self, state: jax.Array) -> jax.Array:
        return jnp.broadcast_to(jax.nn.one_hot(state, 3), (2, 3))
