"""A mixture of three of MuJoCo's walkers: one policy learns to run with three bodies.

srl run experiments/mixture.py
srl run experiments/mixture.py:alone --env native:Ant-v5

docs/mixtures.md has the returns of both.
"""

from dataclasses import replace

from srl import Experiment, Mixture
from srl.algorithms import PPO
from srl.networks import MLP

settings = PPO(network=MLP(width=128), epochs=5, minibatches=8, gae_lambda=0.9)

# Three times the environments, and minibatches of 256 steps as alone.
mixture = Experiment(
    name="mixture",
    env=Mixture(
        {
            "cheetah": "native:HalfCheetah-v5",
            "walker": "native:Walker2d-v5",
            "ant": "native:Ant-v5",
        }
    ),
    num_envs=192,
    algorithm=replace(settings, minibatches=24),
    env_steps=3_000_000,
)
experiment = mixture

# One of the tasks with the same settings, in as many environments as it has in the mixture.
alone = Experiment(
    name="alone", env="native:HalfCheetah-v5", algorithm=settings, env_steps=1_000_000
)
