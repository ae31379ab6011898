"""CartPole, the first thing to try: balanced within a minute on two cores, by three algorithms.

srl run experiments/cartpole.py
srl run experiments/cartpole.py:pqn --seed 1
srl eval runs/cartpole_pqn --greedy
"""

from srl import Experiment
from srl.algorithms import DQN, PPO, PQN

experiment = Experiment(
    name="cartpole", env="native:CartPole-v1", algorithm=PPO(), env_steps=300_000
)
pqn = Experiment(name="cartpole_pqn", env="native:CartPole-v1", algorithm=PQN(), env_steps=300_000)
dqn = Experiment(name="cartpole_dqn", env="native:CartPole-v1", algorithm=DQN(), env_steps=250_000)
