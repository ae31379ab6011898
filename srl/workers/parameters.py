"""The newest policies, from who updates them to who acts with them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from srl.lazy import jax
from srl.streams.channel import Connection, Listener
from srl.streams.layout import Layout
from srl.streams.parameters import NONE_YET, Version
from srl.streams.publishing import Publisher, Subscriber
from srl.workers.teams import Teams

Policies = Mapping[str, Any]
"""What acts, as `Teams.acting` gives it."""
_WAIT_SECONDS = 0.5  # between two signs of life


class Published:
    """The newest policies, for threads of the process that updates them and for other processes."""

    def __init__(
        self,
        policies: Policies,
        listener: Listener | None,
        *,
        on_seconds: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        """Serves the listener's peers.

        Args:
            policies: Examples, of the shapes of all that will be published.
            listener: Where other processes connect; None where there are none.
            on_seconds: Told the seconds of acting that peers tell of.
        """
        self._newest: tuple[np.ndarray, Policies] = (np.array(NONE_YET, np.int32), policies)
        self._publisher: Publisher | None = None
        if listener is not None:
            self._publisher = Publisher(listener, Layout.of(_flat(policies)), on_seconds)

    def publish(self, version: np.ndarray, policies: Policies) -> None:
        """Makes these the newest."""
        self._newest = (version, policies)
        if self._publisher is not None:
            epoch, n = version.tolist()
            self._publisher.publish((epoch, n), _flat(policies))

    def newest(self, oldest: Version) -> tuple[np.ndarray, Policies]:
        """The newest version and its policies; who asks knows that `oldest` is there."""
        return self._newest

    def close(self) -> None:
        """Ends the stream."""
        if self._publisher is not None:
            self._publisher.close()


class Received:
    """The newest policies as they are published elsewhere; for all threads of this process."""

    def __init__(
        self,
        connect: Callable[[], Connection],
        teams: Teams,
        alive: Callable[[], None] = lambda: None,
    ) -> None:
        """Connects.

        Args:
            connect: Gives a connection to who publishes; called again when that has gone.
            teams: The policies' functions, which tell what they are made of.
            alive: Called now and then while there is nothing to do but wait; may raise Stopped.

        Raises:
            RunError: If other policies are published than this experiment's.
        """
        self._alive = alive
        examples = jax.eval_shape(
            lambda key: teams.acting(teams.policies(teams.init(key))), jax.random.key(0)
        )
        leaves, self._structure = jax.tree.flatten(examples)
        self._held: tuple[Version, Any] = (NONE_YET, None)
        self._looking, self._spending = threading.Lock(), threading.Lock()
        self._spent = 0.0
        self._subscriber = Subscriber(connect, alive, Layout.of(tuple(leaves)))

    def newest(self, oldest: Version) -> tuple[np.ndarray, Policies]:
        """The newest version and its policies, waiting for `oldest` or a later one."""
        needed = max(oldest, (0, 0))
        # Who need not wait does not wait for a thread that has to.
        if self._looking.acquire(blocking=self._held[0] < needed):
            try:
                self._look(0.0)
                while self._held[0] < needed:
                    self._alive()
                    self._look(_WAIT_SECONDS)
            finally:
                self._looking.release()
        version, policies = self._held
        return np.array(version, np.int32), policies

    def spend(self, seconds: float) -> None:
        """Lets who publishes know of so much acting, soon."""
        with self._spending:
            self._spent += seconds

    def _look(self, wait: float) -> None:
        """Takes newer parameters in, if there are any; may wait so many seconds for them."""
        with self._spending:
            spent, self._spent = self._spent, 0.0
        self._subscriber.spend(spent)
        found = self._subscriber.newest(self._held[0], wait)
        if found is not None:
            version, leaves = found
            policies = jax.device_put(jax.tree.unflatten(self._structure, list(leaves)))
            self._held = version, policies

    def close(self) -> None:
        """Ends the stream."""
        self._subscriber.close()


def _flat(policies: Policies) -> tuple[Any, ...]:
    return tuple(np.asarray(leaf) for leaf in jax.tree.leaves(policies))
