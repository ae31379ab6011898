"""Algorithms: pure functions over pytrees that act and learn.

Importing this loads neither jax, flax nor optax; the first `init`, `act` or `learn` does.
"""

from srl.algorithms.actor_critic import ActorCritic, ActorCriticInstance
from srl.algorithms.algorithm import Algorithm, Instance, State
from srl.algorithms.appo import APPO
from srl.algorithms.dqn import DQN
from srl.algorithms.impala import IMPALA
from srl.algorithms.ppo import PPO
from srl.algorithms.pqn import PQN
from srl.algorithms.sac import SAC

ALGORITHMS: tuple[type[Algorithm], ...] = (PPO, APPO, IMPALA, PQN, DQN, SAC)
"""Those that come with srl."""

__all__ = [
    "ALGORITHMS",
    "APPO",
    "DQN",
    "IMPALA",
    "PPO",
    "PQN",
    "SAC",
    "ActorCritic",
    "ActorCriticInstance",
    "Algorithm",
    "Instance",
    "State",
]
