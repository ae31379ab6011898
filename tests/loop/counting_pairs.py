"""Pairs of agents that see which step it is; their steps take very different times."""

import os
import time
from pathlib import Path

import numpy as np
from gymnasium import spaces

HELD_AT, DIES_AT = 3, 20
"""Steps at which one of the environments waits for a gate, and at which one dies."""


def _first(marker):
    """Tells if no environment has come here before."""
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


class Counting:
    """Observes its seed, the agent, all its steps and resets, those of the episode, the action.

    Episodes have 5 to 8 steps.
    """

    metadata = {}  # noqa: RUF012
    possible_agents = ("a", "b")

    def __init__(self, gate="", marker=""):
        """Takes a named pipe at which one environment waits, and the file by which one dies."""
        self.gate, self.marker = gate, marker

    def observation_space(self, agent):
        return spaces.Box(-1, 1e6, (5,), np.float32)

    def action_space(self, agent):
        return spaces.Discrete(2)

    def close(self):
        pass

    def observe(self):
        return {
            agent: np.array([self.seed, i, self.total, self.steps, self.actions[agent]], np.float32)
            for i, agent in enumerate(self.possible_agents)
        }

    def reset(self, seed=None, options=None):
        if seed is not None:
            self.rng, self.seed, self.total = np.random.default_rng(seed), seed % 1000, -1
        self.agents, self.actions = list(self.possible_agents), dict.fromkeys("ab", -1)
        self.total, self.steps = self.total + 1, 0
        return self.observe(), {agent: {} for agent in self.agents}

    def step(self, actions):
        self.total, self.steps, self.actions = self.total + 1, self.steps + 1, actions
        time.sleep(self.rng.lognormal(-8, 1))
        if self.gate and self.total == HELD_AT and _first(self.gate + ".taken"):
            Path(self.gate).read_bytes()
        if self.marker and self.total == DIES_AT and _first(self.marker):
            os._exit(1)
        ends = dict.fromkeys(self.agents, self.steps == 5 + self.seed % 4)
        nothing, infos = dict.fromkeys(self.agents, 0.0), {agent: {} for agent in self.agents}
        self.agents = [agent for agent in self.agents if not ends[agent]]
        return self.observe(), nothing, ends, dict.fromkeys(ends, False), infos
