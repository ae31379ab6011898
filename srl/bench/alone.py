"""The compiled calls of training, each by itself, on what real environments gave."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import numpy as np

from srl.experiment import Experiment
from srl.lazy import jax
from srl.loop.policy_set import PolicySet
from srl.loop.shapes import repeated_unroll
from srl.pools import make_pool
from srl.types import Specs, Timestep, Unroll


def first_timestep(experiment: Experiment, num_envs: int) -> tuple[Specs, Timestep]:
    """What so many environments of the experiment begin with."""
    with closing(make_pool(experiment.env, num_envs)) as pool:
        return pool.specs, jax.tree.map(np.copy, pool.reset(experiment.seed))


def act_alone(experiment: Experiment, num_envs: int) -> Callable[[], Any]:
    """A compiled `act` for all slots of so many environments; a call waits for its result."""
    specs, timestep = first_timestep(experiment, num_envs)
    policy_set = PolicySet.of_experiment(experiment, specs)
    states = policy_set.init(jax.random.key(experiment.seed))
    act = jax.jit(policy_set.act)
    operands = _to_act(policy_set, states, timestep)
    return lambda: jax.block_until_ready(act(*operands))


def learn_alone(experiment: Experiment) -> tuple[Callable[[], Any], int]:
    """A compiled `learn`, and how many samples it learns from.

    A call waits for its result. Each begins at the same state, with an unroll whose steps repeat
    the first one: the work does not depend on what is in it.
    """
    specs, timestep = first_timestep(experiment, experiment.num_envs)
    policy_set = PolicySet.of_experiment(experiment, specs)
    states = policy_set.init(jax.random.key(experiment.seed))
    length = experiment.graph.unrolls[0].length

    @jax.jit
    def repeated(operands: Any, timestep: Timestep) -> Unroll:
        unroll = repeated_unroll(policy_set, timestep, policy_set.act(*operands), length)
        return unroll._replace(memory=policy_set.own(unroll.memory))

    unroll = repeated(_to_act(policy_set, states, timestep), timestep)
    learn = jax.jit(policy_set.learn)
    replays = policy_set.empty_replays(unroll)
    return lambda: jax.block_until_ready(learn(states, replays, unroll)), unroll.log_prob.size


def _to_act(policy_set: PolicySet, states: Any, timestep: Timestep) -> tuple[Any, ...]:
    """The operands of `policy_set.act`, on the device."""
    slots = np.arange(len(timestep.reward), dtype=np.int32)
    operands = (
        policy_set.acting(policy_set.policies(states)),
        timestep.observation,
        timestep.terminated | timestep.truncated,
        policy_set.initial_memory(len(timestep.env_id)),
        jax.random.key(0),
        np.uint32(0),
        slots,
    )
    return jax.device_put(operands)
