"""The command line's values for a setting, by the type annotation of its field."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from enum import EnumMeta
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Literal, Self, Union, get_args, get_origin

from srl.core.errors import either


def whole_number(text: str) -> int:
    """The value of 64, 10_000 or 1e6; ValueError for a text that is no whole number."""
    try:
        return int(text)
    except ValueError:
        value = float(text)
        if not math.isfinite(value) or value != int(value) or abs(value) > 1e30:
            raise
        return int(value)


@dataclass(frozen=True)
class TextType:
    """One way to read a text."""

    read: Callable[[str], Any]
    """Gives the value; raises ValueError or KeyError for a text that it does not take."""
    metavar: str
    """The name of such a value in a list of options."""
    expected: str
    """The name of such a value in an error."""


class FromText(ABC):
    """Base of the values that one text stands for on the command line."""

    metavar: ClassVar[str]
    """The value's name in a list of options."""
    expected: ClassVar[str]
    """The value's name in an error."""

    @classmethod
    @abstractmethod
    def read(cls, text: str) -> Self:
        """Gives the value of a text; raises ValueError for a text that stands for none."""


def _chosen(values: dict[str, Any]) -> TextType:
    names = list(values)
    return TextType(values.__getitem__, f"{{{','.join(names)}}}", ", ".join(names))


NUMBERS = {
    int: TextType(whole_number, "INT", "a whole number, such as 64, 10_000 or 1e6"),
    float: TextType(float, "FLOAT", "a number, such as 0.5 or 3e-4"),
}
_TYPES = {
    **NUMBERS,
    NoneType: TextType(lambda text: {"none": None}[text.lower()], "none", "none"),
    bool: TextType(
        lambda text: {"true": True, "false": False}[text.lower()], "BOOL", "true, false"
    ),
    Path: TextType(Path, "PATH", "a path"),
    str: TextType(str, "STR", "text"),
}


def text_types(annotation: Any) -> list[TextType]:
    """The ways to read a value of this type, the strictest first; none where text cannot say it."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return text_types(arguments[0])
    if origin in (Union, UnionType):
        found = [way for argument in arguments for way in text_types(argument)]
        return sorted(found, key=lambda way: (way == _TYPES[str], way != _TYPES[NoneType]))
    if origin is Literal:
        return [_chosen({str(argument): argument for argument in arguments})]
    if isinstance(annotation, EnumMeta):
        return [_chosen(dict(annotation.__members__))]
    if isinstance(annotation, type) and issubclass(annotation, FromText):
        return [TextType(annotation.read, annotation.metavar, annotation.expected)]
    return [_TYPES[annotation]] if annotation in _TYPES else []


def item_type(annotation: Any) -> tuple[type, Any] | None:
    """The class and the items' type of a tuple or list of any length; None for other types."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        found = [item for argument in arguments if (item := item_type(argument))]
        return found[0] if found else None
    if origin is list or (origin is tuple and len(set(arguments) - {...}) == 1):
        return origin, arguments[0]
    return None


def item_count(annotation: Any) -> int | None:
    """Counts the items of a tuple of this type; None for other types, and for any number."""
    arguments = get_args(annotation)
    if get_origin(annotation) in (Union, UnionType):
        return next((count for argument in arguments if (count := item_count(argument))), None)
    fixed = get_origin(annotation) is tuple and ... not in arguments
    return len(arguments) if fixed else None


def read(annotation: Any, text: str) -> Any:
    """The value that a text stands for.

    Raises:
        ValueError: With what is expected.
    """
    ways = text_types(annotation)
    for way in ways:
        try:
            return way.read(text)
        except (ValueError, KeyError):
            continue
    raise ValueError(either(way.expected for way in ways))
