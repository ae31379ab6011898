"""The vocabulary that every part of srl shares: plain values and pytrees, no behaviour.

Letters in shapes: N environments, A agents in each, B = N * A slots (environment-major, so slot
`n * A + a` is agent `a` of environment `n`), T steps of an unroll.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

# Imported under these names: of `Array = Any`, basedpyright takes `array | array` for a type.
from typing import Any as Array  # a numpy.ndarray or a jax.Array; jax would be imported everywhere
from typing import Any as Tree  # an array, or a dict or tuple of trees

if TYPE_CHECKING:
    import gymnasium


@dataclass(frozen=True)
class Specs:
    """The shapes and spaces of a pool's environments; all agents share the two spaces."""

    observation: gymnasium.Space
    """The observation space of one agent."""
    action: gymnasium.Space
    """The action space of one agent: Box, Discrete, MultiDiscrete, MultiBinary, or a Dict or Tuple
    of these, of which actions are trees."""
    agents: tuple[str, ...]
    """The agents' names, in slot order."""
    statistics: tuple[str, ...] = ()
    """Names of the numbers the environment keeps of each episode."""
    max_episode_steps: int | None = None
    """The length at which episodes are truncated; None where it is not known."""
    agent_spaces: tuple[tuple[gymnasium.Space, gymnasium.Space], ...] = ()
    """Each agent's own observation and action space, in slot order, where these differ: rows are
    padded with zeros up to `observation` and `action`."""
    tasks: tuple[str, ...] = ()
    """Names of the tasks of a mixture; the integer `task` of an observation counts through them."""
    task_of: tuple[int, ...] = ()
    """The task of each environment, which repeats: environment i has task_of[i % len(task_of)]."""


class Timestep(NamedTuple):
    """The output of a pool at reset and at each step, one row for each slot.

    With next-step autoreset: where `terminated` or `truncated` is set, `observation` is the
    episode's true last one; the next step ignores the action and gives the first observation
    of the new episode with reward 0.

    The row of an agent that is not there is flagged too: `terminated` from its last step on until
    its environment's episode ends, `truncated` before it joins.

    Where `lost` is set, the environment itself has died and was made anew. The row repeats the
    last observation with reward 0 and `truncated`; neither it nor the action that led to it may
    enter a loss or a statistic.
    """

    observation: Tree  # [B, ...]
    reward: Array  # float32 [B]; of the action that led here
    terminated: Array  # bool [B]
    truncated: Array  # bool [B]
    episode_return: Array  # float32 [B], the sum of this episode's rewards so far
    episode_length: Array  # int32 [N], steps of this episode so far
    statistics: Array  # float32 [N, len(specs.statistics)], of this episode so far
    env_id: Array  # int32 [N]
    lost: Array  # bool [N]; the environment died: its episode ended, and this row is no result


class Decision(NamedTuple):
    """The answer of a policy to observations, one row for each slot."""

    action: Tree  # [B, ...]
    log_prob: Array  # float32 [B]; inf where the action is left to a teacher
    memory: Tree  # [B, ...]; () for a policy without memory
    advice: Tree = ()  # [B, ...], of a teacher where there is one


class Unroll(NamedTuple):
    """T steps of a set of slots, time-major.

    Row t of `observation`, `reward`, `terminated` and `truncated` is one timestep; action t was
    taken at row t and led to row t + 1. The last row is the bootstrap observation. A row whose
    terminated or truncated is set ends an episode: the action taken at it was ignored and must
    not enter a loss.
    """

    observation: Tree  # [T + 1, B, ...]
    reward: Array  # float32 [T + 1, B]
    terminated: Array  # bool [T + 1, B]
    truncated: Array  # bool [T + 1, B]
    action: Tree  # [T, B, ...]
    log_prob: Array  # float32 [T, B], of the policy that acted; inf where a teacher did
    memory: Tree  # [T / chunk, B, ...], before the first row of each chunk; () without memory
    version: Array  # int32 [T, G, 2], the (epoch, n) of the policy that acted in each of G groups
    slot: Array  # int32 [B], the columns' numbers in the run: the slots', where staleness is 0
    advice: Tree = ()  # [T, B, ...], of a teacher where there is one


class Policy(NamedTuple):
    """The parts of a policy that acting needs, and all that leaves the learner."""

    params: Tree
    normalizer: Tree  # observation statistics; () without normalisation
    settings: Tree = ()  # adjustable settings that acting needs, float32 [] by name


Metrics = Mapping[str, Any]
"""Names to scalars."""
