"""The node `act` in the worker that asks for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from srl.config.experiment import Experiment
from srl.core.lazy import jax, jnp
from srl.core.types import Decision, Policy, Timestep, Tree
from srl.loop.binding import run_key
from srl.loop.devices import acting_cpu, to_host
from srl.loop.policy_set import PolicySet

Newest = Callable[[tuple[int, int]], tuple[np.ndarray, Mapping[str, Policy]]]
"""Gives the newest version, int32 [2], and its policies, waiting for the version given or later."""


def compiled_act(policy_set: PolicySet) -> Callable[..., tuple[Decision, Any]]:
    """The function that `LocalActing` calls; all of a process may share it."""

    def act(
        policies: Any, observation: Tree, ends: Any, memory: Tree, *keys: Any
    ) -> tuple[Decision, Any]:
        key, clock, slots = keys
        terminated, truncated = ends
        decision = policy_set.act(
            policies, observation, terminated | truncated, memory, key, clock, slots
        )
        return decision, clock + 1

    return jax.jit(act)


class LocalActing:
    """Acts with the newest policies that there are."""

    def __init__(
        self,
        experiment: Experiment,
        policy_set: PolicySet,
        act: Callable[..., tuple[Decision, Any]],
        newest: Newest,
        envs: range,
        *,
        swaps: bool,
    ) -> None:
        """Acts for the environments with these numbers in the run, by their `compiled_act`.

        With `swaps` newer parameters are taken in the middle of an unroll, too.
        """
        agents = len(policy_set.specs.agents)
        self._policy_set, self._newest, self._swaps = policy_set, newest, swaps
        self._num_envs = len(envs)
        self._cpu = acting_cpu()
        self._to_host = to_host()
        with self._where():
            self.slots = jnp.arange(envs.start * agents, envs.stop * agents, dtype=jnp.int32)
            """The slots that are acted for, by their numbers in the run."""
            self.key = run_key(experiment)
            """The key of the run's sampling."""
            self._clock: Any = jnp.zeros((), jnp.uint32)
        self.version = np.zeros(2, np.int32)
        """The version that acts, int32 [2]."""
        self.policies: Mapping[str, Policy] = {}
        """The policies of that version."""
        self._given: Any = None  # the same, where they were learned
        self._clock_is = 0
        self._act = act

    def _where(self) -> AbstractContextManager[Any]:
        """Has what is made and computed be on the device that acts."""
        return nullcontext() if self._cpu is None else jax.default_device(self._cpu)

    def begin(self, oldest_version: tuple[int, int]) -> None:
        """Takes the newest policies, to the device that acts; see `Acting`."""
        self.version, policies = self._newest(oldest_version)
        if self._cpu is None:
            self.policies = policies
        elif policies is not self._given:
            self._given, self.policies = policies, jax.device_put(policies, self._cpu)

    def spent(self, seconds: float) -> dict[str, float]:
        """Divides the seconds of the last decision among activities; see `Acting`."""
        return {"act": seconds}

    def decide_for(
        self, timestep: Timestep, memory: Tree, clock: np.ndarray, slots: np.ndarray
    ) -> tuple[Decision, np.ndarray]:
        """Decides for any slots, with the newest policies.

        Args:
            timestep: [b, ...]
            memory: Before it, by policy.
            clock: uint32 [b], steps of each slot before this one.
            slots: int32 [b], their numbers in the run.

        Returns:
            The decision, in NumPy's arrays, and the version that acted: int32 [2].
        """
        self.begin((0, 0))
        with self._where():
            given = timestep.observation, (timestep.terminated, timestep.truncated), memory
            decision, _ = self._act(self.policies, *given, self.key, clock, slots)
        return self._to_host(decision), self.version

    def decide(self, timestep: Timestep, memory: Tree, clock: int) -> tuple[Decision, np.ndarray]:
        """Decides for the slots; see `Acting`."""
        if self._swaps:
            self.begin((0, 0))
        with self._where():
            if clock != self._clock_is:
                self._clock, self._clock_is = jnp.asarray(clock, jnp.uint32), clock
            given = timestep.observation, (timestep.terminated, timestep.truncated), memory
            keys = self.key, self._clock, self.slots
            decision, self._clock = self._act(self.policies, *given, *keys)
        self._clock_is += 1
        memory = decision.memory
        decision = self._to_host(decision._replace(memory=()))
        return decision._replace(memory=memory), self.version

    def initial_memory(self) -> Tree:
        """Gives the memory of all slots at the start of an episode."""
        with self._where():
            return self._policy_set.initial_memory(self._num_envs)
