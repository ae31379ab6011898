"""The shape of JSON values: what others wrote is checked before anything of it is used."""

from __future__ import annotations

import re
from types import UnionType
from typing import Any

COUNT = range(1 << 53)
"""Whole numbers that JSON carries exactly."""
_NUMBERS = range(-COUNT.stop, COUNT.stop)


def fits(value: Any, shape: Any) -> bool:
    """Tells if a JSON value has a shape, which is written as the value would be.

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
    """Tells if the text can be encoded: JSON may hold halves of characters."""
    return value.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in value)
