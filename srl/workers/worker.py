"""A worker process as its role sees it: what it is, whom it works with, when to stop."""

from __future__ import annotations

import logging
import os
import select
import threading
import time
from collections import deque
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from srl.dataflow import plans
from srl.dataflow.plan import Plan
from srl.errors import RunError, SrlError
from srl.experiment import Experiment
from srl.pools.specs_json import specs_from_json, specs_to_json
from srl.streams.channel import Disconnected, connect
from srl.streams.message import Identity, Message
from srl.types import Specs
from srl.workers.ledger import Ledger
from srl.workers.orders import BEAT_SECONDS, LIMIT_BYTES, Kind, Orders, pack, unpack

logger = logging.getLogger(__name__)

_CONNECT_SECONDS, _CLOSE_SECONDS = 20.0, 5.0


class Start(NamedTuple):
    """What a worker needs of the others."""

    peers: dict[str, list[dict[str, str]]]
    """The addresses that each replica has registered, by fragment, in the replicas' order; empty
    for one that is dead at present."""
    specs: Specs | None
    """Of the environments; None where no worker steps any."""


class Drained(SrlError):
    """The worker was told to end before it had begun."""


class Control:
    """A worker's end of its talk with the controller, in a thread of its own.

    It beats as long as the process lives, whatever the main loop does, and tells how long ago that
    showed progress. Without a controller nobody would watch the worker or need it: it ends.
    """

    def __init__(self, orders: Orders) -> None:
        """Connects to the controller and begins to beat."""
        self.stopping = threading.Event()
        """Set when the worker is to end."""
        self.identity = Identity(orders.run, orders.number, orders.incarnation)
        self._connection = connect(
            orders.controller, self.identity, limit_bytes=LIMIT_BYTES, timeout=_CONNECT_SECONDS
        )
        self._outgoing: deque[Message] = deque()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._changed = threading.Condition()
        self._start: Start | None = None
        self._unseen = False
        self._alive = time.monotonic()
        self._counters: dict[str, float] = {}
        self._state = "starting"
        self._closing = False
        self._thread = threading.Thread(target=self._talk, name="control", daemon=True)
        self._thread.start()

    def send(self, kind: Kind, values: dict[str, Any]) -> None:
        """Tells the controller something."""
        self._outgoing.append(pack(kind, values))
        os.eventfd_write(self._wake, 1)

    def alive(self, counters: dict[str, float]) -> None:
        """Marks the main loop as alive."""
        self._alive, self._counters, self._state = time.monotonic(), counters, "running"

    def wait_for_start(self) -> Start:
        """Waits until the worker is to begin.

        Raises:
            Drained: If it is told to end instead.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._start or self.stopping.is_set())
            if self._start is None:
                raise Drained
            self._unseen = False
            return self._start

    def newest_start(self) -> Start | None:
        """What was told since this was last asked; None for nothing."""
        with self._changed:
            start, self._unseen = self._start if self._unseen else None, False
            return start

    def close(self) -> None:
        """Sends what is still to be said, and ends the talk."""
        self._closing = True
        os.eventfd_write(self._wake, 1)
        self._thread.join(_CLOSE_SECONDS)
        self._connection.close()

    def _talk(self) -> None:
        poll = select.poll()
        poll.register(self._connection.fileno(), select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        beat = time.monotonic()
        try:
            while not self._closing or self._outgoing:
                now = time.monotonic()
                if now >= beat:
                    beat = now + BEAT_SECONDS
                    self._beat(now)
                while self._outgoing:
                    self._connection.send(self._outgoing.popleft())
                poll.poll(1000 * (beat - now))
                with suppress(BlockingIOError):
                    os.eventfd_read(self._wake)
                while (message := self._connection.receive(0)) is not None:
                    self._take(message)
        except Disconnected:
            if not self._closing:
                logger.error("the controller is gone, so this worker ends")
                os._exit(1)

    def _beat(self, now: float) -> None:
        state = "draining" if self.stopping.is_set() else self._state
        values = {"state": state, "idle": now - self._alive, "counters": self._counters}
        self._outgoing.append(pack(Kind.BEAT, values))

    def _take(self, message: Message) -> None:
        with self._changed:
            if message.kind == Kind.DRAIN:
                self.stopping.set()
            elif message.kind in (Kind.START, Kind.PEERS):
                values = unpack(message)
                specs = values["specs"] and specs_from_json(values["specs"])
                self._start, self._unseen = Start(values["peers"], specs), True
            self._changed.notify_all()


class Context:
    """Given to a role's `run(context)`: what the worker is, and its talk with the controller.

    A role makes what others connect to, calls `register`, and works until it is done or `stopping`
    is set, calling `progress` from its main loop, also while that waits.
    """

    def __init__(self, orders: Orders, control: Control, experiment: Experiment) -> None:
        self.experiment = experiment
        self.plan: Plan = plan_of(experiment)
        self.folder = Path(orders.folder)
        self.fragment, self.replica = orders.fragment, orders.replica
        self.number, self.incarnation = orders.number, orders.incarnation
        self.identity = control.identity
        """To listen and to connect with."""
        self.resume = orders.resume
        """Whether to go on from the newest checkpoint, if there is one."""
        self.stopping = control.stopping
        """A `threading.Event`, set when the worker is to finish and return."""
        self._orders, self._control = orders, control

    @cached_property
    def ledger(self) -> Ledger:
        """The account of unrolls; of workers whose fragment has `update`."""
        if self._orders.ledger < 0:
            raise RunError(f"{self._orders.name} keeps no account of unrolls: it has no update")
        return Ledger(self._orders.ledger)

    def register(self, addresses: dict[str, str], specs: Specs | None = None) -> Start:
        """Tells the controller where this worker is reached, and waits until it is to begin.

        Args:
            addresses: By a name that its peers know.
            specs: Of its environments, if it steps any; all such workers give the same.

        Raises:
            Drained: If the worker is told to end instead; leave that to the caller.
        """
        told = None if specs is None else specs_to_json(specs)
        self._control.send(Kind.HELLO, {"addresses": addresses, "specs": told})
        return self._control.wait_for_start()

    def progress(self, **counters: float) -> None:
        """Marks the main loop as alive; cheap.

        A worker whose loop shows none for `heartbeat_seconds` is taken for hung.

        Args:
            **counters: Totals of this worker, such as steps. Where one has grown, the worker has
                done something: its earlier deaths are forgiven.
        """
        self._control.alive(counters)

    def peers_changed(self) -> Start | None:
        """The peers as they are now, if one has changed since this was last asked."""
        return self._control.newest_start()

    def say(self, text: str) -> None:
        """Shows a line in the terminal."""
        self._control.send(Kind.SAY, {"text": text})

    def report(self, metrics: dict[str, Any]) -> None:
        """Gives metrics to the display: plain numbers and strings."""
        self._control.send(Kind.REPORT, metrics)


def plan_of(experiment: Experiment) -> Plan:
    """The plan that an experiment runs by: its own, the named one, or the usual one."""
    if isinstance(experiment.plan, Plan):
        return experiment.plan
    return plans.named(experiment.plan) if experiment.plan else plans.usual(experiment.env)
