"""What a worker process is told when it is started, and what it and the controller say later."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from srl.errors import RunError
from srl.streams.message import Message

CONTROLLER = 0
"""The controller's number; workers count from 1."""
BEAT_SECONDS = 1.0
LIMIT_BYTES = 16_000_000
"""Of one message between a worker and the controller."""


class Kind(IntEnum):
    """What a message between a worker and the controller says; its body is a JSON object."""

    HELLO = 16
    """Worker: `addresses`, at which others reach it, and `specs`, if it steps environments."""
    START = 17
    """Controller: `peers` and `specs`; the worker begins."""
    PEERS = 18
    """Controller: as START, after an address has changed."""
    BEAT = 19
    """Worker: `state`, `idle` (seconds since its main loop showed progress) and `counters`."""
    REPORT = 20
    """Worker: metrics, for the display."""
    SAY = 21
    """Worker: `text`, for the terminal."""
    DRAIN = 22
    """Controller: finish what cannot be left, and end."""
    STOPPED = 23
    """Worker: it has finished and is about to exit."""
    FAILED = 24
    """Worker: it is about to exit because of an exception: `summary`, `text`, `by_user`."""


@dataclass(frozen=True)
class Orders:
    """What a worker process is told on its command line, as JSON."""

    folder: str
    """The run's."""
    fragment: str
    replica: int
    number: int
    """Of the worker among all of the run, from 1; the same after a restart."""
    incarnation: int
    """Starts of this worker before this one; all of a gang count together."""
    run: int
    """64 random bits that tell the processes of this run from those of others."""
    controller: str
    """Address of the controller."""
    parent: int
    """Its process id."""
    path: tuple[str, ...]
    """Its `sys.path`."""
    resume: bool = False
    """Whether to go on from the newest checkpoint."""
    role: str = ""
    """module:function to run in place of what the fragment's nodes ask for."""
    dump: int = -1
    """Descriptor that stacks are written into."""
    ledger: int = -1
    """Descriptor of the `Ledger`, for workers that update."""

    @property
    def name(self) -> str:
        """What people call the worker."""
        return f"{self.fragment}-{self.replica}"

    def to_json(self) -> str:
        """As `from_json` takes it."""
        return json.dumps(dataclasses.asdict(self))

    @staticmethod
    def from_json(text: str) -> Orders:
        """The orders that `to_json` wrote."""
        values = json.loads(text)
        return Orders(**{**values, "path": tuple(values["path"])})


def pack(kind: Kind, values: dict[str, Any]) -> Message:
    """A message that carries a JSON object."""
    return Message(kind, body=json.dumps(values).encode())


def unpack(message: Message) -> dict[str, Any]:
    """The object that a message carries.

    Raises:
        RunError: If it carries anything else.
    """
    try:
        values = json.loads(bytes(message.body or b""))
    except ValueError as error:
        raise RunError(f"message {message.kind} is not JSON: {error}") from error
    if not isinstance(values, dict):
        raise RunError(f"message {message.kind} is {type(values).__name__}; expected an object")
    return values
