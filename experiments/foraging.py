"""Level-Based Foraging (Papoudakis et al., 2021), teams that load food together, in Jumanji's code.

pip install 'jumanji>=1.1'
srl run experiments/foraging.py                      # 8x8-2p-2f-coop by MAPPO
srl run experiments/foraging.py:three                # 10x10-3p-3f
srl run experiments/foraging.py:ippo --seed 1
srl run experiments/foraging.py --env.num-food 3

The returns of all agents add up to 1 if all food is loaded: 0.5 each for two. Agents learn from
the team's sum.
"""

from dataclasses import dataclass, replace

from srl import EnvConfig, Experiment
from srl.algorithms import IPPO, MAPPO


@dataclass(frozen=True)
class Foraging(EnvConfig):
    """The game, in which all agents see the whole grid."""

    pool_id = "jax:jumanji:LevelBasedForaging-v0"
    grid_size: int = 8
    """Rows and columns."""
    fov: int = 8
    """Squares that an agent sees in each direction."""
    num_agents: int = 2
    """Agents."""
    num_food: int = 2
    """Pieces of food."""
    force_coop: bool = True
    """True if each piece takes all agents to load it."""
    time_limit: int = 50
    """Steps of an episode."""
    world_state: bool = True
    """True if values see what all agents observe."""


experiment = Experiment(
    name="foraging",
    env=Foraging(),
    num_envs=64,
    algorithm=MAPPO(),
    team_reward={"agent_*": "sum"},
    env_steps=2_000_000,
)
ippo = replace(experiment, name="foraging_ippo", env=Foraging(world_state=False), algorithm=IPPO())
three = replace(
    experiment,
    name="foraging_three",
    env=Foraging(grid_size=10, fov=10, num_agents=3, num_food=3, force_coop=False),
)
