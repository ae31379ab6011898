"""The node `act` where another call than that of `act` gives a teacher's advice."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from srl.algorithms.imitation import with_teachers
from srl.core.lazy import jax
from srl.core.types import Decision, Timestep, Tree
from srl.loop.acting.local_acting import LocalActing
from srl.loop.devices import to_host
from srl.loop.policy_set import PolicySet
from srl.streams.inference import RemoteActing


def compiled_teach(policy_set: PolicySet) -> Callable[[Tree], Tree]:
    """The function of observations that gives advice here; all of a process may share it."""
    teach, fetched = jax.jit(policy_set.teach), to_host()
    return lambda observation: fetched(teach(observation))


def advised(
    policy_set: PolicySet, own: dict[str, list[np.ndarray]], advice: list[np.ndarray]
) -> dict[str, list[np.ndarray]]:
    """Gives the fields of a decision that advice from another worker changes, as their arrays.

    Args:
        policy_set: The run's policies.
        own: The fields of the decision.
        advice: The arrays of the advice, of which the action's come first.
    """
    actions = own["action"]
    if policy_set.mixes:
        given = own["log_prob"][0], advice[: len(actions)]
        actions = with_teachers(actions, *given, np.where)
    return {"action": actions, "advice": advice}


class TaughtHere:
    """Acting elsewhere, with the advice of a teacher in this worker."""

    def __init__(
        self, acting: RemoteActing, teach: Callable[[Tree], Tree], policy_set: PolicySet
    ) -> None:
        self._acting, self._teach, self._policy_set = acting, teach, policy_set
        self._taught = 0.0  # seconds of the last decision
        self.begin, self.initial_memory = acting.begin, acting.initial_memory

    def decide(self, timestep: Timestep, memory: Tree, clock: int) -> tuple[Decision, np.ndarray]:
        """Teaches first, as the other end may collect; see `Acting`."""
        before = time.perf_counter()
        advice = self._teach(timestep.observation)
        self._taught = time.perf_counter() - before
        decision, version = self._acting.decide(timestep, memory, clock, advice)
        return self._policy_set.with_advice(decision, advice), version

    def spent(self, seconds: float) -> dict[str, float]:
        """Divides the seconds of the last decision among activities; see `Acting`."""
        return {"teach": self._taught, **self._acting.spent(seconds - self._taught)}


class TaughtElsewhere:
    """Acting with the advice of a teacher at the other end of a stream."""

    def __init__(
        self, acting: LocalActing | RemoteActing, teaching: RemoteActing, policy_set: PolicySet
    ) -> None:
        self._acting, self._teaching, self._policy_set = acting, teaching, policy_set
        self._waited = 0.0  # seconds of the last decision
        self.initial_memory = acting.initial_memory

    def begin(self, oldest_version: tuple[int, int]) -> None:
        """Begins an unroll, in which no older version may act; a teacher has none."""
        self._acting.begin(oldest_version)
        self._teaching.begin((0, 0))

    def decide(self, timestep: Timestep, memory: Tree, clock: int) -> tuple[Decision, np.ndarray]:
        """Decides while the teacher computes; see `Acting`."""
        self._teaching.ask(timestep, (), clock)
        decision, version = self._acting.decide(timestep, memory, clock)
        before = time.perf_counter()
        advised, _ = self._teaching.answer()
        self._waited = time.perf_counter() - before
        return self._policy_set.with_advice(decision, advised.advice), version

    def spent(self, seconds: float) -> dict[str, float]:
        """Divides the seconds of the last decision among activities; see `Acting`."""
        own = self._acting.spent(seconds - self._waited)
        return {**own, "inference wait": own.get("inference wait", 0.0) + self._waited}
