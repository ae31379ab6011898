"""The layout of a message's body: named arrays, one behind the other.

Both ends agree on a layout once, as JSON such as `{"action": "int32[64]"}`; then each message names
it by its hash alone.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from srl.core.errors import RunError
from srl.core.tree import leaves_of, map_tree
from srl.streams.transport.message import Body, Message, Refused

if TYPE_CHECKING:
    from srl.core.types import Tree

ALIGNMENT = 64
"""The alignment of each array within the body, in bytes: with it JAX takes NumPy memory without a
copy."""

_DTYPES = {
    name: np.dtype(name)
    for name in "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 "
    "float64".split()
}
_LEAF = re.compile(r"([a-z0-9]{1,16})\[((?:\d{1,18},)*\d{1,18})?\]", re.ASCII)
_MOST_LEAVES = 100_000  # of a layout from elsewhere
_MOST_DIMENSIONS = 16
_MOST_DEPTH = 64


@dataclass(frozen=True)
class Field:
    """One array of a body."""

    dtype: np.dtype
    shape: tuple[int, ...]
    offset: int

    @property
    def bytes(self) -> int:
        """The size of the array."""
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class Layout:
    """Names, dtypes, shapes and offsets of the arrays of a body.

    layout = Layout.of({"observation": observation, "ended": ended})
    connection.send(Message(kind, schema=layout.hash, body=layout.pack(tree)))
    tree = layout.open(received)
    """

    fields: Tree
    """A tree of Field: dicts, in order of names, and tuples."""

    @classmethod
    def of(cls, tree: Tree) -> Layout:
        """The layout of a tree of arrays, or of anything that has a shape and a dtype.

        Raises:
            RunError: If a dtype cannot be sent.
        """
        return _Builder(math.inf).layout(_described(tree))

    @classmethod
    def from_json(cls, text: bytes, limit_bytes: float) -> Layout:
        """Reads what `to_json` gave.

        Args:
            text: This.
            limit_bytes: The most bytes of a body; infinity for a layout of this run's own, which
                may have any number of arrays, too.

        Raises:
            Refused: If it is not a layout, or its body is larger than `limit_bytes`.
        """
        try:
            described = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise Refused(f"a layout that is not JSON: {error}") from error
        return _Builder(limit_bytes).layout(described)

    def to_json(self) -> bytes:
        """The layout as text; equal layouts give equal texts."""
        return json.dumps(map_tree(_text, self.fields), separators=(",", ":")).encode("ascii")

    @cached_property
    def leaves(self) -> tuple[Field, ...]:
        """The fields in the order of their offsets."""
        return tuple(leaves_of(self.fields))

    @cached_property
    def size(self) -> int:
        """The size of a body in bytes, a multiple of 64."""
        return max((_aligned(f.offset + f.bytes) for f in self.leaves), default=0)

    @cached_property
    def hash(self) -> int:
        """A hash of 64 bits, which names the layout in messages."""
        return int.from_bytes(hashlib.blake2b(self.to_json(), digest_size=8).digest(), "little")

    def __hash__(self) -> int:
        return self.hash

    def views(self, buffer: Body | None) -> Tree:
        """The arrays of a body, in place; they can be written where the buffer can.

        Raises:
            Refused: If the buffer has another size.
        """
        held = 0 if buffer is None else memoryview(cast(Any, buffer)).nbytes
        if held != self.size:
            raise Refused(f"a body of {held:,} bytes; its layout has {self.size:,}")
        return map_tree(lambda f: np.ndarray(f.shape, f.dtype, buffer, f.offset), self.fields)

    def open(self, message: Message) -> Tree:
        """The arrays of a message's body, in place.

        Raises:
            Refused: If the message is of another layout.
        """
        if message.schema != self.hash:
            raise Refused(
                f"a message of layout {message.schema:016x}; expected {self.hash:016x}, which is "
                f"{self.to_json()[:200].decode()}"
            )
        return self.views(message.body)

    def empty(self) -> np.ndarray:
        """A new body, uint8 `[size]`, aligned and not yet written."""
        memory = np.empty(self.size + ALIGNMENT, np.uint8)
        start = -memory.ctypes.data % ALIGNMENT
        return memory[start : start + self.size]

    def pack(self, tree: Tree) -> np.ndarray:
        """A new body that holds copies of the tree's arrays."""
        body = self.empty()
        self.write(body, tree)
        return body

    def write(self, buffer: Body, tree: Tree) -> None:
        """Copies the tree's arrays into a body.

        Raises:
            RunError: If the tree is not of this layout.
        """
        _copy(self.views(buffer), tree)


