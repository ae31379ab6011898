"""An environment in a module that does not name the masks which it may give."""

import gymnasium
import numpy as np
from gymnasium import spaces

from srl.pools.python.masks import MASK


class Unnamed(gymnasium.Env):
    """Observes how many times it was reset; gives masks if it is told to."""

    observation_space = spaces.Box(0, 100, (1,), np.float32)
    action_space = spaces.Discrete(2)
    resets = 0

    def __init__(self, masked=False):
        self.infos = {MASK: np.ones(2, np.int8)} if masked else {}

    def reset(self, *, seed=None, options=None):
        self.resets += 1
        return np.float32([self.resets]), self.infos
