"""Environments that fail at their sixth step, each in its way."""

import os

import gymnasium
import numpy as np
from gymnasium import spaces


class Raises(gymnasium.Env):
    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.steps += 1
        if self.steps > 5:
            self.fail()
        return np.zeros(2, np.float32), 1.0, False, False, {}

    def fail(self):
        raise KeyError("joint_3")


class Aborts(Raises):
    def fail(self):
        os.abort()


class Exits(Raises):
    def fail(self):
        os._exit(3)


class RaisesLater(Raises):
    """Fails after the first update."""

    def fail(self):
        if self.steps > 100:
            raise KeyError("joint_3")


class Interrupts(Raises):
    def fail(self):
        raise KeyboardInterrupt
