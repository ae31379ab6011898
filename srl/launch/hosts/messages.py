"""The messages between the supervisor of a host and the controller."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from srl.dataflow.plan import MOST_LEARNERS
from srl.loop.learning.unroll_ledger import Ledger
from srl.record.json_shape import COUNT
from srl.streams.transport import Message, Refused
from srl.workers.message_schemas import ADDRESS, demand_shape

BROKEN, NO_CONTROLLER = 70, 75
"""Exit codes of a supervisor that has failed, and of one that no controller needs for now: both may
be better another time, or elsewhere (EX_SOFTWARE and EX_TEMPFAIL of sysexits.h)."""


SILENT_SECONDS = 10.0
"""Without a beat, after which the other process is taken for hung or stopped: the kernel notices
only hosts and processes that are gone."""


class HostMessage(IntEnum):
    """Kinds of messages between a supervisor and the controller: JSON objects but for WORKER."""

    HOST = 40
    """Supervisor, first of all: a `HostCard`."""
    REFUSED = 41
    """Controller: `text`; the supervisor ends."""
    START = 42
    """Controller: `spec`, `log`, `slot`, and `account` for workers that write the ledger: what
    their part of it is now."""
    KILL = 43
    """Controller: `number`, `incarnation`."""
    WORKER = 44
    """Both: a message of a worker's, or for one. Counts: number, incarnation, kind. Body: its."""
    ENDED = 45
    """Supervisor: `number`, `incarnation`, `code`, `how`, `dump`, and `stack` if it was killed."""
    BEAT = 46
    """Both, about once a second. Supervisor: `states` of processes, as text by number, and
    `accounts`: what learners have written into the ledger, each as number, incarnation, replica and
    part. Controller: nothing."""
    END = 47
    """Controller: the run is over."""
    RELAY = 48
    """Controller: `source`, where parameters are published, empty before that is known; `parent`,
    the address of the relay that hands them on to this host's, empty if none does."""


_PART = (COUNT,) * Ledger.NUMBERS
SCHEMAS: dict[int, dict[Any, Any]] = {
    # Of a card only what shows whether the host has the same srl, which knows the rest.
    HostMessage.HOST: {"name": str, "version": str, "source": str},
    HostMessage.ENDED: {
        "number": COUNT,
        "incarnation": COUNT,
        "code": int,
        "how": str,
        "dump": str,
        "stack": str,
    },
    HostMessage.BEAT: {
        "states": {str: str},
        "accounts": [(COUNT, COUNT, range(MOST_LEARNERS), _PART)],
    },
}
"""The schema of supervisors' messages, by kind, but for WORKER; see `srl.record.json_shape`."""


@dataclass(frozen=True)
class HostCard:
    """A supervisor's description of its host."""

    name: str
    fragment: str
    """The fragment whose workers it is for."""
    slots: int
    """The number of workers that it has room for."""
    version: str
    """The version of srl there."""
    source: str
    """The hash of the experiment file as that host sees it."""
    relay: str = ""
    """The address of its relay, which hands parameters on; empty where no worker needs any."""
    workers: tuple[tuple[int, int, int, bool], ...] = ()
    """The workers that are there already: number, incarnation, slot, and whether it has begun."""

    @staticmethod
    def of(values: dict[str, Any]) -> HostCard:
        """The card with these values, as `asdict` gave them for JSON.

        Raises:
            Refused: If it is no such card.
        """
        demand_shape("the card of a host", values, _CARD)
        card = {name: values[name] for name in _CARD}
        card["workers"] = tuple(tuple(worker) for worker in values["workers"])
        return HostCard(**card)


_CARD = {
    "name": str,
    "fragment": str,
    "slots": COUNT,
    "version": str,
    "source": str,
    "relay": re.compile(f"|{ADDRESS.pattern}"),
    "workers": [(COUNT, COUNT, COUNT, bool)],
}


def wrapped(number: int, incarnation: int, message: Message) -> Message:
    """A message of or for a worker, on its way between a host and the controller."""
    return Message(
        HostMessage.WORKER, counts=(number, incarnation, message.kind), body=message.body
    )


def unwrapped(message: Message) -> tuple[int, int, Message]:
    """Unwraps a worker's message: gives the worker's number, its incarnation, and the message.

    Raises:
        Refused: If it is nothing of the kind.
    """
    if len(message.counts) != 3:
        raise Refused(f"a wrapped message has 3 counts; this one has {len(message.counts)}")
    number, incarnation, kind = message.counts
    return number, incarnation, Message(kind, body=message.body)
