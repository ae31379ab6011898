"""The policies of a run's environments, and the shapes of their decisions."""

from __future__ import annotations

from typing import Any

from srl.config.experiment import Experiment
from srl.core.lazy import jax, jnp
from srl.core.types import Array, Decision, Specs, Timestep, Tree, Unroll
from srl.loop.policy_set import PolicySet
from srl.pools.timestep_arrays import empty_timestep
from srl.streams.batch import Batch, batch_spec

_ACT = 1  # salt that the run's random key is folded with for acting


def run_key(experiment: Experiment) -> Any:
    """The random key that a run's sampling folds all others from."""
    return jax.random.fold_in(jax.random.key(experiment.seed), _ACT)


def bind_policy_set(experiment: Experiment, specs: Specs) -> PolicySet:
    """The experiment's policies, for environments of these specs.

    Raises:
        UserError: If self-play is asked for and does not fit the environments.
    """
    policy_set = PolicySet.of_experiment(experiment, specs, experiment.expected_updates)
    return policy_set.with_opponents(experiment, experiment.num_groups)


def batch_specs(experiment: Experiment, policy_set: PolicySet, num_envs: int) -> tuple[Batch, ...]:
    """Gives the batches' specs of a pass, for one group of `num_envs` environments."""
    decision = decision_spec(policy_set, num_envs)
    return tuple(
        batch_spec(policy_set.specs, num_envs, decision, length, policy_set.chunk_of(length))
        for length, *_ in experiment.graph.unrolls
    )


def decision_spec(policy_set: PolicySet, num_envs: int) -> Decision:
    """Shapes and dtypes of a group's decision."""

    def decide(timestep: Timestep) -> Decision:
        return first_decision(policy_set, policy_set.init(jax.random.key(0)), timestep)

    return jax.eval_shape(decide, empty_timestep(policy_set.specs, num_envs))


def first_decision(policy_set: PolicySet, states: Any, timestep: Timestep) -> Decision:
    """Decides by the policies of learners' states; to be traced, for its shapes."""
    ended, memory = timestep.terminated, policy_set.initial_memory(len(timestep.env_id))
    policies = policy_set.acting(policy_set.policies(states))
    drawing = jax.random.key(0), jnp.uint32(0), jnp.arange(len(ended), dtype=jnp.int32)
    return policy_set.act(policies, timestep.observation, ended, memory, *drawing)


def unroll_of(
    timesteps: Timestep, decision: Decision | Batch, memory: Tree, version: Array, slot: Array
) -> Unroll:
    """The unroll of timesteps [T + 1, ...] and of what was decided in them [T, ...]."""
    return Unroll(
        observation=timesteps.observation,
        reward=timesteps.reward,
        terminated=timesteps.terminated,
        truncated=timesteps.truncated,
        action=decision.action,
        log_prob=decision.log_prob,
        memory=memory,
        version=version,
        slot=slot,
        advice=decision.advice,
    )
