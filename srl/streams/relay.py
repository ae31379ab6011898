"""Parameters come to a host once, and go on from there: to its workers, and to a few other hosts.

So what the publisher sends does not grow with the number of hosts: the hosts' relays form a tree,
of which it feeds the first few.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing

from srl.errors import SrlError
from srl.streams.channel import Connection, Disconnected, Listener
from srl.streams.parameters import NONE_YET
from srl.streams.publishing import Publisher, Subscriber

logger = logging.getLogger(__name__)

FAN_OUT = 4
"""Hosts that the publisher, and each relay, sends parameters to."""
_WAIT_SECONDS = 0.5
_PATIENCE_SECONDS = 5.0  # with a relay that does not answer
_RETURN_SECONDS = 30.0  # to a relay that did not
_RETRY_SECONDS = 0.2


def parents(hosts: Sequence[str], fan_out: int = FAN_OUT) -> list[int | None]:
    """The tree of relays: whom each gets the parameters from.

    Args:
        hosts: The host of each relay. Where a host has several, one feeds the others.
        fan_out: Other hosts that one feeds at most.

    Returns:
        For each relay the index of another; None for those that the publisher feeds.
    """
    first: dict[str, int] = {}
    order: list[int] = []  # of the first of each host
    found: list[int | None] = []
    for index, host in enumerate(hosts):
        if host in first:
            found.append(first[host])
            continue
        place = len(order)
        found.append(order[(place - fan_out) // fan_out] if place >= fan_out else None)
        first[host] = index
        order.append(index)
    return found


class _Closed(SrlError):
    """There is no more to be done."""


class Relay:
    """Hands the newest parameters on to whoever connects to it, from a thread of its own."""

    def __init__(self, listener: Listener, connect: Callable[[str], Connection]) -> None:
        """Begins as soon as it is told where the parameters come from.

        Args:
            listener: Where this host's workers and other hosts' relays connect; it is closed here.
            connect: Gives a connection to an address; raises Disconnected if nobody is there.
        """
        self.address = listener.address
        self._listener, self._connect = listener, connect
        self._source = self._parent = self._shunned = ""
        self._return_at = 0.0  # to the parent that is shunned
        self._target, self._begun = "", 0.0  # what it connects to, and since when
        self._spent, self._spending = 0.0, threading.Lock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="relay", daemon=True)
        self._thread.start()

    def follow(self, source: str | None = None, parent: str | None = None) -> None:
        """Sets where the parameters come from; any thread may.

        Args:
            source: The publisher's address; empty while there is none.
            parent: That of the relay which hands them on to this one; empty for the publisher
                itself. That is also asked while the relay does not answer.
        """
        self._source = self._source if source is None else source
        self._parent = self._parent if parent is None else parent

    def close(self) -> None:
        """Ends it."""
        self._closed.set()
        self._thread.join()

    def _run(self) -> None:
        with ExitStack() as stack:
            stack.callback(self._listener.close)
            try:
                subscriber = stack.enter_context(closing(Subscriber(self._reach, self._check)))
                publisher = Publisher(self._listener, subscriber.layout, self._note_spent)
                self._hand_on(subscriber, stack.enter_context(closing(publisher)))
            except _Closed:
                pass
            except SrlError as error:
                logger.error("parameters are not handed on any more: %s", error)

    def _hand_on(self, subscriber: Subscriber, publisher: Publisher) -> None:
        version = NONE_YET
        while not self._closed.is_set():
            if subscriber.address != self._wanted():
                subscriber.reopen()
            with self._spending:
                spent, self._spent = self._spent, 0.0
            subscriber.spend(spent)
            found = subscriber.newest(version, _WAIT_SECONDS)
            if found is not None:
                version, tree = found
                publisher.publish(version, tree)

    def _note_spent(self, seconds: float) -> None:
        with self._spending:
            self._spent += seconds

    def _wanted(self) -> str:
        """Whom to get the parameters from now."""
        near = self._source.partition(" ")[0] == self.address.partition(" ")[0]
        shunned = self._parent == self._shunned and time.monotonic() < self._return_at
        return self._source if near or shunned or not self._parent else self._parent

    def _reach(self) -> Connection:
        while not self._closed.is_set():
            self._target, self._begun = self._wanted(), time.monotonic()
            if self._target:
                try:
                    connection = self._connect(self._target)
                    logger.info("parameters come from %s", self._target)
                    return connection
                except Disconnected:
                    self._shun()
            self._closed.wait(_RETRY_SECONDS)
        raise _Closed

    def _check(self) -> None:
        """Ends the wait for one that does not answer, or is not to be asked any more."""
        if self._closed.is_set():
            raise _Closed
        if time.monotonic() > self._begun + _PATIENCE_SECONDS:
            self._shun()
        if self._target != self._wanted():
            raise Disconnected("the parameters come from elsewhere now")

    def _shun(self) -> None:
        """Goes by the parent for a while, if it is that which does not answer."""
        if self._target == self._parent:
            self._shunned, self._return_at = self._parent, time.monotonic() + _RETURN_SECONDS
