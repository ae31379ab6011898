"""A relay receives parameters once for its host, and serves its workers and a few other hosts.

So what the publisher sends does not grow with the number of hosts: the relays form a tree, of which
it serves the first few.
"""

from __future__ import annotations

import logging
import random
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing

from srl.core.errors import RunError, SrlError
from srl.streams.parameter_memory import NONE_YET, Version
from srl.streams.parameters import Publisher, Subscriber, published_version
from srl.streams.transport import Connection, Disconnected, Listener
from srl.streams.transport.message import Identity

logger = logging.getLogger(__name__)

FAN_OUT = 4
"""The number of hosts that the publisher, and each relay, sends parameters to."""
_WAIT_SECONDS = 0.5
_PATIENCE_SECONDS = 5.0
_QUIET_SECONDS = 10.0
_RETURN_SECONDS = 30.0
_RETRY_SECONDS = 0.2


def parents(hosts: Sequence[str], fan_out: int = FAN_OUT) -> list[int | None]:
    """The tree of relays: where each gets the parameters from.

    Args:
        hosts: The host of each relay. Where a host has several, one serves the others.
        fan_out: How many other hosts one serves at most.

    Returns:
        For each relay the index of another; None for those that the publisher serves.
    """
    first: dict[str, int] = {}
    order: list[int] = []  # of the first of each host
    found: list[int | None] = []
    for index, host in enumerate(hosts):
        if host in first:
            found.append(first[host])
            continue
        rank = len(order)
        found.append(order[(rank - fan_out) // fan_out] if rank >= fan_out else None)
        first[host] = index
        order.append(index)
    return found


class _Closed(SrlError):
    """The relay was closed."""


class Relay:
    """Serves the newest parameters that it receives, from a thread of its own."""

    def __init__(
        self,
        listener: Listener,
        connect: Callable[[str, Identity], Connection],
        *,
        patience: float = _PATIENCE_SECONDS,
        quiet: float = _QUIET_SECONDS,
    ) -> None:
        """Begins as soon as `follow` gives it a source.

        Args:
            listener: Where this host's workers and other hosts' relays connect; it is closed here.
            connect: Gives a connection to an address, as a sender that no other connection of the
                relay has; raises Disconnected if nothing listens there.
            patience: Seconds for another relay to answer, before the publisher takes its place for
                a while.
            quiet: Seconds, up to twice as many, without newer parameters after which the publisher
                is asked whether it has some. If it has, and they have not come after as long
                again, it takes the parent's place for a while.
        """
        self.address = listener.address
        self._patience, self._quiet = patience, quiet
        self._failure: Exception | None = None
        self._listener, self._connect_as = listener, connect
        self._source = self._parent = self._avoided = ""
        self._return_at = 0.0  # to the parent that is avoided
        self._target, self._begun = "", 0.0  # what it connects to, and since when
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="relay", daemon=True)
        self._thread.start()

    def follow(self, source: str | None = None, parent: str | None = None) -> None:
        """Sets where the parameters come from; any thread may.

        Args:
            source: The publisher's address; before it is known the relay waits.
            parent: The address of the relay that serves this one; empty for the publisher itself,
                which also takes the place of a parent that does not answer or has nothing new.
        """
        if source and source != self._source:
            self._source, self._avoided = source, ""
        self._parent = self._parent if parent is None else parent

    def check(self) -> None:
        """Raises RunError if the relay has failed."""
        if self._failure is not None:
            raise RunError(f"parameters are not relayed: {self._failure}") from self._failure

    def close(self) -> None:
        """Ends it."""
        self._closed.set()
        self._thread.join()

    def _run(self) -> None:
        with ExitStack() as stack:
            stack.callback(self._listener.close)
            try:
                subscriber = stack.enter_context(closing(Subscriber(self._reach, self._check)))
                publisher = Publisher(self._listener, subscriber.layout, answers_version=False)
                self._serve(subscriber, stack.enter_context(closing(publisher)))
            except _Closed:
                pass
            except Exception as failure:  # `check` raises it
                self._failure = failure

    def _serve(self, subscriber: Subscriber, publisher: Publisher) -> None:
        version, published, ask_at = NONE_YET, NONE_YET, self._later()
        while not self._closed.is_set():
            if time.monotonic() > ask_at:
                if published > version:  # for long: the parent may be cut off from the publisher
                    self._avoid_parent()
                published, ask_at = self._published(), self._later()
            if asking := len(publisher.questions):
                newest = self._ask_source()
                if newest != NONE_YET:
                    publisher.answer_version(newest, asking)
            if subscriber.address != self._wanted():
                subscriber.reopen()
            found = subscriber.newest(version, _WAIT_SECONDS)
            if found is not None:
                version, tree = found
                publisher.publish(version, tree)
                ask_at = self._later()

    def _later(self) -> float:
        """When to ask the publisher, if nothing new comes until then; not all relays at once."""
        return time.monotonic() + self._quiet * random.uniform(1, 2)

    def _published(self) -> Version:
        """The publisher's newest version, if a parent serves this relay; (-1, -1) if unknown."""
        return NONE_YET if self._wanted() in ("", self._source) else self._ask_source()

    def _connect(self, address: str) -> Connection:
        """Connects as another sender each time: a question would replace the subscription."""
        identity = self._listener.identity._replace(sender=secrets.randbits(32))
        return self._connect_as(address, identity)

    def _ask_source(self) -> Version:
        """The publisher's newest version; (-1, -1) if it does not answer now."""
        begun = time.monotonic()

        def check() -> None:
            if self._closed.is_set() or time.monotonic() > begun + self._patience:
                raise Disconnected("no answer")

        try:
            with self._connect(self._source) as connection:
                return published_version(connection, check)
        except Disconnected:
            return NONE_YET

    def _wanted(self) -> str:
        """The address to get the parameters from now; empty before the source is known."""
        if not self._source:
            return ""
        near = self._source.partition(" ")[0] == self.address.partition(" ")[0]
        avoided = self._parent == self._avoided and time.monotonic() < self._return_at
        return self._source if near or avoided or not self._parent else self._parent

    def _reach(self) -> Connection:
        while not self._closed.is_set():
            self._target, self._begun = self._wanted(), time.monotonic()
            if self._target:
                try:
                    connection = self._connect(self._target)
                    logger.info("parameters come from %s", self._target)
                    return connection
                except Disconnected:
                    self._avoid_parent()
            self._closed.wait(_RETRY_SECONDS)
        raise _Closed

    def _check(self) -> None:
        """Ends the wait for an end that does not answer, or is no longer the wanted one."""
        if self._closed.is_set():
            raise _Closed
        if time.monotonic() > self._begun + self._patience:
            self._avoid_parent()
        if self._target != self._wanted():
            raise Disconnected("the parameters come from elsewhere now")

    def _avoid_parent(self) -> None:
        """Uses the publisher in place of the parent for a while, if the parent is in use now."""
        if self._target == self._parent != self._source:
            self._avoided, self._return_at = self._parent, time.monotonic() + _RETURN_SECONDS
