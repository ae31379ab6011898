"""A pool with PettingZoo's interface of parallel environments, for many of them at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np

from srl.core.errors import UserError
from srl.core.spaces import has_choices, limits, padded, space_tree
from srl.core.tree import map_tree
from srl.core.types import Timestep, Tree
from srl.pools.pool import Pool, as_actions
from srl.pools.python.padding import crop

Results = tuple[dict[str, Any], ...]


class ParallelPool:
    """A synchronous pool as PettingZoo's `ParallelEnv`: everything is a dict by agent.

    What PettingZoo gives for an agent is here an array with a row for each of the N environments.
    These restart by themselves: the step after an episode's end, when an environment's agents are
    all terminated or truncated, ignores its actions and gives the first observations of the next
    episode, with rewards of 0. So `agents` are always all of them, and an agent that is not there
    shows in its flags: it is terminated from its last step on until the episode of its environment
    ends, truncated before it joins; its observations are zeros, its rewards 0, and what is sent
    for it is ignored.

    Each agent has its own spaces, without the padding that makes them alike in the pool. Arrays
    that a call returned stay as they are.
    """

    def __init__(self, pool: Pool) -> None:
        """Takes a pool, which is closed with this.

        Raises:
            UserError: If the pool is asynchronous.
        """
        pool.expect_synchronous("a parallel pool")
        self.pool = pool
        self.num_envs = pool.num_envs
        self.possible_agents = list(pool.specs.agents)
        common = (pool.specs.observation, pool.specs.action)
        own = pool.specs.agent_spaces or (common,) * len(self.possible_agents)
        self._spaces = dict(zip(self.possible_agents, own, strict=True))
        self._absent = np.zeros(len(self.possible_agents), bool)  # in every environment

    @property
    def agents(self) -> list[str]:
        """All agents' names, in the order of the pool's slots."""
        return list(self.possible_agents)

    def observation_space(self, agent: str) -> gymnasium.Space:
        """Gives the observation space of one such agent."""
        return self._spaces[agent][0]

    def action_space(self, agent: str) -> gymnasium.Space:
        """Gives the action space of one such agent."""
        return self._spaces[agent][1]

    def reset(self, seed: int | None = None) -> tuple[dict[str, Tree], dict[str, dict[str, Any]]]:
        """Starts new episodes; environment i is seeded with `seed + i`.

        Returns:
            Observations [N, ...] and infos by agent; see `step`.
        """
        observations, _, _, _, infos = self._results(self.pool.reset(seed))
        return observations, infos

    def step(self, actions: Mapping[str, Any]) -> Results:
        """Steps all environments.

        Args:
            actions: By agent [N, ...]; an agent that is in no environment may be left out.

        Returns:
            Dicts by agent of observations [N, ...], rewards float32 [N], terminations and
            truncations bool [N], and infos: of this episode so far `episode_return` float32 [N],
            `episode_length` int32 [N] and the statistics of the environment, float32 [N]; and
            `lost` bool [N], where the environment died and was made anew.

        Raises:
            UserError: For actions that do not fit, or that belong to no agent.
            RunError: If an environment raised.
        """
        if unknown := sorted(actions.keys() - self._spaces.keys()):
            raise UserError(f"there are no agents {unknown}; there are {self.possible_agents}")
        own = [self._action(i, actions) for i in range(len(self._spaces))]
        joined = map_tree(lambda *rows: np.concatenate(np.stack(rows, axis=1)), *own)
        return self._results(self.pool.step(joined))

    def close(self) -> None:
        """Closes the pool."""
        self.pool.close()

    def __enter__(self) -> ParallelPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _action(self, index: int, actions: Mapping[str, Any]) -> Tree:
        """One agent's actions, padded to the shape that all share."""
        agent, common = self.possible_agents[index], space_tree(self.pool.specs.action)
        if agent not in actions:
            if not self._absent[index]:
                raise UserError(f"there are no actions for agent {agent!r}")
            return map_tree(self._any_action, common)
        own = self._spaces[agent][1]
        given = as_actions(actions[agent], own, self.num_envs, f"actions of agent {agent!r}")

        return map_tree(lambda leaf, x: padded(x, leaf.shape or ()), common, given)

    def _any_action(self, leaf: gymnasium.Space) -> np.ndarray:
        """Actions that are ignored, in a space where they are checked nevertheless."""
        value = limits(leaf)[0] if has_choices(leaf) else 0
        return np.full((self.num_envs, *(leaf.shape or ())), value, leaf.dtype)

    def _results(self, timestep: Timestep) -> Results:
        count = len(self.possible_agents)

        def by_agent(array: np.ndarray) -> dict[str, np.ndarray]:
            split = array.reshape(self.num_envs, count, *array.shape[1:])
            return {agent: split[:, i] for i, agent in enumerate(self.possible_agents)}

        ended = timestep.terminated | timestep.truncated
        self._absent = ended.reshape(-1, count).all(0)
        shared = {"episode_length": timestep.episode_length, "lost": timestep.lost}
        shared.update(zip(self.pool.specs.statistics, timestep.statistics.T, strict=True))
        observations = {
            agent: crop(space, timestep.observation, slice(i, None, count))
            for i, (agent, (space, _)) in enumerate(self._spaces.items())
        }
        infos = {
            agent: {"episode_return": total, **shared}
            for agent, total in by_agent(timestep.episode_return).items()
        }
        flags = by_agent(timestep.terminated), by_agent(timestep.truncated)
        return observations, by_agent(timestep.reward), *flags, infos
