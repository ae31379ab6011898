"""Environments with trees of actions, which refuse any that is not in their space."""

import gymnasium
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from srl.pools.functional.environment import Step

OBSERVED = spaces.Box(0, 1, (3,), np.float32)
ACTED = spaces.Dict(
    move=spaces.Discrete(3, start=1),
    push=spaces.Box(-0.1, 0.1, (2,), np.float64),
    lights=spaces.MultiBinary((2, 2)),
    more=spaces.Tuple((spaces.MultiDiscrete([[2, 3]]), spaces.Box(0, 4, (1,), np.int64))),
)


class Hybrid(gymnasium.Env):
    """Pays for the move that is shown, for light, and for a push; an episode has ten steps."""

    observation_space, action_space = OBSERVED, ACTED

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.observed(), {}

    def observed(self):
        self.wanted = int(self.np_random.integers(3))
        return np.eye(3, dtype=np.float32)[self.wanted]

    def step(self, action):
        assert self.action_space.contains(action), action
        self.steps += 1
        reward = float(action["move"] == self.wanted + 1) + action["lights"].mean()
        reward += 5 * action["push"].mean() + action["more"][1].item() / 4
        return self.observed(), reward, False, self.steps == 10, {}


class HybridInJax:
    """Pays for a small choice and a large push."""

    observation_space = OBSERVED
    action_space = spaces.Dict(
        choice=spaces.Discrete(3), push=spaces.Tuple((spaces.Box(-0.1, 0.1, (2,), np.float64),))
    )
    max_episode_steps = 10

    def reset(self, key):
        return jnp.zeros(()), jnp.zeros(3)

    def step(self, state, action, key):
        reward = action["push"][0].sum() - action["choice"]
        return Step(state, jnp.zeros(3) + reward, reward, jnp.bool_(False))
