"""Small experiments that train in this process, and what to compare of them."""

import contextlib
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from srl import Experiment
from srl.algorithms import DQN, PPO, Mixer
from srl.config.experiment import Resolved
from srl.envs.hide_and_seek.config import HideAndSeek
from srl.loop.policy_set import PolicySet
from srl.networks import MLP
from srl.pools import make_pool
from srl.record.checkpoint import Checkpoints
from srl.record.run_record import write_specs
from srl.run.folder import create_run

CARTPOLE = Experiment(
    name="cartpole",
    env="native:CartPole-v1",
    num_envs=8,
    algorithm=PPO(network=MLP(width=16), unroll_length=16, epochs=2),
    env_steps=10_000,
)
RECURRENT = replace(
    CARTPOLE, algorithm=replace(CARTPOLE.algorithm, network=MLP(width=16, memory=8), chunk=4)
)
GAME = Experiment(
    name="game",
    env=HideAndSeek(horizon=20),
    num_envs=4,
    algorithm=PPO(network=MLP(width=16), unroll_length=8, epochs=1, minibatches=2),
    policies={"hider*": "hiders", "seeker*": "seekers"},
    env_steps=10_000,
)
"""Two policies; perceptrons, as attention takes many times as long to compile."""
TEAM = Experiment(
    name="team",
    env="jax:srl.envs.two_step:TwoStep",
    num_envs=8,
    algorithm=DQN(
        network=MLP(width=8), mixer=Mixer(width=4), priorities=0.6, replay=256, warm_up=64,
        batch_size=8, samples_per_insert=0.5,
    ),
    env_steps=10_000,
)  # fmt: skip
"""Two agents whose values are mixed, learned from a replay of four unrolls."""


def train(trainer, updates):
    """The reports after each update, without what depends on the machine."""
    reports = []
    for _ in range(updates):
        trainer.update()
        report = trainer.report()
        timed = [k for k in report if k in ("fps", "bottleneck") or k.startswith("time/")]
        reports.append({k: v for k, v in report.items() if k not in timed})
    return reports


def assert_same(a, b):
    """Equal to the last bit."""
    leaves = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    assert all(np.array_equal(x, y) for x, y in leaves)


def save(resolved, folder, specs=None):
    """A run of which there is no more than its first checkpoint; learning takes long to compile."""
    experiment, run = resolved.experiment, create_run(resolved, folder)
    if specs is None:
        with make_pool(experiment.env) as pool:
            specs = pool.specs
    policy_set = PolicySet.of(experiment.algorithm, experiment.policies, specs, updates=1)
    write_specs(run, specs)
    states = policy_set.init(jax.random.key(3))
    states = {name: state._replace(n=jnp.int32(7)) for name, state in states.items()}
    tree = {"learners": {name: state._asdict() for name, state in states.items()}}
    with contextlib.closing(Checkpoints(run.checkpoints)) as checkpoints:
        checkpoints.save(7, tree, {"updates": 7, "env_steps": 16}, wait=True)
    return run


def resolved(experiment):
    return Resolved(experiment, "", (), None, Path.cwd())
