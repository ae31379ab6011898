"""The schema of a stream's messages: what each kind carries, checked where messages enter.

FIELDS = {SampleMessage.TAKE: Fields({"clock": range(1 << 32)}, version=VERSION, body=True)}
check(message, FIELDS)  # raises Refused

A process that has the keys may still send anything. After the check every number is within the
range that the code behind it was written for; whether it is valid at present (whether the ticket is
the sender's, or the version is published) is checked by that code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from srl.streams.transport.interface import Listener, Peer
from srl.streams.transport.message import JOINED, LEFT, Message, Refused

COUNT = range(1 << 53)
"""Whole numbers that only grow by counting."""
NUMBER = range(1 << 31)
"""Numbers of things, and the two numbers of a version: what an int32 holds."""
FLAG = range(2)
VERSION = NUMBER
VERSION_OR_NONE = range(-1, NUMBER.stop)
"""The numbers of versions where there may be none yet, (-1, -1)."""
_ZERO = range(1)


class Fields(NamedTuple):
    """The fields of a kind of message. All else that a header has room for must be 0 or absent."""

    counts: Mapping[str, range] = {}
    """The ranges of the counts that it must have, in their order."""
    version: range = _ZERO
    """The range of both numbers of the version."""
    schema: bool = False
    """True if it may name the layout of its body."""
    body: bool = False
    """True if it may have a body."""
    fds: tuple[int, ...] = (0,)
    """The numbers of descriptors that it may have."""


FieldsByKind = Mapping[Any, Fields]
"""The kinds are an IntEnum's, and may be looked up by number."""


def check(message: Message, fields: FieldsByKind) -> Message:
    """The message itself, if it carries what its kind may carry.

    Args:
        message: As received; its descriptors are closed if it is refused.
        fields: Of the kinds that a stream has.

    Raises:
        Refused: If it is of another kind, or carries anything else.
    """
    reason = _problem(message, fields.get(message.kind))
    if reason:
        message.close_fds()
        names = [f" ({kind.name})" for kind in fields if kind == message.kind]
        raise Refused(f"a message of kind {message.kind}{''.join(names)} {reason}")
    return message


def dispatch(
    listener: Listener,
    fields: FieldsByKind,
    peer: Peer,
    message: Message,
    *,
    handle: Callable[[Peer, Message], None],
    left: Callable[[Peer], None],
) -> None:
    """Checks a received message and hands it to `handle`, or the peer of a LEFT to `left`.

    A message that the check or the handler refuses is rejected.
    """
    try:
        if message.kind == LEFT:
            left(peer)
        elif message.kind != JOINED:
            handle(peer, check(message, fields))
    except Refused as reason:
        reject(listener, peer, reason)


def reject(listener: Listener, peer: Peer, reason: Refused) -> None:
    """Counts and logs a message that was refused, and closes the connection it came over.

    Its sender may wait for an answer, or others may wait for the message. What else came over that
    connection is dropped.
    """
    listener.refuse(peer, reason)
    listener.cut_off(peer, str(reason), drop_unread=True)


def unexpected(message: Message, when: str = "at this point") -> Refused:
    """The error of a message of a kind that does not come now; its descriptors are closed."""
    message.close_fds()
    return Refused(f"a message of kind {message.kind} {when}")


def _problem(message: Message, fields: Fields | None) -> str:
    """Names the fault of a message; empty if it has none."""
    if fields is None:
        return "is not expected on this stream"
    counts, named = message.counts, fields.counts
    if len(counts) != len(named):
        return f"has {len(counts)} counts; expected {len(named)}"
    for (name, allowed), count in zip(named.items(), counts, strict=True):
        if count not in allowed:
            return f"has {name} {count}; expected {_span(allowed)}"
    for number in message.version:
        if number not in fields.version:
            return f"has version {message.version}; expected numbers {_span(fields.version)}"
    if message.schema and not fields.schema:
        return f"has layout {message.schema:016x}; expected none"
    if message.body is not None and len(message.body) and not fields.body:
        return f"has a body of {len(message.body):,} bytes; expected none"
    if len(message.fds) not in fields.fds:
        return f"has {len(message.fds)} descriptors; expected {' or '.join(map(str, fields.fds))}"
    return ""


def _span(allowed: range) -> str:
    least, most = allowed.start, allowed.stop - 1
    return str(most) if least == most else f"{least} to {most}"
