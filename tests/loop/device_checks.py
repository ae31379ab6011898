"""What is on which device, in a process whose CPU passes for two devices: see test_devices.py."""

from __future__ import annotations

import sys
from dataclasses import replace

import jax
import numpy as np

from srl import Experiment
from srl.algorithms import DQN, PPO
from srl.dataflow import plans
from srl.loop.fused import Fused
from srl.loop.learning.learner import Learner
from srl.loop.projection import Gathered, Projection
from srl.loop.stepping.local import LocalEnvironments
from srl.networks import MLP

FIRST, SECOND = jax.devices()
CARTPOLE = Experiment(
    name="cartpole",
    env="native:CartPole-v1",
    num_envs=8,
    algorithm=PPO(network=MLP(width=16), unroll_length=8, epochs=2, minibatches=2),
    plan=plans.replicated(1),
    env_steps=10_000,
)
REPLAYED = DQN(network=MLP(width=16), unroll_length=8, replay=256, warm_up=0)


def devices(tree):
    """The devices that arrays of a tree are on; of those on several, each has the whole."""
    return set().union(*(x.devices() for x in jax.tree.leaves(tree)))


def arrays(tree):
    """The arrays of a tree but for single numbers, of which not all are looked at in an update."""
    return [x for x in jax.tree.leaves(tree) if x.ndim]


def addresses(tree):
    """Where these arrays are in memory, on each device."""
    shards = [shard.data for x in arrays(tree) for shard in x.addressable_shards]
    return [shard.unsafe_buffer_pointer() for shard in shards]


def learning(algorithm):
    """A learner, and a function that gives batches made by its newest policies."""
    experiment = replace(CARTPOLE, algorithm=algorithm)
    environments = LocalEnvironments(experiment)
    learner = Learner(experiment, environments.make())
    learner.compile(environments.prepare(learner, lambda: None))
    environments.begin()
    acting = Projection(experiment, environments)  # learns nothing

    def batch():
        acting.run()
        return Gathered(environments.gather(0).batch)

    return learner, batch


def check_learner(algorithm, expected):
    """Updates leave everything where it is, and take no other memory for states and replays."""
    learner, batch = learning(algorithm)
    held = learner.policies  # as an actor holds them that is behind
    before = jax.tree.map(np.array, held)
    learner.learn(batch())
    for _ in range(3):
        given = batch()
        changed = learner.states, learner.replays
        kept, old = addresses(changed), arrays(changed)
        with jax.transfer_guard("disallow"):  # all but what asks for one
            learner.learn(given)
        assert all(x.is_deleted() for x in old)
        assert addresses((learner.states, learner.replays)) == kept
        assert devices((learner.states, learner.replays, learner.progress.losses)) == expected
        assert devices(learner.policies) == {min(expected, key=lambda device: device.id)}
        learner.progress.report()
    jax.tree.map(np.testing.assert_array_equal, held, before)
    saved = jax.tree.map(np.array, learner.state())
    learner.learn(batch())
    learner.restore(saved)
    jax.tree.map(np.testing.assert_array_equal, learner.state()["learners"], saved["learners"])
    assert devices((learner.states, learner.progress.losses)) == expected


def check_fused(experiment, device):
    """The whole loop is on one device, where a pass takes in nothing and writes over its memory."""
    trainer = Fused(experiment)
    trainer.start()
    loop, learner = trainer.environments, trainer._learner
    trainer.update()
    for _ in range(3):
        changed = loop._operands()[:3]
        kept, old = addresses(changed), arrays(changed)
        with jax.transfer_guard("disallow_explicit"):
            trainer.update()
        assert addresses(loop._operands()[:3]) == kept
        assert all(x.is_deleted() for x in old)
        assert devices((loop._operands(), learner.policies)) == {device}
    saved = jax.tree.map(np.array, trainer.state())
    trainer.update()
    trainer.restore(saved)
    trainer.update()
    assert devices((loop._operands(), learner.policies)) == {device}
    trainer.close()


def one():
    """A process that has chosen its device."""
    jax.config.update("jax_default_device", SECOND)
    check_learner(CARTPOLE.algorithm, {SECOND})
    check_learner(REPLAYED, {SECOND})


def all_devices():
    """All devices learn."""
    check_learner(CARTPOLE.algorithm, {FIRST, SECOND})
    check_learner(REPLAYED, {FIRST, SECOND})


def fused_native():
    """A native pool is stepped on the first CPU device, whatever the default."""
    jax.config.update("jax_default_device", SECOND)
    check_fused(CARTPOLE, FIRST)
    check_fused(replace(CARTPOLE, algorithm=REPLAYED), FIRST)
    assert jax.numpy.zeros(()).devices() == {SECOND}


def fused_in_jax():
    """Environments in JAX are stepped where the process computes."""
    jax.config.update("jax_default_device", SECOND)
    check_fused(replace(CARTPOLE, env="jax:gymnax:CartPole-v1"), SECOND)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
