"""CartPole, the first thing to try: PPO and PQN balance the pole within a minute on two cores.

srl run experiments/cartpole.py
srl run experiments/cartpole.py:pqn --seed 1
srl run experiments/cartpole.py:dqn
srl eval runs/cartpole_pqn

DQN takes longer: in runs of 500,000 env steps its mean return over five seeds was 435 after 300,000
env steps and 496 at the end (docs/results/peers.md).
"""

from srl import Experiment
from srl.algorithms import DQN, PPO, PQN

experiment = Experiment(
    name="cartpole", env="native:CartPole-v1", algorithm=PPO(), env_steps=300_000
)
pqn = Experiment(name="cartpole_pqn", env="native:CartPole-v1", algorithm=PQN(), env_steps=300_000)
dqn = Experiment(name="cartpole_dqn", env="native:CartPole-v1", algorithm=DQN(), env_steps=500_000)
