"""A small environment of nested observations, for pools in this process and in others."""

import gymnasium
import numpy as np
from gymnasium import spaces


class Walk(gymnasium.Env):
    """Episodes whose places, lengths and ways to end are drawn; rewards tell the actions."""

    observation_space = spaces.Dict(
        {
            "clock": spaces.Tuple((spaces.Discrete(9), spaces.MultiBinary(2))),
            "place": spaces.Box(-100, 100, (2,)),
        }
    )
    action_space = spaces.Discrete(2, start=1)

    def __init__(self, lengths=(2, 3, 5)):
        self.lengths = lengths

    def observe(self):
        parity = np.array([self.steps % 2, 1], np.int8)
        return {"place": self.place.copy(), "clock": (self.steps, parity)}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.length, self.steps = self.np_random.choice(self.lengths), 0
        self.truncates = bool(self.np_random.integers(2))
        self.place = self.np_random.normal(size=2).astype(np.float32)
        return self.observe(), {}

    def step(self, action):
        self.steps += 1
        self.place += np.float32(action)
        end = self.steps == self.length
        return self.observe(), float(action), end and not self.truncates, end and self.truncates, {}
