"""Pools: many environments stepped together, behind one interface.

pool = make_pool("native:CartPole-v1", num_envs=64)
timestep = pool.reset(seed=0)
timestep = pool.step(actions)

`make_vec` gives the same as a vector environment of Gymnasium; `ParallelPool` puts it into the form
of PettingZoo's parallel environments.
"""

from srl.pools.config import EnvConfig, NamedEnv
from srl.pools.make import make_pool
from srl.pools.mixture import Mixture
from srl.pools.parallel import ParallelPool
from srl.pools.pool import Pool
from srl.pools.timestep_arrays import Rows
from srl.pools.vector import VectorEnv, make_vec

__all__ = [
    "EnvConfig",
    "Mixture",
    "NamedEnv",
    "ParallelPool",
    "Pool",
    "Rows",
    "VectorEnv",
    "make_pool",
    "make_vec",
]
