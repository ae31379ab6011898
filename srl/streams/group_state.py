"""The state of a group between two unrolls, and how a group begins with one at a stream's far end.

A state crosses rarely, so its layout travels with it: `pack` gives both as one body. The end that
serves answers OPEN with HANDSHAKE, whose last counts are those of START, and with RESTORE if there
is a saved state to continue from.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from srl.core.tree import map_tree
from srl.core.types import Tree
from srl.streams.batch import ArraySpec, Batch
from srl.streams.layout import ALIGNMENT, Layout
from srl.streams.transport.interface import Connection, Listener, Peer
from srl.streams.transport.message import Body, Message, Refused, as_bytes
from srl.streams.transport.schema import COUNT, FLAG, NUMBER

STATE_BYTES = 1 << 30
"""The most bytes that the state of a group, or of a worker's groups, may have."""
CLOCK = range(1 << 32)
"""Values of a group's step counter, from which random keys are folded."""
START = {"epoch": NUMBER, "restarts": COUNT, "restored": FLAG}
"""The last counts of each HANDSHAKE with which a group begins."""
_LENGTH = struct.Struct("<Q")


class Stopped(Exception):
    """The worker is to end, by its controller; no stream ends it."""


class Start(NamedTuple):
    """The start of a group, or of a worker with its groups."""

    epoch: int
    restarts: int
    """The number of earlier starts."""
    saved: Tree
    """The state from which it continues; None if there is none."""

    @property
    def seed_salt(self) -> str:
        """The salt of the seed of its environments, if they begin anew."""
        again = f".{self.restarts}" if self.restarts else ""
        return f"environments {self.epoch}{again}" if self.epoch or again else "environments"


def send_start(
    listener: Listener, peer: Peer, handshake: Message, restore: IntEnum, start: Start
) -> None:
    """Answers OPEN.

    Args:
        listener: Sends the answer.
        peer: The one that has sent OPEN.
        handshake: Lacks only the counts of `START`.
        restore: The kind of the message with the saved state.
        start: How the peer begins.
    """
    counts = (*handshake.counts, start.epoch, start.restarts, start.saved is not None)
    listener.send(peer, handshake._replace(counts=counts))
    if start.saved is not None:
        listener.send(peer, Message(restore, body=pack(start.saved)))


def receive_start(
    connection: Connection, handshake: Message, restore: IntEnum, alive: Callable[[], None]
) -> Start:
    """Reads what `send_start` has sent; the handshake was received and checked already.

    Raises:
        Disconnected: If the other end has gone.
        Refused: If the saved state is not a packed tree.
    """
    *_, epoch, restarts, restored = handshake.counts
    saved = None
    if restored:
        saved = unpack(connection.expect(restore, alive).body, STATE_BYTES)
    return Start(epoch, restarts, saved)


def state_layout(spec: Batch) -> Layout:
    """The layout of a group's state, without that of its pool, whose size varies.

    Args:
        spec: Of the group's unroll.
    """

    def rows(tree: Tree) -> Tree:
        return map_tree(lambda f: ArraySpec(f.shape[1:], f.dtype), tree)

    clock = ArraySpec((), np.dtype(np.int64))
    timestep = rows(spec.timesteps._asdict())
    return Layout.of({"clock": clock, "memory": rows(spec.memory), "timestep": timestep})


def check_state(state: Any, layout: Layout) -> None:
    """Checks a group's state that has come from another process.

    Args:
        state: The unpacked tree.
        layout: Of all but the pool; see `state_layout`.

    Raises:
        Refused: If a group could not continue from it.
    """
    parts = state if isinstance(state, dict) else {}
    pool = parts.get("pool")
    if not isinstance(pool, np.ndarray) or pool.dtype != np.uint8 or pool.ndim != 1:
        raise Refused("a group's state without the state of its pool")
    rest = Layout.of({name: part for name, part in parts.items() if name != "pool"})
    if rest != layout:
        found, expected = (text.to_json()[:200].decode() for text in (rest, layout))
        raise Refused(f"a group's state of {found}; expected {expected}")
    if int(parts["clock"]) not in CLOCK:
        raise Refused(f"a group's state with clock {parts['clock']}; expected a number of uint32")


def unpacked_state(message: Message) -> dict[str, Tree]:
    """The parts of the state that a message brings, by name; `check_state` checks them.

    Raises:
        Refused: If it has no names.
    """
    state = unpack(message.body, STATE_BYTES)
    if not isinstance(state, dict):
        raise Refused("a group's state without names")
    return state


def pack(tree: Tree) -> np.ndarray:
    """A body that holds the layout, as JSON, and copies of the tree's arrays: uint8 [size]."""
    layout = Layout.of(tree)
    text = layout.to_json()
    start = _start(len(text))
    body = np.zeros(start + layout.size, np.uint8)
    body[: _LENGTH.size] = np.frombuffer(_LENGTH.pack(len(text)), np.uint8)
    body[_LENGTH.size : _LENGTH.size + len(text)] = np.frombuffer(text, np.uint8)
    layout.write(body[start:], tree)
    return body


def unpack(body: Body | None, limit_bytes: float = math.inf) -> Tree:
    """The dicts, tuples and arrays that were packed, in the body's own memory.

    Args:
        body: From `pack`.
        limit_bytes: The most bytes of the arrays, and with it a bound on their number, where the
            body comes from a stream.

    Raises:
        Refused: If it is not a packed tree, or the arrays are larger than `limit_bytes`.
    """
    view = as_bytes(body)
    if view is None or len(view) < _LENGTH.size:
        raise Refused("a packed tree without a layout")
    (length,) = _LENGTH.unpack_from(view)
    if length > len(view) - _LENGTH.size:
        raise Refused(f"a packed tree of {len(view):,} bytes announces a layout of {length:,}")
    layout = Layout.from_json(bytes(view[_LENGTH.size : _LENGTH.size + length]), limit_bytes)
    return layout.views(view[_start(length) :])


def _start(length: int) -> int:
    return -(-(_LENGTH.size + length) // ALIGNMENT) * ALIGNMENT
