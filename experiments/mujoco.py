"""MuJoCo's walkers: PPO is given a million env steps to run and to hop, SAC and TD3 fewer.

srl run experiments/mujoco.py:half_cheetah
srl run experiments/mujoco.py:ant --seed 1
srl run experiments/mujoco.py:sac --env native:Walker2d-v5

What PPO learns is in docs/results/ppo.md. docs/results/gates.md lists the gates of all three, with
the returns of those that have been run with five seeds.
"""

from dataclasses import replace

from srl import Experiment
from srl.algorithms import PPO, SAC, TD3

half_cheetah = Experiment(name="half_cheetah", env="native:HalfCheetah-v5", env_steps=1_000_000)
experiment = half_cheetah

# Walker2d and Hopper look further ahead than 100 steps: with a discount of 0.99 one seed of five
# did not learn to walk on.
walker2d = Experiment(
    name="walker2d",
    env="native:Walker2d-v5",
    algorithm=PPO(discount=0.995),
    env_steps=1_000_000,
)

# Smaller updates than the defaults make. With those, Ant's policy came to change so much that the
# probability ratios of half the samples were clipped.
careful = PPO(minibatches=8, gae_lambda=0.9)
far_sighted = replace(careful, discount=0.995)
ant = Experiment(name="ant", env="native:Ant-v5", algorithm=careful, env_steps=1_000_000)
hopper = Experiment(
    name="hopper", env="native:Hopper-v5", algorithm=far_sighted, env_steps=1_000_000
)

# A gradient step of 256 transitions for every four env steps: fewer env steps than PPO is given, at
# a hundred times the work for each.
replayed = {"num_envs": 8, "env_steps": 300_000, "env": "native:HalfCheetah-v5"}
sac = Experiment(name="sac", algorithm=SAC(warm_up=1_000, samples_per_insert=64), **replayed)
td3 = Experiment(name="td3", algorithm=TD3(warm_up=10_000, samples_per_insert=64), **replayed)

# Seo et al. (2025), FastTD3: many environments, large batches, a noise of its own for each slot.
fast_td3 = Experiment(
    name="fast_td3",
    env="native:Humanoid-v5",
    num_envs=256,
    algorithm=TD3(
        noise=(0.001, 0.4), n_step=3, batch_size=8192, samples_per_insert=64, target_rate=0.1
    ),
    env_steps=10_000_000,
)
