"""srl: distributed reinforcement learning for simulators.

Write a training loop once, as a dataflow graph; run it on one core or on ten thousand by choosing
a plan. This package exports what an experiment file needs; importing it loads neither jax nor flax.
"""

from srl.errors import RunError, SrlError, UserError
from srl.experiment import Experiment
from srl.pools import EnvConfig, make_pool, make_vec

__all__ = [
    "EnvConfig",
    "Experiment",
    "RunError",
    "SrlError",
    "UserError",
    "make_pool",
    "make_vec",
]
