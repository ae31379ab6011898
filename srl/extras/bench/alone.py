"""The compiled calls of training, each by itself, on what real environments gave."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any

import numpy as np

from srl.config.experiment import Experiment
from srl.core.lazy import jax, jnp
from srl.core.types import Specs, Timestep, Unroll
from srl.loop.fused import TracedLoop
from srl.loop.policy_set import PolicySet
from srl.loop.shapes import repeated_unroll
from srl.loop.stepping.traced import Interaction
from srl.loop.xla_threads import choose_for_learning
from srl.pools import make_pool


def first_timestep(experiment: Experiment, num_envs: int) -> tuple[Specs, Timestep]:
    """Gives the specs and the first timestep of `num_envs` environments of the experiment."""
    with closing(make_pool(experiment.env, num_envs)) as pool:
        return pool.specs, jax.tree.map(np.copy, pool.reset(experiment.seed))


def act_alone(experiment: Experiment, num_envs: int) -> Callable[[], Any]:
    """A compiled `act` for all slots of so many environments; a call waits for its result."""
    specs, timestep = first_timestep(experiment, num_envs)
    policy_set = PolicySet.of_experiment(experiment, specs)
    states = policy_set.init(jax.random.key(experiment.seed))
    act = jax.jit(policy_set.act)
    operands = jax.device_put(_to_act(policy_set, states, timestep))
    return lambda: jax.block_until_ready(act(*operands))


def loop_alone(experiment: Experiment) -> tuple[Callable[[], Any], int]:
    """The training loop as one compiled program without its environments, and its env steps.

    A call waits for its result, and learns on from where the last one ended. Environments repeat
    their first timestep.
    """
    timestep, policy_set, states, unroll = started(experiment)
    memory = policy_set.initial_memory(experiment.num_envs)
    acting = Interaction((), timestep, memory, jnp.uint32(0))

    def loop(states: Any, replays: Any, acting: Interaction) -> Any:
        key, version = jax.random.key(experiment.seed), jnp.zeros(2, jnp.int32)
        parts = policy_set, _Still(acting.timestep), key, replays, acting, states, None, version
        run = TracedLoop(*parts)
        experiment.algorithm.loop(run)
        return run.states, run.replays, run.acting, run.metrics

    program = jax.jit(loop, donate_argnums=(0, 1))
    steps = sum(unrolled.length for unrolled in experiment.graph.unrolls)
    call = going_on(program, states, policy_set.empty_replays(unroll), acting)
    return call, steps * experiment.num_envs


def started(experiment: Experiment) -> tuple[Timestep, PolicySet, Any, Unroll]:
    """Gives the inputs of the programs, with as many XLA threads as in a run.

    These are the first timestep, the policies, their states, and an unroll that repeats the first
    step.
    """
    specs, timestep = first_timestep(experiment, experiment.num_envs)
    policy_set = PolicySet.of_experiment(experiment, specs)
    choose_for_learning(experiment, policy_set, experiment.num_envs)
    states = policy_set.init(jax.random.key(experiment.seed))
    unroll = jax.jit(partial(_repeated, policy_set, experiment))(states, timestep)
    return timestep, policy_set, states, unroll


def going_on(
    program: Callable[..., Any], states: Any, replays: Any, given: Any
) -> Callable[[], Any]:
    """Calls of a program (states, replays, given) -> (states, replays, ...), one after the other.

    States and replays are donated.
    """

    def call() -> None:
        nonlocal states, replays
        states, replays, *others = program(states, replays, given)
        jax.block_until_ready((states, others))

    return call


def _repeated(
    policy_set: PolicySet, experiment: Experiment, states: Any, timestep: Timestep
) -> Unroll:
    decision = policy_set.act(*_to_act(policy_set, states, timestep))
    length = experiment.graph.unrolls[0].length
    unroll = repeated_unroll(policy_set, timestep, decision, length)
    return unroll._replace(memory=policy_set.own(unroll.memory))


class _Still:
    """Environments that stay as they are, for all that a compiler knows of them."""

    def __init__(self, timestep: Timestep) -> None:
        self._timestep = timestep

    def step(self, state: Any, action: Any, /) -> tuple[Any, Timestep]:
        timestep, _ = jax.lax.optimization_barrier((self._timestep, action))
        return state, timestep


def _to_act(policy_set: PolicySet, states: Any, timestep: Timestep) -> tuple[Any, ...]:
    """The operands of `policy_set.act`."""
    slots = jnp.arange(len(timestep.reward), dtype=jnp.int32)
    return (
        policy_set.acting(policy_set.policies(states)),
        timestep.observation,
        timestep.terminated | timestep.truncated,
        policy_set.initial_memory(len(timestep.env_id)),
        jax.random.key(0),
        np.uint32(0),
        slots,
    )
