"""Atari's games (`pip install ale-py`), with settings that follow the algorithms' papers.

srl run experiments/atari.py                                  # PPO plays Pong
srl run experiments/atari.py:pqn --env atari:Breakout
srl run experiments/atari.py:ape_x --plan decoupled --max-staleness 4

PPO trains with some 330 env steps/s on two cores, so Pong takes hours there. An env step is four
frames; the budget is the usual 40 million of them.
"""

from srl import Experiment
from srl.algorithms import DQN, PPO, PQN
from srl.networks import CNN

# After Schulman et al. (2017), table 5, with the 4 epochs of their code.
experiment = Experiment(
    name="atari",
    env="atari:Pong",
    num_envs=8,
    algorithm=PPO(
        network=CNN(shared=True),
        unroll_length=128,
        epochs=4,
        minibatches=4,
        learning_rate=2.5e-4,
        clip=0.1,
        entropy_cost=0.01,
        normalize_observations=False,
        normalize_values=False,
    ),
    env_steps=10_000_000,
)

# The settings of Gallici et al. (2025) for Atari, as their purejaxql/config/alg/pqn_atari.yaml has
# them: the learning rate stays. There, a lost life ends an episode, and actions are not sticky
# (`--env.episodic-life true --env.repeat-action-probability 0`).
pqn = Experiment(
    name="atari_pqn",
    env="atari:Pong",
    num_envs=128,
    algorithm=PQN(
        network=CNN(layer_norm=True),
        unroll_length=32,
        epochs=2,
        minibatches=32,
        learning_rate=2.5e-4,
        anneal=False,
        q_lambda=0.65,
        exploration=0.1,
        epsilon_end=0.001,
    ),
    env_steps=10_000_000,
)

# The replay, the warm-up and a gradient step of 32 transitions for every 4 env steps are those of
# Mnih et al. (2015), extended data table 1; Adam's learning rate and the share of random actions
# are those of CleanRL's dqn_atari.py. Targets are double. The target network follows in each
# gradient step; `target_rate=1` and `target_period=10_000` give the paper's copies. A million
# frames take 7.5 GB.
dqn = Experiment(
    name="atari_dqn",
    env="atari:Pong",
    num_envs=8,
    algorithm=DQN(
        network=CNN(),
        unroll_length=64,
        n_step=1,
        replay=1_000_000,
        warm_up=50_000,
        batch_size=32,
        samples_per_insert=8,
        learning_rate=1e-4,
        target_rate=0.0005,
        exploration=0.1,
        epsilon_end=0.01,
    ),
    env_steps=10_000_000,
)

# Horgan et al. (2018): priorities, dueling outputs, and a share of random actions for each slot.
ape_x = Experiment(
    name="atari_ape_x",
    env="atari:Pong",
    num_envs=256,
    algorithm=DQN(
        network=CNN(),
        unroll_length=64,
        n_step=3,
        dueling=True,
        priorities=0.6,
        epsilon_start=0.4,
        epsilon_end=0.4,
        epsilon_spread=7.0,
        replay=2_000_000,
        warm_up=50_000,
        batch_size=512,
        samples_per_insert=8,
        learning_rate=1e-4,
        target_rate=0.0005,
    ),
    env_steps=50_000_000,
)
