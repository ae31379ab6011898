"""An environment that prints at each step."""

import gymnasium
import numpy as np
from gymnasium import spaces


class Talks(gymnasium.Env):
    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}

    def step(self, action):
        print("a step", flush=True)  # noqa: T201
        return np.zeros(2, np.float32), 1.0, False, False, {}
