"""Whole episodes played with policies that stay as they are."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from srl.algorithms.algorithm import Instance
from srl.core.console.number_text import number_text
from srl.core.episodes import Teams, kinds_of, teams_of
from srl.core.lazy import jax
from srl.core.tree import map_tree
from srl.core.types import Policy, Specs, Timestep, Tree
from srl.loop.acting.fixed_acting import FixedActing
from srl.loop.policy_set import PolicySet
from srl.pools import Pool


@dataclass(frozen=True)
class Player:
    """Policies that can play every agent of an environment."""

    policy_set: PolicySet
    policies: Mapping[str, Policy]

    def parts(self) -> Iterator[tuple[tuple[int, ...], Instance, Policy]]:
        """Gives the agents, the functions and the parameters of each policy, fixed ones too."""
        for name, own in self.policy_set.members.items():
            yield own, self.policy_set.instances[name], self.policies[name]
        if isinstance(self.policy_set.opponents, FixedActing):
            yield from self.policy_set.opponents.parts

    @property
    def teams(self) -> Teams:
        """The teams that the agents make, as some may be played by fixed policies."""
        return teams_of(self.policy_set.specs.agents, self.policy_set.members)


class Episodes(NamedTuple):
    """Results of N whole episodes, in an order that does not depend on their lengths."""

    returns: np.ndarray  # float64 [N, A]
    lengths: np.ndarray  # float64 [N]
    statistics: np.ndarray  # float64 [N, len(specs.statistics)]
    envs: np.ndarray  # int [N], the environment that each was played in


class Estimate(NamedTuple):
    """A mean over episodes, and what one episode does not give."""

    mean: float
    error: float | None
    """The standard error of the mean."""
    deviation: float | None = None
    """The standard deviation over episodes."""

    @staticmethod
    def of(values: np.ndarray) -> Estimate:
        """Summarises values [N] of independent episodes."""
        count, mean = len(values), float(values.mean())
        if count == 1:
            return Estimate(mean, None)
        deviation = float(values.std(ddof=1))
        return Estimate(mean, deviation / math.sqrt(count), deviation)

    def __str__(self) -> str:
        text = " ± ".join(_decimals(x) for x in (self.mean, self.error) if x is not None)
        return text if self.deviation is None else f"{text} ({_decimals(self.deviation)})"

    def json(self) -> dict[str, float | None]:
        """The numbers by name."""
        return {
            "mean": self.mean,
            "standard_error": self.error,
            "standard_deviation": self.deviation,
        }


def _decimals(value: float) -> str:
    """Three decimals, so that columns align, unless they would hide all of a small number."""
    return f"{value:,.3f}" if abs(value) >= 1e-3 or not value else number_text(value)


def estimates(
    episodes: Episodes, specs: Specs, *groupings: Mapping[str, tuple[int, ...]]
) -> dict[str, Estimate]:
    """Means by the names that a run's metrics have; of a statistic, over the episodes that gave it.

    Args:
        episodes: What was played.
        specs: Of the environment.
        groupings: The agents of each policy or team, whose returns are given as those of each kind
            of agents are, where there are several.
    """
    returns = episodes.returns
    several = [each for each in (kinds_of(specs.agents), *groupings) if len(each) > 1]
    groups = {name: agents for grouping in several for name, agents in grouping.items()}
    values = {
        "episode_return": returns.mean(1),
        **{f"episode_return/{k}": returns[:, list(v)].mean(1) for k, v in groups.items()},
        "episode_length": episodes.lengths,
    }
    for k, column in zip(specs.statistics, episodes.statistics.T, strict=True):
        if len(given := column[~np.isnan(column)]):
            values[f"env/{k}"] = given
    for task, own in _by_task(episodes, specs).items():
        values |= {f"episode_return/{task}": returns[own].mean(1)}
        values |= {f"episode_length/{task}": episodes.lengths[own]}
    return {name: Estimate.of(value) for name, value in values.items()}


def _by_task(episodes: Episodes, specs: Specs) -> dict[str, np.ndarray]:
    """The episodes of each task that was played in a mixture: bool [N]."""
    tasks = np.array(specs.task_of)[episodes.envs % len(specs.task_of)] if specs.tasks else []
    return {specs.tasks[k]: tasks == k for k in np.unique(tasks)}


class Evaluator:
    """Plays a number of whole episodes, always from the same environment seeds.

    Every environment plays a number of episodes that is fixed beforehand. The first episodes to
    end, of all that are played, would be the short ones.
    """

    def __init__(
        self,
        pool: Pool,
        episodes: int,
        *,
        env_seed: int = 0,
        seed: int = 0,
        greedy: bool = False,
        sides: Mapping[str, tuple[int, ...]] | None = None,
    ) -> None:
        """Takes a synchronous pool of environments.

        Args:
            pool: Reset at the begin of each `play`.
            episodes: How many to play.
            env_seed: Of the first environment.
            seed: Of the sampling of actions.
            greedy: Take the most probable actions.
            sides: The agent indices of each side in a lineup; by default, of each kind of agents.
        """
        self.specs = pool.specs
        self.episodes = episodes
        self._pool = pool
        self.sides = sides or kinds_of(pool.specs.agents)
        self._greedy = greedy
        self.seed(env_seed, seed)
        envs = np.arange(pool.num_envs)
        self._quota = episodes // pool.num_envs + (envs < episodes % pool.num_envs)
        self._compiled: list[tuple[dict[str, Instance], Any]] = []

    def seed(self, env_seed: int, seed: int) -> None:
        """Takes other seeds for all that is played from now on."""
        self._env_seed, self._key = env_seed, jax.random.key(seed)

    def timesteps(self, lineup: Mapping[str, Player]) -> Iterator[Timestep]:
        """Plays without an end, from new episodes on."""
        return (timestep for _, timestep in self.steps(lineup))

    def steps(self, lineup: Mapping[str, Player]) -> Iterator[tuple[Tree | None, Timestep]]:
        """Gives what `timesteps` does, each with the actions [B, ...] that led to it, if any."""
        policy_set, policies = self._policy_set_of(lineup)
        act = self._act(policy_set)
        memory, clock = policy_set.initial_memory(self._pool.num_envs), 0
        slots = np.arange(self._pool.num_envs * len(self.specs.agents), dtype=np.int32)
        action, timestep = None, self._pool.reset(self._env_seed)
        while True:
            yield action, timestep
            ended = timestep.terminated | timestep.truncated
            decision = act(
                *(policies, timestep.observation, ended, memory, self._key),
                *(np.uint32(clock), slots),
            )
            memory, clock = decision.memory, clock + 1
            action = policy_set.env_action(map_tree(np.asarray, decision.action))
            timestep = self._pool.step(action)

    def play(
        self, lineup: Mapping[str, Player], progress: Callable[[int], None] = lambda ended: None
    ) -> Episodes:
        """Plays the episodes; `progress` gets at each step how many have ended."""
        agents, count = len(self.specs.agents), np.zeros_like(self._quota)
        played: list[tuple[int, int, np.ndarray]] = []
        for timestep in self.timesteps(lineup):
            ended = (timestep.terminated | timestep.truncated).reshape(-1, agents).all(-1)
            ended &= ~timestep.lost
            returns = timestep.episode_return.reshape(-1, agents)
            for env in np.flatnonzero(ended & (count < self._quota)):
                parts = (returns[env], timestep.episode_length[env, None], timestep.statistics[env])
                played.append((int(env), int(count[env]), np.concatenate(parts, dtype=np.float64)))
                count[env] += 1
            progress(len(played))
            if len(played) == self.episodes:
                break
        played.sort(key=lambda episode: episode[:2])
        rows, envs = np.stack([row for _, _, row in played]), np.array([e for e, _, _ in played])
        return Episodes(rows[:, :agents], rows[:, agents], rows[:, agents + 1 :], envs)

    def _policy_set_of(self, lineup: Mapping[str, Player]) -> tuple[PolicySet, dict[str, Policy]]:
        """Gives each side's agents the policies that its player has for them."""
        members: dict[str, tuple[int, ...]] = {}
        instances: dict[str, Instance] = {}
        policies: dict[str, Policy] = {}
        for side, agents in self.sides.items():
            player = lineup[side]
            for indices, instance, policy in player.parts():
                if own := tuple(i for i in indices if i in agents):
                    # Named by number: with other names for the same policies, JAX would compile
                    # the same program again.
                    name = f"{side}/{sum(known.startswith(side + '/') for known in members)}"
                    members[name] = own
                    instances[name], policies[name] = instance, policy
        return PolicySet(self.specs, members, instances), policies

    def _act(self, policy_set: PolicySet) -> Any:
        """The compiled call, shared by all lineups whose policies are computed alike."""
        parts = {"members": policy_set.members, "instances": policy_set.instances}
        for known, act in self._compiled:
            if known == parts:
                return act
        act = jax.jit(partial(policy_set.act, greedy=self._greedy))
        self._compiled.append((parts, act))
        return act
