"""The messages between a worker and the controller, and the worker's end of their connection."""

from __future__ import annotations

import json
import logging
import os
import select
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from enum import IntEnum
from typing import Any, NamedTuple

from srl.core.errors import SrlError
from srl.core.types import Specs
from srl.loop.busy_time import BusyTime, SecondsByKind
from srl.loop.stage import Stage
from srl.record.specs_json import specs_from_json
from srl.streams.transport import Disconnected, connect
from srl.streams.transport.message import Identity, Message, Refused, text_of
from srl.system.cpu_progress import CpuProgress
from srl.workers.worker_spec import WorkerSpec

logger = logging.getLogger(__name__)

CONTROLLER = 0
"""The controller's number; workers count from 1."""
BEAT_SECONDS = 1.0
LIMIT_BYTES = 16_000_000
"""The most that one message between a worker and the controller may hold."""
_CONNECT_SECONDS, _CLOSE_SECONDS = 20.0, 5.0
_ASK_SECONDS = 5.0  # until an event is sent again


class ControlMessage(IntEnum):
    """Kinds of messages between a worker and the controller; the body of each is a JSON object."""

    HELLO = 16
    """Worker: `addresses`, at which others reach it, and `specs`, if it steps environments."""
    START = 17
    """Controller: `peers`, their `incarnations`, and `specs`; the worker begins."""
    PEERS = 18
    """Controller: as START, after an address has changed."""
    BEAT = 19
    """Worker: `state`, `stage`, `idle` (seconds since its main loop showed progress), `longest`
    (the most that this has been while the worker did its work; a compiler that computes shows
    progress), `grown`: what its counters have
    grown by since they were first given, `updates`: how many the run has made, where the worker
    makes them, and `seconds`: what its threads have spent on each activity since the last beat,
    which is no progress."""
    REPORT = 20
    """Worker: metrics, for the display."""
    SAY = 21
    """Worker: `text`, for the terminal."""
    DRAIN = 22
    """Controller, or supervisor: finish what cannot be left, and end; `hurry`, where it is given,
    is the seconds that the update in progress may take."""
    STOPPED = 23
    """Worker: it has finished and is about to exit."""
    FAILED = 24
    """Worker: it is about to exit because of an exception: `summary`, `text`, `by_user`,
    `by_peer` where all that happened is that another worker has gone, and `final` where to start
    again does not help."""
    SECONDS = 25
    """Controller, to the worker that writes reports, after its beat: what workers of each fragment
    have spent on each activity since the last one."""
    EVENT = 26
    """Worker that writes reports, where there are hooks: what has `happened`, the `settings`, and
    the `number` of such messages before it; again every few seconds until there is an answer."""
    ANSWER = 27
    """Controller, to all that learn: `number`, and what the hooks want: whether to `stop`, and
    which `settings` to change."""


def pack(kind: int, values: dict[str, Any]) -> Message:
    """A message that carries a JSON object."""
    return Message(kind, body=json.dumps(values).encode())


def unpack(message: Message) -> dict[str, Any]:
    """The object that a message carries.

    Raises:
        Refused: If it carries anything else.
    """
    try:
        values = json.loads(text_of(message))
    except (ValueError, RecursionError) as error:
        raise Refused(f"message {message.kind} is not JSON: {error}") from error
    if not isinstance(values, dict):
        raise Refused(f"message {message.kind} is {type(values).__name__}; expected an object")
    return values


class Start(NamedTuple):
    """The other workers' addresses, incarnations and specs, with which a worker starts."""

    peers: dict[str, list[dict[str, str]]]
    """The addresses that each replica has registered, by fragment, in the replicas' order; empty
    for one that is dead at present, and for fragments to which no worker connects."""
    incarnations: dict[str, list[int]]
    """The incarnations of each replica that count: earlier ones are refused. Empty for a worker
    to which no other connects."""
    specs: Specs | None
    """The environments' specs; None where no worker steps any."""


class Drained(SrlError):
    """The worker was asked to end before it had begun."""


class MainLoop:
    """A worker's main loop: its stage, its counters and its signs of life."""

    def __init__(self) -> None:
        self._alive, self._longest = time.monotonic(), 0.0
        self._stage, self._cpu = Stage.STARTING, CpuProgress()
        self._counters: dict[str, float] = {}
        self._first_counters: dict[str, float] = {}

    def alive(self, **counters: float) -> None:
        """Marks the loop as alive; counters stay as they were last given."""
        now = time.monotonic()
        silent = now - self._alive
        if silent > self._longest and any(self._grown().values()):
            self._longest = silent
        self._alive = now
        self._first_counters = {**counters, **self._first_counters}
        self._counters = {**self._counters, **counters}

    def enter(self, stage: Stage) -> None:
        """Marks the loop as alive, in this stage."""
        self._stage, self._alive = stage, time.monotonic()

    def beat(self, now: float, *, draining: bool) -> dict[str, Any]:
        """Gives what `ControlMessage.BEAT` has of the loop; marks it alive if a compiler computes.

        Args:
            now: Of the monotonic clock.
            draining: True if the worker is to end.
        """
        grown = self._grown()
        if self._cpu.computes() and self._stage == Stage.COMPILING:
            self._alive = now
        state = "starting"
        if self._stage == Stage.STEPPING or any(grown.values()):
            state = "draining" if draining else "running"
        values: dict[str, Any] = {"state": state, "stage": self._stage, "grown": grown}
        if "updates" in self._counters:
            values["updates"] = int(self._counters["updates"])
        return {**values, "idle": now - self._alive, "longest": self._longest}

    def _grown(self) -> dict[str, float]:
        return {name: n - self._first_counters[name] for name, n in self._counters.items()}


