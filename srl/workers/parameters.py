"""The parameter stream: the newest policies, from who updates them to who acts with them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import IntEnum
from typing import Any

import numpy as np

from srl.errors import RunError
from srl.lazy import jax
from srl.streams.channel import Connection, Disconnected, Listener, Peer, opened
from srl.streams.layout import Layout
from srl.streams.message import Message, as_microseconds, as_seconds, text_of
from srl.streams.parameters import (
    PARAMETERS,
    ParameterReader,
    ParameterServer,
    ParameterWriter,
    receive_parameters,
    request_parameters,
)
from srl.types import Policy
from srl.workers.teams import Teams

Policies = Mapping[str, Policy]
Version = tuple[int, int]
_LOOK_SECONDS = 0.01  # between two looks for a version that is not there yet


class Kind(IntEnum):
    """What is said on a parameter stream, beside PARAMETERS."""

    OPEN = 50
    FORM = 51
    """Body: the layout of the parameters. Descriptor: their memory, within a host."""
    SPENT = 52
    """Counts: microseconds of acting, of a worker that does nothing else."""


_SPENT_EVERY = 0.02  # seconds


class Published:
    """The newest policies, for threads of the process that updates them and for other processes."""

    def __init__(
        self,
        policies: Policies,
        listener: Listener | None,
        *,
        on_seconds: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        """Serves the listener's peers, in a thread of its own.

        Args:
            policies: Examples, of the shapes of all that will be published.
            listener: Where other processes connect; None where there are none.
            on_seconds: Told the seconds of acting that peers tell of.
        """
        self._on_seconds = on_seconds
        self._newest: tuple[np.ndarray, Policies] = (np.full(2, -1, np.int32), policies)
        self._listener, self._closed = listener, False
        self._thread: threading.Thread | None = None
        if listener is not None:
            layout = Layout.of(_flat(policies))
            self._form = Message(Kind.FORM, body=layout.to_json())
            self._server = ParameterServer(listener, layout)
            self._sent = self._newest
            self._remote: set[Peer] = set()  # those that it is sent to
            self._writer = ParameterWriter(layout) if listener.shares_memory else None
            self._thread = threading.Thread(target=self._serve, name="parameters", daemon=True)
            self._thread.start()

    def publish(self, version: np.ndarray, policies: Policies) -> None:
        """Makes these the newest."""
        if self._listener is not None and self._writer is not None:
            self._writer.publish(_pair(version), _flat(policies))
        self._newest = (version, policies)
        if self._listener is not None and self._remote:
            self._listener.wake()  # its thread sends them

    def newest(self, oldest: Version) -> tuple[np.ndarray, Policies]:
        """The newest version and its policies; who asks knows that `oldest` is there."""
        return self._newest

    def _serve(self) -> None:
        assert self._listener is not None
        while not self._closed:
            received = self._listener.receive(0.5)
            newest = self._newest
            if self._remote and newest is not self._sent:
                self._sent = newest
                self._server.publish(_pair(newest[0]), _flat(newest[1]))
            if received is None:
                continue
            peer, message = received
            if message.kind == Kind.OPEN:
                self._open(peer)
            elif message.kind == PARAMETERS:
                self._server.request(peer, message)
            elif message.kind == Kind.SPENT:
                self._on_seconds(sum(as_seconds(message.counts)))
            else:
                self._remote.discard(peer)
                self._server.forget(peer)

    def _open(self, peer: Peer) -> None:
        assert self._listener is not None
        if peer.shares_memory and self._writer is not None:
            self._listener.send(peer, self._form._replace(fds=(self._writer.fd,)))
        else:
            self._remote.add(peer)
            self._listener.send(peer, self._form)

    def close(self) -> None:
        """Ends the stream."""
        self._closed = True
        if self._listener is not None and self._thread is not None:
            self._listener.wake()
            self._thread.join()
            self._listener.close()
            if self._writer is not None:
                self._writer.close()


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
        """
        self._connect, self._alive = connect, alive
        examples = jax.eval_shape(lambda key: teams.policies(teams.init(key)), jax.random.key(0))
        self._leaves, self._structure = jax.tree.flatten(examples)
        self._lock = threading.Lock()
        self._version: Version = (-1, -1)
        self._policies: Any = None
        self._spent, self._spent_told = 0.0, time.monotonic()
        self._open()

    def _open(self) -> None:
        self._connection, _ = opened(self._connect, self._begin)

    def _begin(self, connection: Connection) -> None:
        connection.send(Message(Kind.OPEN))
        form = connection.expect(Kind.FORM, self._alive)
        self._layout = Layout.from_json(text_of(form), 1 << 32)
        if self._layout != Layout.of(tuple(self._leaves)):
            raise RunError("the policies that are published are not those of this experiment")
        self._reader = ParameterReader(self._layout, form.fds[0]) if form.fds else None
        self._asked = False

    def newest(self, oldest: Version) -> tuple[np.ndarray, Policies]:
        """The newest version and its policies, waiting for `oldest` or a later one."""
        with self._lock:
            self._look(0.0)
            while self._version < oldest or self._policies is None:
                self._alive()
                self._look(_LOOK_SECONDS)
            return np.array(self._version, np.int32), self._policies

    def spend(self, seconds: float) -> None:
        """Lets who publishes know of so much acting, now or soon."""
        with self._lock:
            self._spent += seconds
            now = time.monotonic()
            if now < self._spent_told + _SPENT_EVERY:
                return
            with suppress(Disconnected):
                self._connection.send(Message(Kind.SPENT, counts=as_microseconds([self._spent])))
            self._spent, self._spent_told = 0.0, now

    def _look(self, wait: float) -> None:
        """Takes newer parameters in, if there are any; may wait so many seconds for them."""
        try:
            if self._reader is None:
                self._fetch(wait)
            elif self._connection.receive(wait) is None and self._reader.version > self._version:
                self._take(*self._reader.read())
        except Disconnected:
            self._connection.close()
            self._open()

    def _fetch(self, timeout: float) -> None:
        """Takes in what was sent; a request waits at the other end for what is newer."""
        if not self._asked:
            request_parameters(self._connection, self._layout, self._version)
            self._asked = True
        found = receive_parameters(self._connection, self._layout, timeout)
        if found is not None:
            self._take(*found)
            self._asked = False

    def _take(self, version: Version, leaves: Any) -> None:
        self._version = version
        self._policies = jax.device_put(jax.tree.unflatten(self._structure, list(leaves)))

    def close(self) -> None:
        """Ends the stream."""
        self._connection.close()


def _pair(version: np.ndarray) -> Version:
    epoch, n = version.tolist()
    return epoch, n


def _flat(policies: Policies) -> tuple[Any, ...]:
    return tuple(np.asarray(leaf) for leaf in jax.tree.leaves(policies))