class _Builder:
    """Gives the fields of a described tree their offsets, within limits."""

    def __init__(self, limit_bytes: float) -> None:
        self._limit_bytes = limit_bytes
        self._most_leaves = _MOST_LEAVES if math.isfinite(limit_bytes) else math.inf
        self._used = 0
        self._leaves = 0

    def layout(self, described: Any) -> Layout:
        return Layout(self._fields(described, 0))

    def _fields(self, described: Any, depth: int) -> Tree:
        if depth > _MOST_DEPTH:
            raise Refused(
                f"a layout that is nested too deep; expected at most {_MOST_DEPTH} levels"
            )
        if isinstance(described, dict):
            return {name: self._fields(described[name], depth + 1) for name in sorted(described)}
        if isinstance(described, (list, tuple)):
            return tuple(self._fields(part, depth + 1) for part in described)
        if isinstance(described, str) and (match := _LEAF.fullmatch(described)):
            return self._field(match[1], match[2])
        raise Refused(f"a layout with {described!r:.100}; expected such as 'float32[64,4]'")

    def _field(self, name: str, lengths: str | None) -> Field:
        dtype = _dtype(name)
        shape = tuple(map(int, lengths.split(","))) if lengths else ()
        field = Field(dtype, shape, self._used)
        # Empty arrays count as if they were not, or their other lengths would know no bound.
        size = math.prod(max(length, 1) for length in shape) * dtype.itemsize
        self._leaves += 1
        if len(shape) > _MOST_DIMENSIONS or self._leaves > self._most_leaves:
            raise Refused(
                f"a layout with {len(shape)} dimensions, {self._leaves:,} arrays; expected at most "
                f"{_MOST_DIMENSIONS}, {self._most_leaves:,}"
            )
        if self._used + size > self._limit_bytes:
            raise Refused(f"a layout of more than {self._limit_bytes:,} bytes")
        self._used = _aligned(self._used + field.bytes)
        return field


def _dtype(name: str) -> np.dtype:
    if name == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    if name not in _DTYPES:
        raise Refused(f"a layout with dtype {name}; expected one of {', '.join(_DTYPES)}, bfloat16")
    return _DTYPES[name]


def _aligned(size: int) -> int:
    return size + -size % ALIGNMENT


def _described(tree: Any) -> Any:
    """The tree with text in place of arrays, as in the JSON."""
    if isinstance(tree, dict):
        return {name: _described(part) for name, part in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [_described(part) for part in tree]
    if not hasattr(tree, "shape") or not hasattr(tree, "dtype"):
        raise RunError(f"{tree!r:.100} cannot be sent; expected an array, or dicts or tuples of it")
    return _text(tree)


def _text(array: Any) -> str:
    return f"{np.dtype(array.dtype).name}[{','.join(map(str, array.shape))}]"


def _copy(into: Tree, tree: Any) -> None:
    if isinstance(into, dict):
        if not isinstance(tree, dict) or into.keys() != tree.keys():
            raise RunError(f"a tree of {list(tree)}; its layout has {list(into)}")
        for name, part in into.items():
            _copy(part, tree[name])
    elif isinstance(into, tuple):
        if len(into) != len(tree):
            raise RunError(f"a tree of {len(tree)} parts; its layout has {len(into)}")
        for part, source in zip(into, tree, strict=True):
            _copy(part, source)
    else:
        array = np.asarray(tree)
        if array.shape != into.shape or array.dtype != into.dtype:
            raise RunError(
                f"an array {array.dtype.name}{list(array.shape)}; its layout has "
                f"{into.dtype.name}{list(into.shape)}"
            )
        into[...] = array
