"""Algorithms: pure functions over pytrees that act and learn.

Importing this loads neither jax, flax nor optax; the first `init`, `act` or `learn` does.
"""

from srl.algorithms.actor_critic import ActorCritic, ActorCriticInstance
from srl.algorithms.algorithm import Algorithm, Instance, State
from srl.algorithms.appo import APPO
from srl.algorithms.ppo import PPO

__all__ = ["APPO", "PPO", "ActorCritic", "ActorCriticInstance", "Algorithm", "Instance", "State"]
