"""A tree of arrays together with its layout, for what crosses once: states, not steps."""

from __future__ import annotations

import struct

import numpy as np

from srl.streams.layout import ALIGNMENT, Layout
from srl.streams.transport.message import Body, Refused, as_bytes
from srl.types import Tree

_LENGTH = struct.Struct("<Q")


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


def unpack(body: Body | None, limit_bytes: int) -> Tree:
    """The dicts, tuples and arrays that were packed, in the body's own memory.

    Raises:
        Refused: If it is no such body, or the arrays are larger than `limit_bytes`.
    """
    view = as_bytes(body)
    if view is None or len(view) < _LENGTH.size:
        raise Refused("a parcel without a layout")
    (length,) = _LENGTH.unpack_from(view)
    if length > len(view) - _LENGTH.size:
        raise Refused(f"a parcel of {len(view):,} bytes announces a layout of {length:,}")
    layout = Layout.from_json(bytes(view[_LENGTH.size : _LENGTH.size + length]), limit_bytes)
    return layout.views(view[_start(length) :])


def _start(length: int) -> int:
    return -(-(_LENGTH.size + length) // ALIGNMENT) * ALIGNMENT
