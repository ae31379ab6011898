"""The interface of environments written in JAX: pure functions of a state and a key."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import gymnasium

from srl.core.types import Array, Tree


class Step(NamedTuple):
    """The result of a step; leaves have an axis [A] for A agents, none for a single one."""

    state: Tree
    observation: Tree
    """The episode's true last one, where it ends."""
    reward: Array
    terminated: Array
    """bool; of several agents [A], or [] for all of them."""
    truncated: Array | bool = False
    """Likewise; a time limit is better left to `max_episode_steps`."""


class FunctionalEnv(Protocol):
    """One environment; pools step many of them by `jax.vmap`, and start new episodes themselves.

    Optional attributes:

    * `agents: tuple[str, ...]`, the names of several agents that share the two spaces;
    * `agent_spaces`, as in `srl.core.types.Specs`, for agents with smaller spaces;
    * `max_episode_steps: int`, the length at which pools truncate episodes;
    * `statistics: tuple[str, ...]`, names of the numbers of `statistics_of(state)`, float32 [S].

    Masks of actions are "action_mask" of a Dict observation.
    """

    observation_space: gymnasium.Space
    """The space of one agent's observations."""
    action_space: gymnasium.Space
    """The space of one agent's actions, which `step` gets in at most 32 bits; of a Dict or Tuple it
    gets a dict or tuple."""

    def reset(self, key: Array) -> tuple[Tree, Tree]:
        """Begins an episode; gives the state and the observation."""
        ...

    def step(self, state: Tree, action: Array, key: Array) -> Step:
        """Takes a step. The state keeps the shapes and dtypes that `reset` gave it."""
        ...
