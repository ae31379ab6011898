"""MuJoCo's walkers: PPO learns to run and to hop in a million steps.

srl run experiments/mujoco.py:half_cheetah
srl run experiments/mujoco.py:ant --seed 1

What they learn is in docs/results/ppo.md.
"""

from srl import Experiment
from srl.algorithms import PPO

half_cheetah = Experiment(name="half_cheetah", env="native:HalfCheetah-v5", env_steps=1_000_000)
experiment = half_cheetah

walker2d = Experiment(name="walker2d", env="native:Walker2d-v5", env_steps=1_000_000)

# Smaller updates than the defaults make. With those, Ant's policy came to change so much that the
# probability ratios of half the samples were clipped; Hopper's, with one of two seeds, never got
# beyond short leaps.
careful = PPO(minibatches=8, gae_lambda=0.9)
ant = Experiment(name="ant", env="native:Ant-v5", algorithm=careful, env_steps=1_000_000)
hopper = Experiment(name="hopper", env="native:Hopper-v5", algorithm=careful, env_steps=1_000_000)
