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
from srl.networks import MLP, SimBa

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

# Seo et al. (2025), FastTD3, with the settings of its hyperparams.py: two gradient steps for each
# step of all environments, distributions of returns, standardised observations and weight decay.
# Batches are of 1,024 for two cores, and of 32,768 there (`--algorithm.batch-size 32768
# --algorithm.samples-per-insert 256`); a replay has 51,200 steps of each environment there. Returns
# of up to 1,000 are scaled to the atoms' 250.
replayed_fast = {
    "network": MLP(widths=(512, 256, 128), value_widths=(1024, 512, 256), activation="relu"),
    "normalize_observations": True,
    "atoms": 101,
    "value_range": (-250.0, 250.0),
    "reward_scale": 0.25,
    "weight_decay": 0.1,
    "batch_size": 1024,
    "samples_per_insert": 8,
    "target_rate": 0.1,
    "learning_rate": 3e-4,
    "critic_learning_rate": 3e-4,
    "warm_up": 2_560,
}
many = {"env": "native:Humanoid-v5", "num_envs": 256, "env_steps": 3_000_000}
fast_td3 = Experiment(
    name="fast_td3",
    algorithm=TD3(noise=(0.001, 0.4), target_noise=0.001, **replayed_fast),
    **many,
)

# The same for SAC, from a small temperature, as rewards are scaled down. Ant's return is 6,428 with
# seed 100 (docs/algorithms/sac.md).
fast_sac = Experiment(name="fast_sac", algorithm=SAC(temperature=0.01, **replayed_fast), **many)

# Lee et al. (2024), SimBa: residual, normalised blocks for actor and critics.
simba = Experiment(
    name="simba",
    algorithm=SAC(
        network=SimBa(),
        normalize_observations=True,
        critic_learning_rate=3e-4,
        samples_per_insert=64,
    ),
    **replayed,
)
