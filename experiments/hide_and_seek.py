"""Hide and seek: hiders and seekers learn by playing each other (Baker et al., 2020).

srl run experiments/hide_and_seek.py
srl run experiments/hide_and_seek.py:full --num-envs 256
"""

from dataclasses import replace

from srl import Experiment
from srl.algorithms import PPO
from srl.envs.hide_and_seek import HideAndSeek
from srl.networks import EntityAttention

# Two against two in one corner room: some minutes on two cores. Trained much longer against nobody
# but each other, the seekers come to fit the trained hiders alone.
experiment = Experiment(
    name="hide_and_seek",
    env=HideAndSeek(scenario="quadrant"),
    num_envs=64,
    algorithm=PPO(
        network=EntityAttention(width=32, heads=2),
        unroll_length=40,
        discount=0.98,
        epochs=2,
        minibatches=8,
        learning_rate=1e-3,
        entropy_cost=0.003,
    ),
    policies={"hider*": "hiders", "seeker*": "seekers"},
    env_steps=400_000,
)

# The paper's game: random rooms, three to nine boxes, two ramps.
full = replace(
    experiment,
    name="hide_and_seek_full",
    env=HideAndSeek(scenario="full"),
    algorithm=replace(
        experiment.algorithm, network=EntityAttention(width=128), unroll_length=80, discount=0.998
    ),
    env_steps=30_000_000_000,
)
