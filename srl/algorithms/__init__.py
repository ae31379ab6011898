"""Algorithms: pure functions over pytrees that act and learn.

Importing this loads neither jax, flax nor optax; the first `init`, `act` or `learn` does.
"""

from srl.algorithms.actor_critic import ActorCritic
from srl.algorithms.algorithm import Algorithm, Instance, State
from srl.algorithms.appo import APPO
from srl.algorithms.discrete_sac import DiscreteSAC
from srl.algorithms.dqn import DQN
from srl.algorithms.hindsight import Hindsight
from srl.algorithms.impala import IMPALA
from srl.algorithms.mappo import IPPO, MAPPO
from srl.algorithms.mirror import Mirror
from srl.algorithms.ppo import PPO
from srl.algorithms.pqn import PQN
from srl.algorithms.r2d2 import R2D2
from srl.algorithms.reppo import REPPO
from srl.algorithms.sac import SAC
from srl.algorithms.td3 import TD3
from srl.algorithms.teams import Mixer

ALGORITHMS: tuple[type[Algorithm], ...] = (
    *(PPO, APPO, IMPALA, REPPO),
    *(MAPPO, IPPO),
    *(PQN, DQN, R2D2),
    *(SAC, DiscreteSAC, TD3),
)
"""The algorithms that come with srl."""

__all__ = [
    "ALGORITHMS",
    "APPO",
    "DQN",
    "IMPALA",
    "IPPO",
    "MAPPO",
    "PPO",
    "PQN",
    "R2D2",
    "REPPO",
    "SAC",
    "TD3",
    "ActorCritic",
    "Algorithm",
    "DiscreteSAC",
    "Hindsight",
    "Instance",
    "Mirror",
    "Mixer",
    "State",
]
