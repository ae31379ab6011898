"""The newest policies, from the worker that updates them to the workers that act with them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from srl.core.lazy import jax
from srl.loop.devices import to_host
from srl.loop.policy_set import PolicySet
from srl.loop.wiring import Endpoints
from srl.streams.layout import Layout
from srl.streams.parameter_memory import NONE_YET, Version
from srl.streams.parameters import Publisher, Subscriber
from srl.streams.transport import Connection, Listener
from srl.streams.transport.message import Refused

Policies = Mapping[str, Any]
"""The policies that act, as `PolicySet.acting` gives them."""
_WAIT_SECONDS = 0.1  # between two signs of life, and looks whether the worker is to end
_DOUBT_SECONDS = 1.0
"""A version that has not come for so long is asked about: whether it was published at all."""


class NoParameters:
    """The source of a teacher, which no policy's parameters change."""

    def newest(self, oldest: Version) -> tuple[np.ndarray, Policies]:
        """Gives no policies."""
        return np.zeros(2, np.int32), {}

    def awaited(self, oldest: Version, since: float) -> None:
        """Waits for nothing."""

    def close(self) -> None:
        """Does nothing."""


class Published:
    """The newest policies, for threads of the process that updates them and for other processes."""

    def __init__(self, policies: Policies, listener: Listener | None) -> None:
        """Serves the listener's peers; the policies are examples of all that will be published."""
        self._newest: tuple[np.ndarray, Policies] = (np.array(NONE_YET, np.int32), policies)
        self._publisher: Publisher | None = None
        if listener is not None:
            self._publisher = Publisher(listener, Layout.of(_flat(policies)))

    def publish(self, version: np.ndarray, policies: Policies) -> None:
        """Makes these the newest."""
        self._newest = (version, policies)
        if self._publisher is not None:
            epoch, n = version.tolist()
            self._publisher.publish((epoch, n), _flat(policies))

    def newest(self, oldest: Version) -> tuple[np.ndarray, Policies]:
        """The newest version and its policies; the caller knows that `oldest` is there."""
        return self._newest

    def awaited(self, oldest: Version, since: float) -> None:
        """Checks that `oldest` is there; see `Received.awaited`."""
        epoch, n = self._newest[0].tolist()
        _demand_published(oldest, (epoch, n))

    def close(self) -> None:
        """Ends the stream."""
        if self._publisher is not None:
            self._publisher.close()


class Received:
    """The newest policies as they are published elsewhere; for all threads of this process."""

    def __init__(
        self,
        connect: Callable[[], Connection],
        policy_set: PolicySet,
        alive: Callable[[], None] = lambda: None,
        *,
        ahead: int = 0,
    ) -> None:
        """Connects.

        Args:
            connect: Gives a connection to the publisher; called again when that has gone.
            policy_set: The policies' functions, which give their shapes.
            alive: Called now and then while there is nothing to do but wait; may raise Stopped.
            ahead: Updates that a learner may be ahead of the one that publishes.

        Raises:
            RunError: If other policies are published than this experiment's.
        """
        self._alive, self._ahead = alive, ahead
        examples = jax.eval_shape(
            lambda key: policy_set.acting(policy_set.policies(policy_set.init(key))),
            jax.random.key(0),
        )
        leaves, self._structure = jax.tree.flatten(examples)
        self._held: tuple[Version, Any] = (NONE_YET, None)
        self._looking = threading.Lock()
        self._subscriber = Subscriber(connect, alive, Layout.of(tuple(leaves)))

    def newest(self, oldest: Version) -> tuple[np.ndarray, Policies]:
        """The newest version and its policies, waiting for `oldest` or a later one.

        Raises:
            Refused: If no version as new as that is published.
        """
        needed, since = max(oldest, (0, 0)), time.monotonic()
        # A thread that need not wait does not wait for one that has to.
        if self._looking.acquire(blocking=self._held[0] < needed):
            try:
                self._look(0.0)
                while self._held[0] < needed:
                    self._alive()
                    self._look(_WAIT_SECONDS)
                    self._doubt(needed, since)
            finally:
                self._looking.release()
        version, policies = self._held
        return np.array(version, np.int32), policies

    def awaited(self, oldest: Version, since: float) -> int | None:
        """Gives the descriptor to wait for until `newest` has `oldest`; None if it is there.

        Args:
            oldest: A version that was asked for.
            since: When it was, as by `time.monotonic`.

        Returns:
            A descriptor that is readable when it may have come; to be looked at again then, and
            ten times a second.

        Raises:
            Refused: If no version as new as that had been published when it was asked for.
        """
        needed = max(oldest, (0, 0))
        if self._held[0] >= needed:
            return None
        with self._looking:
            self._subscriber.ask(self._held[0])
            self._doubt(needed, since)
            self._look(0.0)  # last, as sending may hide from `fileno` what has come
            return None if self._held[0] >= needed else self._subscriber.fileno()

    def _doubt(self, needed: Version, since: float) -> None:
        """Asks about a version that has been needed for long; refuses it if there is none."""
        asked, (epoch, n) = self._subscriber.published
        if asked > since and (epoch, n) != NONE_YET:
            _demand_published(needed, (epoch, n + self._ahead))
        if max(asked, since) + _DOUBT_SECONDS < time.monotonic():
            self._subscriber.ask_published()

    def _look(self, wait: float) -> None:
        """Takes newer parameters in, if there are any; may wait so many seconds for them."""
        found = self._subscriber.newest(self._held[0], wait)
        if found is not None:
            version, leaves = found
            policies = jax.device_put(jax.tree.unflatten(self._structure, list(leaves)))
            self._held = version, policies

    def close(self) -> None:
        """Ends the stream."""
        self._subscriber.close()


Source = Published | Received | NoParameters
"""A source of the newest policies."""


def received_policies(endpoints: Endpoints, policy_set: PolicySet) -> Received | NoParameters:
    """The newest policies for a worker of a run; none where it does not act."""
    if not endpoints.has("act"):
        return NoParameters()
    # The first of several learners publishes, and another may have finished a pass before it.
    several = endpoints.plan.fragment("learn").replicas > 1
    ahead = endpoints.experiment.graph.learns if several else 0
    return Received(
        lambda: endpoints.connect("parameters"), policy_set, endpoints.go_on, ahead=ahead
    )


def _demand_published(version: Version, newest: Version) -> None:
    """Raises Refused for a version newer than the newest."""
    if version > newest:
        raise Refused(f"version {version} is wanted, but {newest} is the newest that is published")


def _flat(policies: Policies) -> tuple[Any, ...]:
    return to_host()(tuple(jax.tree.leaves(policies)))
