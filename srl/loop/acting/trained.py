"""Policies as a checkpoint has them, to act without learning."""

from __future__ import annotations

from collections.abc import Mapping

from srl.algorithms import Algorithm
from srl.config.fixed import Fixed
from srl.core.lazy import jax
from srl.core.types import Policy, Specs
from srl.loop.acting.fixed_acting import states_that_act
from srl.loop.policy_set import PolicySet
from srl.record.checkpoint import Checkpoints


def acting_policy_set(
    algorithm: Algorithm, policies: Mapping[str, str | Fixed], specs: Specs, num_envs: int
) -> PolicySet:
    """The policies of a run that has been trained, for environments of these specs."""
    # Nothing is learned here, so any number of updates will do; with one and the same, policies
    # of runs of different lengths are computed by the same program.
    return PolicySet.of(algorithm, policies, specs, updates=1, num_envs=num_envs)


def trained_policies(
    policy_set: PolicySet, checkpoints: Checkpoints, version: int | str | None = None
) -> tuple[dict[str, Policy], dict[str, int]]:
    """The policies of a checkpoint, the newest by default, and its `env_steps` and `updates`.

    Raises:
        UserError: If there is no such checkpoint, or it is of another network.
    """
    states = policy_set.init(jax.random.key(0))
    states, counts = states_that_act(states, policy_set.instances, checkpoints, version)
    return policy_set.policies(jax.device_put(states)), counts
