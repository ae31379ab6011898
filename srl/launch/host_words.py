"""What the supervisor of a host and the controller say to each other."""

from __future__ import annotations

import contextlib
import json
import os
import re
from dataclasses import asdict, dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

from srl.inputs import is_count, parse_json
from srl.outputs import replace_whole, write_whole
from srl.streams import Message, Refused
from srl.workers.ledger import MOST_LEARNERS, Ledger
from srl.workers.stage import Stage
from srl.workers.words import ADDRESS, COUNT, demand_shape

ADDRESS_FILE = "controller.json"
"""Of the run's folder; in it the controller says where it is."""
OUTCOME_FILE = "outcome.json"
"""Of the run's folder; in it the controller says how the run has ended."""
BEGUN_FILE = "begun.json"
"""Of the run's folder; there once all workers that the run needs have begun."""
STAGE_FILE = "stage.json"
"""Of the run's folder; what a training on this machine does before its first report."""
BROKEN, NO_CONTROLLER = 70, 75
"""Exit codes of a supervisor that has failed, and of one that no controller needs for now: both may
be better another time, or elsewhere (EX_SOFTWARE and EX_TEMPFAIL of sysexits.h)."""


SILENT_SECONDS = 10.0
"""Without a beat, after which the other process is taken for hung or stopped: the kernel notices
only hosts and processes that are gone."""


class Kind(IntEnum):
    """What a message between a supervisor and the controller says; a JSON object but for SAID."""

    HOST = 40
    """Supervisor, first of all: a `HostCard`."""
    REFUSED = 41
    """Controller: `text`; the supervisor ends."""
    START = 42
    """Controller: `orders`, `log`, `slot`, and `account` for workers that write the ledger: what
    their part of it is now."""
    KILL = 43
    """Controller: `number`, `incarnation`."""
    SAID = 44
    """Both: something of a worker's, or for one. Counts: number, incarnation, kind. Body: its."""
    ENDED = 45
    """Supervisor: `number`, `incarnation`, `code`, `how`, `dump`, and `stack` if it was killed."""
    BEAT = 46
    """Both, about once a second. Supervisor: `states` of processes in words, by number, and
    `accounts`: what learners have written into the ledger, each as number, incarnation, replica and
    part. Controller: nothing."""
    END = 47
    """Controller: the run is over."""
    RELAY = 48
    """Controller: `source`, where parameters are published, empty before that is known; `parent`,
    the address of the relay that hands them on to this host's, empty if none does."""


_PART = (COUNT,) * Ledger.NUMBERS
WORDS: dict[int, dict[Any, Any]] = {
    # Of a card only what tells whether the host has the same srl, which knows the rest.
    Kind.HOST: {"name": str, "version": str, "source": str},
    Kind.ENDED: {
        "number": COUNT,
        "incarnation": COUNT,
        "code": int,
        "how": str,
        "dump": str,
        "stack": str,
    },
    Kind.BEAT: {
        "states": {str: str},
        "accounts": [(COUNT, COUNT, range(MOST_LEARNERS), _PART)],
    },
}
"""The shape of what supervisors say, by kind, but for SAID; see `srl.workers.words.fits`."""


@dataclass(frozen=True)
class HostCard:
    """What a supervisor tells of its host."""

    name: str
    fragment: str
    """Whose workers it is for."""
    slots: int
    """How many it has room for."""
    version: str
    """Of srl there."""
    source: str
    """Hash of the experiment file as that host sees it."""
    relay: str = ""
    """Address of what hands parameters on; empty where no worker needs any."""
    workers: tuple[tuple[int, int, int, bool], ...] = ()
    """Those that are there already: number, incarnation, slot, and whether it has begun."""

    def values(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)

    @staticmethod
    def of(values: dict[str, Any]) -> HostCard:
        """What `values` gave.

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
    """Something that a worker says, or is told, on its way between a host and the controller."""
    return Message(Kind.SAID, counts=(number, incarnation, message.kind), body=message.body)


def unwrapped(message: Message) -> tuple[int, int, Message]:
    """What was wrapped: the worker's number, its incarnation, and the message.

    Raises:
        Refused: If it is nothing of the kind.
    """
    if len(message.counts) != 3:
        raise Refused(f"a wrapped message has 3 counts; this one has {len(message.counts)}")
    number, incarnation, kind = message.counts
    return number, incarnation, Message(kind, body=message.body)


def write_address(folder: Path, address: str) -> int:
    """Tells hosts that share the run's folder where the controller is.

    Returns:
        The controller's term: how many there were before it.

    Raises:
        UserError: If it cannot be written.
    """
    before = _read(folder / ADDRESS_FILE).get("term")
    term = before + 1 if isinstance(before, int) else 0
    write_whole(folder / ADDRESS_FILE, _text({"address": address, "term": term}))
    return term


def read_address(folder: Path) -> str | None:
    """Where the controller is, or was last; None where nobody has told."""
    address = _read(folder / ADDRESS_FILE).get("address")
    return address if isinstance(address, str) else None


def note_begun(folder: Path) -> None:
    """Tells whoever follows the run that all it needs has begun."""
    _write(folder / BEGUN_FILE, {"begun": True})


def has_begun(folder: Path) -> bool:
    """Whether the run has begun since it was given to an engine."""
    return "begun" in _read_new(folder / BEGUN_FILE)


def write_outcome(folder: Path, code: int, reason: str = "") -> None:
    """Records for those who follow the run, or look later, that it has ended, and how.

    Args:
        folder: The run's.
        code: Its exit code.
        reason: Of a failure, where it is known.

    Raises:
        OSError: If it cannot be written.
    """
    _write(folder / OUTCOME_FILE, {"code": code, "reason": reason})


def read_outcome(folder: Path) -> int | None:
    """The exit code of a run that has ended; None before."""
    code = _read_new(folder / OUTCOME_FILE).get("code")
    return code if is_count(code) and code < 256 else None


def read_reason(folder: Path) -> str:
    """Why a run has failed; empty where that is not recorded."""
    reason = _read(folder / OUTCOME_FILE).get("reason")
    return reason if isinstance(reason, str) else ""


def note_stage(folder: Path, stage: Stage) -> None:
    """Records what a run on this machine does before its first report."""
    with contextlib.suppress(OSError):  # on a full disk; then only `srl top` lacks it
        _write(folder / STAGE_FILE, {"stage": stage})


def read_stage(folder: Path) -> Stage | None:
    """The stage that a run was in last; None where that is not recorded."""
    with contextlib.suppress(ValueError):
        return Stage(_read(folder / STAGE_FILE).get("stage"))
    return None


def _write(file: Path, values: dict[str, Any]) -> None:
    replace_whole(file, _text(values))


def _text(values: dict[str, Any]) -> bytes:
    return (json.dumps(values) + "\n").encode()


def _read_new(file: Path) -> dict[str, Any]:
    """What a file holds that may be new: NFS remembers that it was not there until it lists it."""
    with contextlib.suppress(OSError):
        os.listdir(file.parent)
    return _read(file)


def _read(file: Path) -> dict[str, Any]:
    try:
        values = parse_json(file.read_bytes())
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}
