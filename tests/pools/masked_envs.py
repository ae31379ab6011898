"""Environments that allow some of their actions only, and assert that no other is taken."""

import gymnasium
import numpy as np
from gymnasium import spaces

DISCRETE, MULTI = spaces.Discrete(4, start=2), spaces.MultiDiscrete([3, 2])


class Masked(gymnasium.Env):
    """Episodes of five steps; of each choice, all actions but one are forbidden.

    Args:
        actions: The action space.
        where: How it says so: by its "info", its "method", its "observation", "late" by infos of
            steps alone, or "nowhere".
        size: Numbers in an observed mask; by default as many as there are choices.
    """

    def __init__(self, actions=DISCRETE, where="info", size=None):
        self.action_space, self.where = actions, where
        self.sizes = [actions.n] if isinstance(actions, spaces.Discrete) else [3, 2]
        self.observation_space = place = spaces.Box(0, 1, (2,), np.float32)
        if where == "observation":
            mask = spaces.MultiBinary(size or int(sum(self.sizes)))
            self.observation_space = spaces.Dict(place=place, action_mask=mask)
        if where == "method":
            self.action_masks = lambda: self.parts

    def results(self, first=False):
        self.allowed = self.np_random.integers(self.sizes)
        masks = [np.arange(n) == k for n, k in zip(self.sizes, self.allowed, strict=True)]
        self.parts = masks[0] if len(masks) == 1 else masks
        place = np.zeros(2, np.float32)
        if self.where == "observation":
            place = {"place": place, "action_mask": np.concatenate(masks).astype(np.int8)}
        told = self.where == "info" or (self.where == "late" and not first)
        return place, {"action_mask": self.parts} if told else {}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.results(first=True)

    def step(self, action):
        start = getattr(self.action_space, "start", 0)
        fits = np.array_equal(np.ravel(action - start), self.allowed)
        assert fits or self.where == "late", "a forbidden action"
        self.steps += 1
        observation, info = self.results()
        return observation, 1.0, self.steps == 5, False, info


class MaskedBox(Masked):
    """Gives masks of actions that are no choices."""

    def __init__(self, where):
        super().__init__(where=where)
        self.action_space = spaces.Box(-1, 1, (4,))


gymnasium.register("Masked-v0", Masked)
