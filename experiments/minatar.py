"""MinAtar (Young and Tian, 2019), five small Atari games, in gymnax's JAX code.

pip install gymnax six
srl run experiments/minatar.py                                  # PQN plays Breakout
srl run experiments/minatar.py --env jax:gymnax:Asterix-MinAtar
srl run experiments/minatar.py:dqn --env jax:gymnax:SpaceInvaders-MinAtar

There are Asterix, Breakout, Freeway and SpaceInvaders; gymnax has no Seaquest that works.
"""

from srl import Experiment
from srl.algorithms import DQN, PPO, PQN
from srl.networks import AutoNetwork

# The settings of Gallici et al. (2025), of which purejaxql/config/alg/pqn_minatar.yaml has 10
# million steps.
experiment = Experiment(
    name="minatar",
    env="jax:gymnax:Breakout-MinAtar",
    num_envs=128,
    algorithm=PQN(
        unroll_length=32,
        epochs=2,
        minibatches=32,
        learning_rate=5e-4,
        q_lambda=0.65,
        exploration=0.1,
    ),
    env_steps=5_000_000,
)
ppo = Experiment(
    name="minatar_ppo",
    env="jax:gymnax:Breakout-MinAtar",
    num_envs=128,
    algorithm=PPO(network=AutoNetwork(layer_norm=True), epochs=4, entropy_cost=0.01),
    env_steps=5_000_000,
)
dqn = Experiment(
    name="minatar_dqn",
    env="jax:gymnax:Breakout-MinAtar",
    num_envs=32,
    algorithm=DQN(network=AutoNetwork(layer_norm=True)),
    env_steps=5_000_000,
)
