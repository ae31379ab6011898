"""Pools: many environments stepped together, behind one face.

pool = make_pool("native:CartPole-v1", num_envs=64)
timestep = pool.reset(seed=0)
timestep = pool.step(actions)
"""

from srl.pools.make import make_pool
from srl.pools.pool import EnvConfig, Pool, Rows

__all__ = ["EnvConfig", "Pool", "Rows", "make_pool"]
