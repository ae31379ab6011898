"""Overcooked (Carroll et al., 2019), two cooks in one kitchen, in JaxMARL's code.

pip install 'jaxmarl>=0.2'
srl run experiments/overcooked.py                             # cramped_room, by IPPO
srl run experiments/overcooked.py --env.layout coord_ring

A delivered soup is a reward of 20 for both cooks. The first lesson has helping rewards, too: for an
onion in a pot, a plate in time, and a soup that is taken up.
"""

from dataclasses import dataclass

from srl import EnvConfig, Experiment, Lesson
from srl.algorithms import IPPO


@dataclass(frozen=True)
class Overcooked(EnvConfig):
    """The game of two cooks, for 400 steps."""

    pool_id = "jax:jaxmarl:overcooked"
    layout: str = "cramped_room"
    """JaxMARL's name: cramped_room, asymm_advantages, coord_ring, forced_coord or
    counter_circuit."""
    shaped_reward: float = 0.0
    """The weight of the helping rewards."""


experiment = Experiment(
    name="overcooked",
    env=Overcooked(),
    num_envs=64,
    algorithm=IPPO(epochs=4, minibatches=4, entropy_cost=0.01),
    curriculum=(Lesson({"shaped_reward": 1.0}, until="env_steps >= 1_500_000"),),
    env_steps=3_000_000,
)
