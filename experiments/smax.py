"""SMAX (Rutherford et al., 2024), battles of units as in StarCraft, in JaxMARL's code.

pip install 'jaxmarl>=0.2'
srl run experiments/smax.py                                   # three marines each side, by MAPPO
srl run experiments/smax.py:ippo
srl run experiments/smax.py --env.scenario 2s3z

A return of 2 for each agent is a battle that was won without loss of damage: 1 for the enemies'
health, 1 for the victory.
"""

from dataclasses import dataclass, replace

from srl import EnvConfig, Experiment
from srl.algorithms import IPPO, MAPPO


@dataclass(frozen=True)
class Smax(EnvConfig):
    """The game against JaxMARL's own scripted enemies."""

    pool_id = "jax:jaxmarl:HeuristicEnemySMAX"
    scenario: str = "3m"
    """JaxMARL's name of the map, such as 3m, 2s3z, 5m_vs_6m or smacv2_5_units."""
    world_state: bool = True
    """True if values see the state of the battle."""


experiment = Experiment(
    name="smax",
    env=Smax(),
    num_envs=64,
    algorithm=MAPPO(epochs=4),
    env_steps=2_000_000,
)
ippo = replace(experiment, name="smax_ippo", env=Smax(world_state=False), algorithm=IPPO(epochs=4))
