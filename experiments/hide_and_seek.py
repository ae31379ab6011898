"""Hide and seek: hiders and seekers learn by playing each other (Baker et al., 2020).

srl run experiments/hide_and_seek.py                      # the preset laptop
srl run experiments/hide_and_seek.py:searching            # agents with memory, longer
srl run experiments/hide_and_seek.py:shelter              # hiders learn to shut themselves in
srl run experiments/hide_and_seek.py:quadrant             # longer memory, two hours on two cores
srl run experiments/hide_and_seek.py:full --on slurm ...  # the paper's, for many hosts
"""

from dataclasses import replace

from srl import Experiment, SelfPlay
from srl.algorithms import PPO
from srl.dataflow import plans
from srl.envs.hide_and_seek.config import HideAndSeek
from srl.networks import EntityAttention

# Two against two in one corner room: some minutes on two cores. Trained twice as long, the seekers
# may come to fit the trained hiders so well that they find others worse than beginners do.
laptop = Experiment(
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
    self_play=SelfPlay(past=0.2),
    env_steps=500_000,
)
experiment = laptop

# The same game for agents that remember, and that meet more of their past opponents: seekers still
# find beginners in two seeds of three, and hiders fetch boxes to hide behind (docs/results).
searching = replace(
    laptop,
    name="hide_and_seek_searching",
    algorithm=replace(
        laptop.algorithm,
        network=EntityAttention(width=32, heads=2, memory=32),
        chunk=10,
        minibatches=4,
    ),
    self_play=SelfPlay(past=0.6),
    env_steps=2_000_000,
)

# A small world for shelters: one against one, a room with one door, and a long box, which the hider
# comes to pull across a corner and lock: after 15 to 29 minutes on two cores (docs/results).
shelter = Experiment(
    name="hide_and_seek_shelter",
    env=HideAndSeek(
        scenario="quadrant",
        hiders=1,
        seekers=1,
        hiders_anywhere=False,
        door_dropout=1.0,
        boxes_min=1,
        boxes_max=1,
        elongated_min=1,
        elongated_max=1,
        ramps=0,
    ),
    num_envs=128,
    algorithm=replace(laptop.algorithm, discount=0.99, entropy_cost=0.01, anneal=False),
    policies=laptop.policies,
    env_steps=15_000_000,
)

# The agents of the paper and how they learn (its appendix B): one policy for all, with memory, and
# a value that sees everything.
published = PPO(
    network=EntityAttention(width=128, heads=4, memory=256, cell="lstm"),
    unroll_length=160,
    chunk=10,
    epochs=4,
    minibatches=4,
    discount=0.998,
    gae_lambda=0.95,
    clip=0.2,
    entropy_cost=0.01,
    learning_rate=3e-4,
    anneal=False,
    max_grad_norm=5.0,
    weight_decay=1e-6,
)

# One corner room, for agents with a quarter of the published memory, and past opponents.
quadrant = Experiment(
    name="hide_and_seek_quadrant",
    env=HideAndSeek(scenario="quadrant"),
    num_envs=128,
    algorithm=replace(
        published,
        network=EntityAttention(width=32, heads=2, memory=64, cell="lstm"),
        unroll_length=80,
        minibatches=8,
        epochs=2,
        discount=0.99,
        entropy_cost=0.003,
        learning_rate=5e-4,
    ),
    policies=laptop.policies,
    self_play=SelfPlay(past=0.6),
    plan=plans.threads(),
    max_staleness=1,
    env_steps=20_000_000,
)

# The paper's game: random rooms, three to nine boxes, two ramps, and 64,000 chunks of ten steps in
# each of its minibatches. `--num-envs 64` makes it fit a small machine.
full = Experiment(
    name="hide_and_seek_full",
    env=HideAndSeek(scenario="full"),
    num_envs=4000,
    algorithm=published,
    plan=plans.decoupled(actors=16, policies=2),
    max_staleness=4,
    env_steps=30_000_000_000,
)

# SRL's harder map (Mei et al., 2024): a floor of twice the side, so four times the room.
full_large = replace(
    full, name="hide_and_seek_full_large", env=HideAndSeek(scenario="full", floor_size=12.0)
)
