"""Base of the classes of settings: a wrong setting is reported in a line, with its cure."""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
import sys
from dataclasses import fields, is_dataclass
from typing import Annotated, Any, NamedTuple, Self, get_args, get_type_hints

from srl.core.errors import UserError, expect
from srl.core.other_names import setting_hint


class UnknownSetting(UserError, TypeError):
    """A setting that the class does not have, or one that is missing."""


class Range(NamedTuple):
    """The least and the largest value of a setting, as in `steps: Annotated[int, Range(1)]`.

    A setting has whole numbers alone if `least` is an int.
    """

    least: float
    largest: float = math.inf


AtLeastOne = Annotated[int, Range(1)]
NotNegative = Annotated[float, Range(0.0)]
ZeroToOne = Annotated[float, Range(0.0, 1.0)]


@functools.cache
def hints(kind: type) -> dict[str, list[tuple[Any, ...]]]:
    """The parts of each annotation of a setting, by name: in a class, then in its bases.

    An annotation that cannot be evaluated, such as one imported for type checkers, is left out.
    """
    found: dict[str, list[tuple[Any, ...]]] = {}
    for base in kind.__mro__:
        names = vars(sys.modules.get(base.__module__)) if base.__module__ in sys.modules else {}
        for name, hint in vars(base).get("__annotations__", {}).items():
            with contextlib.suppress(Exception):
                hint = eval(hint, dict(names), dict(vars(base))) if isinstance(hint, str) else hint
                options = found.setdefault(name, [])
                options.append(get_args(hint))
                options += map(get_args, get_args(hint))
    return found


@functools.cache
def ranges(kind: type) -> dict[str, Range]:
    """The ranges of a dataclass's settings, by name; one that is declared again keeps its range."""
    found: dict[str, Range] = {}
    for name, options in hints(kind).items():
        own = [part for option in options for part in option if isinstance(part, Range)]
        found |= {name: own[0]} if own else {}
    return found


@functools.cache
def setting_types(kind: type) -> dict[str, Any]:
    """The types of a dataclass's settings; none where one cannot be evaluated."""
    try:
        return get_type_hints(kind) if is_dataclass(kind) else {}
    except NameError:  # of an import for type checkers alone
        return {}


@functools.cache
def parts(kind: type) -> dict[str, tuple[type, bool]]:
    """The settings of a dataclass that have settings themselves: their class, and if None will do.

    There are none where an annotation cannot be evaluated.
    """
    found: dict[str, tuple[type, bool]] = {}
    for name, hint in setting_types(kind).items():
        kinds = set(get_args(hint) or (hint,))
        own, *others = kinds - {type(None)} or {None}
        if not others and isinstance(own, type) and issubclass(own, Settings):
            found[name] = own, type(None) in kinds
    return found


def expect_parts(name: str, settings: Any) -> None:
    """Raises UserError where a setting that has settings itself is of another class."""
    for part, (kind, may_be_none) in parts(type(settings)).items():
        given, none = getattr(settings, part, None), ", or None" if may_be_none else ""
        good = isinstance(given, kind) or (given is None and may_be_none)
        expect(good, f"{name}.{part}", given, f"a {kind.__name__}{none}")


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
