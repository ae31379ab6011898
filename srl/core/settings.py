"""Base of the classes of settings: a wrong setting is reported in a line, with its cure."""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    Self,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from srl.core.errors import UserError, either, expect, expect_number
from srl.core.other_names import setting_hint


class UnknownSetting(UserError, TypeError):
    """A setting that the class does not have, or one that is missing."""


class Range(NamedTuple):
    """The least and the largest value of a setting, as in `steps: Annotated[int, Range(1)]`.

    A setting has whole numbers alone if `least` is an int.
    """

    least: float
    largest: float = math.inf


MOST_SEED = 2**32 - 1
"""The largest seed: JAX's random keys would take higher ones for lower ones."""
Seed = Annotated[int, Range(0, MOST_SEED)]
AtLeastOne = Annotated[int, Range(1)]
Count = Annotated[int, Range(0)]
NotNegative = Annotated[float, Range(0.0)]
ZeroToOne = Annotated[float, Range(0.0, 1.0)]


@functools.cache
def annotations_of(kind: type) -> dict[str, list[Any]]:
    """The annotations of settings, by name: in a class, then in its bases.

    One that cannot be evaluated, such as one imported for type checkers, is left out.
    """
    found: dict[str, list[Any]] = {}
    for base in kind.__mro__:
        names = vars(sys.modules.get(base.__module__)) if base.__module__ in sys.modules else {}
        for name, hint in vars(base).get("__annotations__", {}).items():
            with contextlib.suppress(Exception):
                hint = eval(hint, dict(names), dict(vars(base))) if isinstance(hint, str) else hint
                found.setdefault(name, []).append(hint)
    return found


def alternatives(hint: Any) -> tuple[Any, ...]:
    """The types of which a value may be by an annotation: those of a union, or one."""
    hint = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _range_of(hint: Any) -> Range | None:
    own = [part for part in getattr(hint, "__metadata__", ()) if isinstance(part, Range)]
    inner = [_range_of(option) for option in alternatives(hint) if option is not hint]
    return next(filter(None, [*own, *inner]), None)


@functools.cache
def ranges(kind: type) -> dict[str, Range]:
    """The ranges of a dataclass's settings, by name; one that is declared again keeps its range."""
    found = {
        name: [*filter(None, map(_range_of, own))] for name, own in annotations_of(kind).items()
    }
    return {name: own[0] for name, own in found.items() if own}


@functools.cache
def setting_types(kind: type) -> dict[str, Any]:
    """The types of a dataclass's settings; none where one cannot be evaluated."""
    try:
        return get_type_hints(kind) if is_dataclass(kind) else {}
    except NameError:  # of an import for type checkers alone
        return {}


def expect_settings(name: str, settings: Any) -> None:
    """Checks settings, and those in them, by their annotations.

    Numbers have to be within their Range; booleans, texts, choices (Literal), tuples, mappings and
    settings that have settings themselves have to be what they are declared as. A default may be of
    another type, and annotations of other kinds are not looked at.

    Args:
        name: Of what has the settings, such as algorithm; empty of an experiment.
        settings: An instance of a dataclass.

    Raises:
        UserError: Naming the setting, its value, and what is expected.
    """
    kind = type(settings)
    for item in fields(settings):
        value, found = getattr(settings, item.name), annotations_of(kind).get(item.name)
        if found and not _among(value, (item.default,)):
            path = f"{name}.{item.name}".lstrip(".")
            hint = next((hint for hint in found if isinstance(value, _nested(hint))), found[0])
            _expect_value(path, value, hint, ranges(kind).get(item.name))


def _among(value: Any, known: tuple[Any, ...]) -> bool:
    """Tells if a value is one of those that are known; an array is none."""
    with contextlib.suppress(ValueError):  # as an array's comparison has no truth
        return value in known
    return False


def _nested(hint: Any) -> tuple[type, ...]:
    """The classes of settings among the types of an annotation."""
    kinds = alternatives(hint)
    return tuple(kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Settings))


