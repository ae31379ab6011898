"""The experiments of `srl bench gpu`: small and large networks, on fast and slow simulators."""

from __future__ import annotations

from srl.algorithms import PPO, SAC
from srl.config.experiment import Experiment
from srl.dataflow import plans
from srl.envs.hide_and_seek.config import HideAndSeek
from srl.networks import CNN, MLP, EntityAttention

# The game and the network of Baker et al. (2020).
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

half_cheetah = Experiment(
    name="half_cheetah", env="native:HalfCheetah-v5", num_envs=256, algorithm=PPO()
)

# 64 samples of learning for each env step, in gradient steps of 4,096.
humanoid = Experiment(
    name="humanoid",
    env="native:Humanoid-v5",
    num_envs=256,
    algorithm=SAC(warm_up=10_000, samples_per_insert=64, batch_size=4096, replay=200_000),
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

# As many environments as keep a GPU busy with small networks.
cartpole = Experiment(
    name="cartpole",
    env="jax:gymnax:CartPole-v1",
    num_envs=4096,
    algorithm=PPO(network=MLP(width=64), unroll_length=32, epochs=1, minibatches=4),
    plan=plans.fused(),
)

breakout = Experiment(
    name="breakout",
    env="jax:gymnax:Breakout-MinAtar",
    num_envs=8192,
    algorithm=PPO(
        network=CNN(filters=(16,), kernels=(3,), strides=(1,), width=128, shared=True),
        unroll_length=32,
        epochs=1,
        minibatches=4,
    ),
    plan=plans.fused(),
)
