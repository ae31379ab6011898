"""Agents that take turns, in the interface of PettingZoo."""

import numpy as np
from gymnasium import spaces
from reporting_envs import Pair


class Turns(Pair):
    """Two agents of which one may act at a time; the other's mask allows nothing."""

    metadata = {}  # noqa: RUF012

    def observation_space(self, agent):
        return spaces.Dict(place=spaces.Box(0, 9, (1,)), action_mask=spaces.MultiBinary(2))

    def observe(self):
        turn = "ab"[self.steps % 2]
        return {
            agent: {"place": np.zeros(1), "action_mask": np.full(2, agent == turn, np.int8)}
            for agent in self.agents
        }

    def step(self, actions):
        self.steps += 1
        observations, ends = self.observe(), dict.fromkeys(self.agents, self.steps == 4)
        nothing, infos = dict.fromkeys(self.agents, 0.0), {agent: {} for agent in self.agents}
        if self.steps == 4:
            self.agents = []
        return observations, nothing, ends, dict.fromkeys(ends, False), infos
