"""Messages, each a small fixed header and at most one body.

Nothing that was received is evaluated: a header has fixed fields, which are checked before any
memory is taken for the body, and a body is bytes whose layout both ends know (srl.streams.layout).
"""

from __future__ import annotations

import os
import struct
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from srl.core.errors import RunError

Body = bytes | bytearray | memoryview | np.ndarray

JOINED = 0
"""A peer has connected; the first message of each."""
LEFT = 1
"""A peer has closed its connection, died or been cut off; the last message of each."""

MOST_COUNTS = 8

_MAGIC = b"srl\0"
_FORMAT = 1
_HEADER = struct.Struct("<4sBBHQIIQQqqQ8q")
HEADER_BYTES = _HEADER.size
_NO_COUNTS = (0,) * MOST_COUNTS


class Identity(NamedTuple):
    """The sender, in the header of every message."""

    run: int
    """A random number of 64 bits that all workers of a run share."""
    sender: int
    """The number of the worker, the same after a restart."""
    incarnation: int
    """The number of the worker's start; a later one replaces an earlier one."""


class Message(NamedTuple):
    """A message on a connection."""

    kind: int
    """The message's meaning; 0 and 1 (JOINED, LEFT) come from the connection itself."""
    sequence: int = 0
    """Counts the messages of a stream, so that lost ones are noticed."""
    version: tuple[int, int] = (0, 0)
    """(epoch, n) of the policies that it is about."""
    schema: int = 0
    """The hash of the body's layout."""
    counts: tuple[int, ...] = ()
    """Up to eight whole numbers of 64 bits, whose meaning depends on the kind."""
    body: Body | None = None
    """The body; received over sockets it may be read-only, and has the announced size."""
    fds: tuple[int, ...] = ()
    """Descriptors. The sender keeps its own; the receiver closes its copies."""

    def close_fds(self) -> None:
        """Closes the descriptors of a received message that is dropped."""
        for fd in self.fds:
            os.close(fd)


class Refused(RunError):
    """An invalid message: it is dropped, counted and logged, and has no other effect."""


def demand(message: Message, kind: IntEnum) -> Message:
    """The message itself, if it is of this kind.

    Raises:
        RunError: If it is of another.
    """
    if message.kind != kind:
        message.close_fds()
        raise RunError(f"expected {kind.name} ({kind}) on a stream, got kind {message.kind}")
    return message


def encode(identity: Identity, message: Message, body_size: int) -> bytes:
    """The header of `message`.

    Raises:
        RunError: If a number of the message does not fit into its field.
    """
    counts = message.counts
    try:
        return _HEADER.pack(
            _MAGIC,
            _FORMAT,
            len(counts),
            message.kind,
            *identity,
            message.sequence,
            message.schema,
            *message.version,
            body_size,
            *counts,
            *_NO_COUNTS[len(counts) :],
        )
    except struct.error as error:
        raise RunError(f"this message cannot be sent, as a number is too large: {error}") from error


def decode(
    frame: bytes | bytearray | memoryview, limit_bytes: int
) -> tuple[Identity, Message, int]:
    """Reads a header: its sender, the message without its body, and the body's size.

    Raises:
        Refused: If it is not a valid header, or announces more than `limit_bytes`.
    """
    if len(frame) < HEADER_BYTES:
        raise Refused(f"a header of {len(frame)} bytes; expected {HEADER_BYTES}")
    fields = _HEADER.unpack_from(frame)
    magic, version, number, kind, *identity, sequence, schema, epoch, n, size = fields[:12]
    if magic != _MAGIC or version != _FORMAT:
        raise Refused(f"no message of format {_FORMAT}: it begins with {bytes(frame[:5])!r}")
    if number > MOST_COUNTS:
        raise Refused(f"{number} counts; expected at most {MOST_COUNTS}")
    if size > limit_bytes:
        raise Refused(f"a body of {size:,} bytes; expected at most {limit_bytes:,}")
    message = Message(kind, sequence, (epoch, n), schema, fields[12 : 12 + number])
    return Identity(*identity), message, size


def as_bytes(body: Body | None) -> memoryview | None:
    """The bytes of a body in place; None if there are none.

    Raises:
        RunError: If its array is not contiguous.
    """
    if body is None:
        return None
    if isinstance(body, np.ndarray):
        if not body.flags.c_contiguous:
            raise RunError("the array of a body is not contiguous; copy it first")
        view = body.reshape(-1).view(np.uint8).data
    else:
        view = memoryview(body).cast("B")
    return view if len(view) else None


def text_of(message: Message) -> bytes:
    """A copy of the message's body; empty without one."""
    view = as_bytes(message.body)
    return b"" if view is None else bytes(view)
