"""The messages of the sample stream, and what each kind carries."""

from __future__ import annotations

from enum import IntEnum

from srl.streams.fields import COUNT, FLAG, NUMBER, VERSION, Fields


class Kind(IntEnum):
    """What is said on a sample stream."""

    OPEN = 10
    HANDSHAKE = 11
    """Counts: batches, positions, epoch, restarts of the group, whether RESTORE follows. Body: the
    layout of one unroll. Descriptors: the memory of the batches, within a host."""
    RESTORE = 12
    """Body: a saved state to go on from."""
    TAKE = 13
    TICKET = 14
    """Counts: update, position. Version: the oldest to act."""
    DELIVER = 15
    """Counts: update, position, microseconds of each activity. Body: the unroll, between hosts."""
    WANT_STATE = 16
    STATE = 17
    """Body: the group's state between two unrolls."""
    STOP = 18
    """No unroll is wanted any more."""


_TICKET = {"update": COUNT, "position": NUMBER}
FIELDS = {
    Kind.OPEN: Fields(),
    Kind.HANDSHAKE: Fields(
        {
            "batches": NUMBER[1:],
            "positions": NUMBER[1:],
            "epoch": NUMBER,
            "restarts": COUNT,
            "restored": FLAG,
        },
        body=True,
        fds=(0, 1),
    ),
    Kind.RESTORE: Fields(body=True),
    Kind.TAKE: Fields(),
    Kind.TICKET: Fields(_TICKET, version=VERSION),
    Kind.DELIVER: Fields(_TICKET, activities=6, body=True),
    Kind.WANT_STATE: Fields(),
    Kind.STATE: Fields(body=True),
    Kind.STOP: Fields(),
}