def _expect_value(name: str, value: Any, hint: Any, limits: Range | None = None) -> None:
    """Raises UserError for a value that its annotation does not allow."""
    options, limits = alternatives(hint), limits or _range_of(hint)
    kinds = [option for option in options if option is not NoneType]
    if value is None and NoneType in options:
        return
    or_none = ", or none" * (NoneType in options)
    own = _nested(hint)
    if isinstance(value, own):
        expect_settings(name, value)
    elif limits is not None:
        least, largest = limits
        expect_number(name, value, least, largest, or_none=NoneType in options)
    elif len(kinds) != 1:
        return
    elif own:
        article = "an" if own[0].__name__[0] in "AEIOU" else "a"
        expect(False, name, value, f"{article} {own[0].__name__}{or_none}")
    elif kinds == [bool]:
        expect(_among(value, (True, False)), name, value, f"true or false{or_none}")
    elif kinds == [str]:
        expect(isinstance(value, str | None), name, value, f"a text{or_none}")
    elif get_origin(kinds[0]) is Literal:
        known = get_args(kinds[0])
        expect(_among(value, known), name, value, f"{either(map(str, known))}{or_none}")
    elif get_origin(kinds[0]) is Mapping:
        expect(isinstance(value, Mapping), name, value, f"values by name{or_none}")
    elif get_origin(kinds[0]) is tuple:
        _expect_items(name, value, get_args(kinds[0]))


def _expect_items(name: str, values: Any, hints: tuple[Any, ...]) -> None:
    """Raises UserError unless these are the items of a tuple: of any number, or one for a hint."""
    many = ... in hints or len(hints) == 1  # tuple[int] is meant as tuple[int, ...]
    good = isinstance(values, tuple | list) or getattr(values, "ndim", 0) == 1
    good = good and (many or len(values) == len(hints))
    such_as = f", such as {(values,)}" if many and isinstance(values, str | int) else ""
    expect(good, name, values, f"a tuple{'' if many else f' of {len(hints)} values'}{such_as}")
    items: Any = values
    for number, value in enumerate(items):
        _expect_value(f"{name}[{number}]", value, hints[0 if many else number])


class _Signature:
    """The signature of a class's constructor, which `__new__` below would hide from `help`."""

    def __get__(self, instance: object, owner: type) -> inspect.Signature:
        signature = inspect.signature(owner.__init__)
        return signature.replace(parameters=list(signature.parameters.values())[1:])


class Settings:
    """Base of dataclasses that an experiment file makes."""

    __signature__ = _Signature()

    def __new__(cls, *args: Any, **given: Any) -> Self:
        """Makes an instance with fields that a run's folder can record.

        Raises:
            UnknownSetting: Where the constructor would raise a TypeError for its arguments.
            UserError: If the class has a constructor and is no dataclass.
        """
        own = vars(cls)
        if "__init__" in own and "__dataclass_fields__" not in own:
            raise UserError(
                f"{cls.__name__} has an __init__ and is no dataclass: put @dataclass(frozen=True) "
                "above the class, and its settings as fields without __init__"
            )
        if args or given:  # a copy is made without any
            signature = inspect.signature(cls)
            try:
                signature.bind(*args, **given)
            except TypeError as error:
                _refuse(cls, signature, given, str(error))
        return super().__new__(cls)


def _refuse(kind: type, signature: inspect.Signature, given: dict[str, Any], problem: str) -> None:
    for name in given:
        if name not in signature.parameters:
            hint = setting_hint(name, list(signature.parameters), _owners)
            raise UnknownSetting(f"{kind.__name__} has no setting {name}; {hint}") from None
    raise UnknownSetting(f"{kind.__name__}: {problem}") from None


def _owners(name: str) -> list[str]:
    """The names of the classes of settings here, as their packages export them, with a setting."""
    found, kinds = [], [Settings]
    while kinds:
        kind = kinds.pop(0)
        kinds += kind.__subclasses__()
        package = sys.modules.get(kind.__module__.rpartition(".")[0])
        own = kind.__module__.startswith("srl.")
        public = (own and kind.__name__ in sys.modules["srl"].__all__) or getattr(
            package, kind.__name__, None
        ) is kind
        new = public and kind.__name__ not in found
        if new and is_dataclass(kind) and name in (field.name for field in fields(kind)):
            found.append(kind.__name__)
    return found
