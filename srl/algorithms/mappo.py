"""MAPPO and IPPO (Yu et al., 2022, https://arxiv.org/abs/2103.01955): PPO for teams of agents.

The agents of a policy share its parameters, and each learns by its own advantages. MAPPO's value
sees the state of the environment next to the agent's observation; IPPO's sees the observation. Both
have the paper's settings; its value loss is Huber's, which differs for large errors alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from srl.algorithms.ppo import PPO
from srl.core.schedule import Adjustable
from srl.core.settings import Range


@dataclass(frozen=True)
class IPPO(PPO):
    """The settings of independent PPO; all are PPO's, with other defaults."""

    minibatches: Annotated[int, Range(0)] = 1
    """The number of parts of a batch, each for one gradient step: teams learn better from whole
    batches. 0 chooses as PPO does."""
    learning_rate: Annotated[Adjustable, Range(0.0)] = 5e-4
    """The step size of Adam."""
    anneal: bool = False
    """True if the learning rate falls linearly to 0 over a run of known length."""
    max_grad_norm: Annotated[Adjustable, Range(0.0)] = 10.0
    """The largest norm of a gradient; longer ones are scaled to it."""
    entropy_cost: Annotated[Adjustable, Range(0.0)] = 0.01
    """The weight of the reward for entropy."""


@dataclass(frozen=True)
class MAPPO(IPPO):
    """The settings of multi-agent PPO, whose value sees the environment's state."""

    privileged: tuple[str, ...] = field(default=("state",), kw_only=True)
    """The keys of a Dict observation that only values see. PettingZoo, JaxMARL and Jumanji give
    `state` by the option world_state=True."""
