"""Checks of where arrays are and of what an update moves: a process of `srl bench gpu`.

An update leaves states and replays on their devices, in the memory that they had, and moves nothing
but the unroll in and metrics out. On a CPU that passes for several devices the tests run all of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from srl.algorithms import DQN, PPO
from srl.algorithms.algorithm import Algorithm
from srl.config.experiment import Experiment
from srl.core.errors import RunError
from srl.core.types import Tree
from srl.dataflow import plans
from srl.loop.acting.local_acting import LocalActing, compiled_act
from srl.loop.fused import Fused
from srl.loop.learning.learner import Learner
from srl.loop.projection import Gathered, Projection
from srl.loop.stepping.local import LocalEnvironments
from srl.networks import MLP
from srl.pools.timestep_arrays import empty_timestep

CARTPOLE = Experiment(
    name="cartpole",
    env="native:CartPole-v1",
    num_envs=8,
    algorithm=PPO(network=MLP(width=16), unroll_length=8, epochs=2, minibatches=2),
    plan=plans.replicated(1),
    env_steps=10_000,
)
REPLAYED = DQN(network=MLP(width=16), unroll_length=8, replay=256, warm_up=0)


def main(argv: list[str]) -> int:
    """Runs the checks of these names; an error says which one fails."""
    for name in argv:
        CHECKS[name]()
    return 0


def expect(condition: bool, rule: str) -> None:
    """Raises RunError with a rule that does not hold."""
    if not condition:
        raise RunError(f"on these devices it does not hold that {rule}")


def devices(tree: Tree) -> set[Any]:
    """The devices that arrays of a tree are on; of those on several, each has the whole."""
    return set().union(*(x.devices() for x in jax.tree.leaves(tree)))


def arrays(tree: Tree) -> list[Any]:
    """The arrays of a tree but for single numbers, of which not all are looked at in an update."""
    return [x for x in jax.tree.leaves(tree) if x.ndim]


def addresses(tree: Tree) -> list[int]:
    """Gives the memory addresses of a tree's arrays on each device."""
    shards = [shard.data for x in arrays(tree) for shard in x.addressable_shards]
    return [shard.unsafe_buffer_pointer() for shard in shards]


def learning(algorithm: Algorithm) -> tuple[Learner, Callable[[], Gathered]]:
    """A learner, and a function that gives batches made by its newest policies."""
    experiment = replace(CARTPOLE, algorithm=algorithm)
    environments = LocalEnvironments(experiment)
    learner = Learner(experiment, environments.make())
    learner.compile(environments.prepare(learner, lambda: None))
    environments.begin()
    acting = Projection(experiment, environments)  # learns nothing

    def batch() -> Gathered:
        acting.run()
        return Gathered(environments.gather(0).batch)

    return learner, batch


def check_learner(algorithm: Algorithm, expected: set[Any]) -> None:
    """Updates leave everything where it is, and take no other memory for states and replays."""
    learner, batch = learning(algorithm)
    held = learner.policies  # as an actor holds them that is behind
    before = jax.tree.map(np.array, held)
    learner.learn(batch())
    for _ in range(3):
        given = batch()
        changed = learner.states, learner.replays.buffers
        kept, old = addresses(changed), arrays(changed)
        with jax.transfer_guard("disallow"):  # all but explicit ones
            learner.learn(given)
        expect(all(x.is_deleted() for x in old), "an update takes over states and replays")
        changed = learner.states, learner.replays.buffers
        expect(addresses(changed) == kept, "donated arrays keep their addresses")
        expect(devices((changed, learner.progress.losses)) == expected, "the state stays there")
        first = min(expected, key=lambda device: device.id)
        expect(devices(learner.policies) == {first}, "policies are on the device that acts")
        learner.progress.report()
    jax.tree.map(np.testing.assert_array_equal, held, before)
    saved = jax.tree.map(np.array, learner.state())
    learner.learn(batch())
    learner.restore(saved)
    jax.tree.map(np.testing.assert_array_equal, learner.state()["learners"], saved["learners"])
    expect(devices((learner.states, learner.progress.losses)) == expected, "it is restored there")


def check_fused(experiment: Experiment, device: Any) -> None:
    """The whole loop is on one device, where a pass takes in nothing and writes over its memory."""
    trainer = Fused(experiment)
    trainer.start()
    loop, learner = trainer.environments, trainer.learner
    trainer.update()
    for _ in range(3):
        changed = loop._operands()[:3]
        kept, old = addresses(changed), arrays(changed)
        with (
            jax.transfer_guard_host_to_device("disallow_explicit"),
            jax.transfer_guard_device_to_device("disallow_explicit"),
        ):
            trainer.update()
        expect(addresses(loop._operands()[:3]) == kept, "donated arrays keep their addresses")
        expect(all(x.is_deleted() for x in old), "an update takes over what it changes")
        there = devices((loop._operands(), learner.policies))
        expect(there == {device}, "all of the program is on one device")
    saved = jax.tree.map(np.array, trainer.state())
    trainer.update()
    trainer.restore(saved)
    trainer.update()
    expect(devices((loop._operands(), learner.policies)) == {device}, "it is restored there")
    trainer.close()


def acting_on_cpu() -> None:
    """A worker acts on the CPU with policies that are learned elsewhere: SRL_GPU=act=cpu."""
    jax.config.update("jax_default_device", _last())
    environments = LocalEnvironments(CARTPOLE)
    specs = environments.make()
    learner = Learner(CARTPOLE, specs)
    acting = LocalActing(
        CARTPOLE,
        learner.policy_set,
        compiled_act(learner.policy_set),
        lambda oldest: (learner.progress.version, learner.policies),
        range(CARTPOLE.num_envs),
        swaps=False,
    )
    acting.begin((0, 0))
    timestep = empty_timestep(specs, CARTPOLE.num_envs)
    acting.decide(timestep, acting.initial_memory(), 0)
    cpu = jax.local_devices(backend="cpu")[0]
    placed = acting.policies, acting.key, acting.slots, acting.initial_memory(), acting._clock
    expect(devices(placed) == {cpu}, "all that acts is on the CPU")
    expect(devices(learner.policies) == {_last()}, "policies stay where they are learned")
    environments.close()


def _last() -> Any:
    return jax.local_devices()[-1]


def one() -> None:
    """A process that has chosen its device."""
    jax.config.update("jax_default_device", _last())
    check_learner(CARTPOLE.algorithm, {_last()})
    check_learner(REPLAYED, {_last()})


def all_devices() -> None:
    """All devices learn."""
    check_learner(CARTPOLE.algorithm, set(jax.local_devices()))
    check_learner(REPLAYED, set(jax.local_devices()))


def fused_native() -> None:
    """A native pool is stepped on the first CPU device, whatever the default."""
    jax.config.update("jax_default_device", _last())
    cpu = jax.local_devices(backend="cpu")[0]
    check_fused(CARTPOLE, cpu)
    check_fused(replace(CARTPOLE, algorithm=REPLAYED), cpu)
    expect(jax.numpy.zeros(()).devices() == {_last()}, "the default device is as it was")


def fused_in_jax() -> None:
    """Environments in JAX are stepped where the process computes."""
    jax.config.update("jax_default_device", _last())
    check_fused(replace(CARTPOLE, env="jax:gymnax:CartPole-v1"), _last())


CHECKS: dict[str, Callable[[], None]] = {
    "one": one,
    "all_devices": all_devices,
    "fused_native": fused_native,
    "fused_in_jax": fused_in_jax,
    "acting_on_cpu": acting_on_cpu,
}
"""The checks by name; each is for a process of its own, as it may choose a device."""
