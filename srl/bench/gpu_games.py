"""What `srl bench gpu` trains: small and large networks, on fast and slow simulators."""

from __future__ import annotations

from srl.algorithms import PPO
from srl.envs.hide_and_seek.config import HideAndSeek
from srl.experiment import Experiment
from srl.networks import CNN, EntityAttention

cartpole = Experiment(name="cartpole", env="native:CartPole-v1", num_envs=256, algorithm=PPO())

half_cheetah = Experiment(
    name="half_cheetah", env="native:HalfCheetah-v5", num_envs=256, algorithm=PPO()
)

# The network of Mnih et al. (2015); the settings of Schulman et al. (2017) with more environments.
pong = Experiment(
    name="pong",
    env="atari:Pong",
    num_envs=64,
    algorithm=PPO(
        network=CNN(),
        unroll_length=128,
        epochs=4,
        minibatches=8,
        learning_rate=2.5e-4,
        clip=0.1,
        entropy_cost=0.01,
        anneal=False,
        normalize_observations=False,
        normalize_values=False,
    ),
)

# The game and the network of Baker et al. (2020), with as many environments as one GPU holds.
hide_and_seek = Experiment(
    name="hide_and_seek",
    env=HideAndSeek(scenario="full"),
    num_envs=64,
    algorithm=PPO(
        network=EntityAttention(width=128, heads=4, memory=256, cell="lstm"),
        unroll_length=160,
        chunk=10,
        epochs=4,
        minibatches=4,
        discount=0.998,
        anneal=False,
    ),
)

GAMES = {each.name: each for each in (cartpole, half_cheetah, pong, hide_and_seek)}
"""The games by the names that they have in this file."""