class Control:
    """A worker's end of its connection to the controller, in a thread of its own.

    It beats as long as the process lives, whatever the main loop does, and reports how long ago
    that showed progress. A worker without a controller is neither watched nor needed: it ends.
    """

    def __init__(self, spec: WorkerSpec) -> None:
        self.stopping = threading.Event()
        """Set when the worker is to end."""
        self.hurried = threading.Event()
        """Set when it is to end without the update in progress."""
        self.identity = Identity(spec.run, spec.number, spec.incarnation)
        self._connection = connect(
            spec.controller, self.identity, limit_bytes=LIMIT_BYTES, timeout=_CONNECT_SECONDS
        )
        self.on_start: Callable[[Start], None] = lambda start: None
        """Called with the other workers whenever one has changed, by the thread that listens."""
        self.busy = BusyTime()
        """The time of the worker's threads, which its beats report."""
        self.on_seconds: Callable[[SecondsByKind], None] = lambda seconds: None
        """Called with what other workers spend their time on, by the thread that listens."""
        self._outgoing: deque[Message] = deque()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        weakref.finalize(self, os.close, self._wake)
        self._changed = threading.Condition()
        self._start: Start | None = None
        self._answers: dict[int, dict[str, Any]] = {}  # by the event's number
        self.main_loop = MainLoop()
        self._closing = False
        self._thread = threading.Thread(target=self._talk, name="control", daemon=True)
        self._thread.start()

    def send(self, kind: ControlMessage, values: dict[str, Any]) -> None:
        """Sends the controller a message."""
        self._outgoing.append(pack(kind, values))
        os.eventfd_write(self._wake, 1)

    def wait_for_start(self) -> Start:
        """Waits until the worker is to begin.

        Raises:
            Drained: If it is asked to end instead.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._start or self.stopping.is_set())
            if self._start is None:
                raise Drained
            return self._start

    @property
    def peers(self) -> dict[str, list[dict[str, str]]]:
        """The other workers' addresses as they were last sent, as in `Start`; empty before."""
        start = self._start
        return start.peers if start else {}

    def wait_for_answer(self, number: int, event: dict[str, Any] | None) -> dict[str, Any]:
        """Waits for the hooks' answer; in a hurry it is that nothing is wanted.

        A learner that its host's engine takes away has no controller to answer it.

        Args:
            number: Events before this one.
            event: To be sent; None where another replica sends it.
        """
        while True:
            if event is not None:  # again, as another controller may lead the run by now
                self.send(ControlMessage.EVENT, event)
            until = time.monotonic() + _ASK_SECONDS
            while time.monotonic() < until:
                with self._changed:
                    self._changed.wait_for(lambda: number in self._answers, BEAT_SECONDS)
                    if number in self._answers:
                        return self._answers.pop(number)
                if self.hurried.is_set():
                    return {"stop": False, "settings": {}}
                self.main_loop.alive()

    def close(self) -> None:
        """Sends the messages that are left, and closes the connection."""
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
                    values = self.main_loop.beat(now, draining=self.stopping.is_set())
                    beaten = pack(ControlMessage.BEAT, {**values, "seconds": self.busy.take()})
                    self._outgoing.append(beaten)  # `send` would wake this thread once more
                while self._outgoing:
                    self._connection.send(self._outgoing.popleft())
                # The end's wake-up may have been read with that of the last message.
                poll.poll(0 if self._closing else 1000 * (beat - now))
                with suppress(BlockingIOError):
                    os.eventfd_read(self._wake)
                while (message := self._connection.receive(0)) is not None:
                    self._take(message)
        except Disconnected:
            if not self._closing:
                logger.error("the controller is gone, so this worker ends")
                os._exit(1)
        except Exception:  # without its beats it would be taken for hanging
            logger.exception("this worker cannot listen to the controller any more, so it ends")
            os._exit(1)

    def _take(self, message: Message) -> None:
        with self._changed:
            if message.kind == ControlMessage.DRAIN:
                self.stopping.set()
                if (seconds := unpack(message).get("hurry")) is not None:
                    timer = threading.Timer(seconds, self.hurried.set)
                    timer.daemon = True
                    timer.start()
            elif message.kind in (ControlMessage.START, ControlMessage.PEERS):
                values = unpack(message)
                specs = values["specs"] and specs_from_json(values["specs"])
                self._start = Start(values["peers"], values["incarnations"], specs)
                self.on_start(self._start)
            elif message.kind == ControlMessage.ANSWER:
                values = unpack(message)
                # The next may come before one is read: the first replica alone asks at the end.
                last = values["number"]
                self._answers = {n: x for n, x in self._answers.items() if n >= last - 1}
                self._answers[last] = values
            elif message.kind == ControlMessage.SECONDS:
                self.on_seconds(unpack(message))
            self._changed.notify_all()
