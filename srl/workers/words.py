"""What messages to the controller must carry, checked before anything of it is used.

So one worker's garbage is refused, and cannot end the run of all.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Mapping
from types import UnionType
from typing import Any

from srl.errors import RunError
from srl.pools.specs_json import specs_from_json
from srl.streams import Message, Refused
from srl.workers.control import Kind, unpack

COUNT = range(1 << 53)
"""Whole numbers that JSON carries exactly."""
ADDRESS = re.compile(r"(unix|thread):\S+|(tcp://)?\S+:\d+|\S+ unix:\S+ tcp://\S+:\d+")
"""At which something listens: a stream, or learners that meet."""
_NUMBERS = range(-COUNT.stop, COUNT.stop)

WORDS: dict[int, dict[Any, Any]] = {
    Kind.HELLO: {"addresses": {str: ADDRESS}, "specs": dict | None},
    Kind.BEAT: {
        "state": str,
        "stage?": str,
        "idle": float,
        "longest?": float,
        "grown": {str: float},
    },
    Kind.REPORT: {"env_steps": COUNT, "updates": COUNT, "bottleneck?": str, str: float | None},
    Kind.SAY: {"text": str},
    Kind.STOPPED: {},
    Kind.FAILED: {
        "summary": str,
        "text": str,
        "by_user": bool,
        "by_peer": bool,
        "final?": bool,
    },
}
"""The shape of what workers say, by kind; see `fits`."""


def words_of(message: Message, shapes: Mapping[int, dict[Any, Any]] = WORDS) -> dict[str, Any]:
    """The JSON object that a message carries, if that is as its kind must be.

    Args:
        message: Whatever has come.
        shapes: Of each kind; by default of what workers say.

    Raises:
        Refused: If it carries anything else, or is of another kind.
    """
    if message.kind not in shapes:
        raise Refused(f"a message of kind {message.kind}")
    words = demand_shape(f"message {message.kind}", unpack(message), shapes[message.kind])
    if message.kind == Kind.HELLO and words["specs"] is not None:
        try:
            specs_from_json(words["specs"])
        except RunError as error:
            raise Refused(str(error)) from error
    return words


def demand_shape(name: str, words: dict[str, Any], shape: dict[Any, Any]) -> dict[str, Any]:
    """The words themselves, which are to have this shape.

    Raises:
        Refused: If they do not.
    """
    if not fits(words, shape):
        fields = ", ".join(field for field in shape if field is not str)
        raise Refused(
            f"{name} is {reprlib.repr(words)}; expected {fields or 'nothing'} as srl does"
        )
    return words


def fits(value: Any, shape: Any) -> bool:
    """Whether a JSON value has a shape, which is written as the value would be.

    Args:
        value: As `json.loads` gives it.
        shape: A type, of which float takes whole numbers, too; a range or a pattern that the value
            is to be of; `[shape]` for any number of such; `(shape, shape)` for a list of just
            these; `{"name": shape}` for an object with these fields. It may have others, each of
            the shape of `str:` if there is one; "name?" may be missing.
    """
    if isinstance(shape, dict):
        return isinstance(value, dict) and _fields_fit(value, shape)
    if isinstance(shape, list):
        return isinstance(value, list) and all(fits(item, shape[0]) for item in value)
    if isinstance(shape, tuple):
        same = isinstance(value, list) and len(value) == len(shape)
        return same and all(map(fits, value, shape))
    if isinstance(shape, range):
        return type(value) is int and value in shape
    if isinstance(shape, re.Pattern):
        return fits(value, str) and shape.fullmatch(value) is not None
    if isinstance(shape, UnionType):
        return any(fits(value, one) for one in shape.__args__)
    if shape is str:
        return isinstance(value, str) and _is_text(value)
    if shape is float and type(value) is int:
        return value in _NUMBERS
    return type(value) is shape


def _fields_fit(value: dict[str, Any], shape: dict[Any, Any]) -> bool:
    needed = [name for name in shape if name is not str and not name.endswith("?")]
    if not all(name in value for name in needed):
        return False
    for name, item in value.items():
        part = shape.get(name) or shape.get(f"{name}?") or shape.get(str)
        if not _is_text(name) or (part is not None and not fits(item, part)):
            return False
    return True


def _is_text(value: str) -> bool:
    """Whether it can be written: JSON may hold halves of characters."""
    return value.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in value)
