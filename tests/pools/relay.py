"""An environment of PettingZoo's kind whose agents come and go."""

import numpy as np
import pettingzoo
from gymnasium import spaces

AGENTS = ("early", "late", "steady")
STAYS = {"early": range(3), "late": range(2, 6), "steady": range(6)}  # where an agent acts next
SIZES = {"early": 1, "late": 2, "steady": 3}


class Relay(pettingzoo.ParallelEnv):
    """Episodes of six steps; `early` leaves after the third, `late` joins after the second."""

    metadata = {"name": "relay"}  # noqa: RUF012
    possible_agents = list(AGENTS)  # noqa: RUF012

    def __init__(self, masks=False, fault=""):
        self.masks, self.fault, self.agents = masks, fault, []

    def observation_space(self, agent):
        return spaces.Box(-9, 9, (SIZES[agent],), np.float64)

    def action_space(self, agent):
        return spaces.Discrete(1 + SIZES[agent])

    def results(self, agents):
        observations = {a: np.full(SIZES[a], 1.0 + self.steps) for a in agents}
        infos = {a: {"action_mask": self.mask(a)} if self.masks else {} for a in agents}
        return observations, infos

    def mask(self, agent):
        """All but one action, another in each step."""
        return np.arange(1 + SIZES[agent]) != self.steps % (1 + SIZES[agent])

    def reset(self, seed=None, options=None):
        self.steps = 0
        self.agents = [] if self.fault == "empty" else [a for a in AGENTS if 0 in STAYS[a]]
        return self.results(self.agents)

    def step(self, actions):
        assert sorted(actions) == sorted(self.agents)
        if self.masks:
            assert all(self.mask(agent)[action] for agent, action in actions.items())
        present = list(self.agents)
        self.steps += 1
        self.agents = [a for a in AGENTS if self.steps in STAYS[a]]
        if self.fault == "stranger":
            self.agents.append("stranger")
        present += [a for a in self.agents if a not in present and a in AGENTS]
        observations, infos = self.results(present)
        if self.fault == "silent":
            del observations["steady"]
        rewards = {a: 10.0 * self.steps + actions.get(a, 0) for a in present}
        says = self.fault != "wordless"
        terminated = {a: says and a == "early" and self.steps == 3 for a in present}
        truncated = {a: says and self.steps == 6 for a in present}
        if self.fault == "list":
            rewards = list(rewards.values())
        if self.fault == "four":
            return observations, rewards, terminated, infos
        return observations, rewards, terminated, truncated, infos
