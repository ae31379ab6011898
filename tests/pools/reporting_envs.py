"""Environments that report numbers of their episodes in infos, and observe a text."""

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

LENGTH = 3


class Reporting(gymnasium.Env):
    """Ends after three steps; the episode is a success if the last action was 1."""

    metadata = {"render_modes": [], "metrics": ["distance"]}  # noqa: RUF012
    action_space = spaces.Discrete(2)
    observation_space = spaces.Dict(
        cell=spaces.Box(0, 255, (2,), np.uint8), mission=spaces.Text(20), hint=spaces.Text(5)
    )

    def __init__(self, wrong=False):
        self.wrong, self.episode = wrong, -1

    def observe(self):
        return {"cell": np.full(2, self.steps, np.uint8), "mission": "go", "hint": "no"}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.episode = 0, self.episode + 1
        return self.observe(), {}

    def step(self, action):
        self.steps += 1
        info = {"distance": "far" if self.wrong else np.array([self.steps / 2])}
        if self.steps == LENGTH:
            info["is_success"] = bool(action == 1)
            info["episode_extra_stats"] = {"episode": self.episode, "name": "corridor"}
        return self.observe(), float(action), self.steps == LENGTH, False, info


def several(num_envs, mode="NextStep"):
    """A vector environment of them; `is_success` stands here for those that look for it."""
    return SyncVectorEnv([Reporting] * num_envs, autoreset_mode=AutoresetMode(mode))


class Pair:
    """Two agents, in the interface of PettingZoo; a leaves after two steps, b after three."""

    metadata = {"metrics": ["distance"]}  # noqa: RUF012
    possible_agents = ("a", "b")

    def observation_space(self, agent):
        return spaces.Dict(place=spaces.Box(0, 9, (1,)), mission=spaces.Text(20))

    def action_space(self, agent):
        return spaces.Discrete(2)

    def observe(self):
        return {agent: {"place": np.zeros(1), "mission": "go"} for agent in self.agents}

    def reset(self, seed=None, options=None):
        self.agents, self.steps = ["a", "b"], 0
        return self.observe(), {"a": {}, "b": {}}

    def step(self, actions):
        self.steps += 1
        observations, infos = self.observe(), {agent: {} for agent in self.agents}
        ends = {agent: self.steps == {"a": 2, "b": 3}[agent] for agent in self.agents}
        for agent, ended in ends.items():
            if ended:
                infos[agent] = {"distance": {"a": 1.0, "b": 4.0}[agent]}
        self.agents = [agent for agent, ended in ends.items() if not ended]
        rewards = dict.fromkeys(observations, 0.0)
        return observations, rewards, ends, dict.fromkeys(ends, False), infos

    def close(self):
        pass
