"""Settings are fields of dataclasses: what a class writes down otherwise would be dropped."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from inspect import get_annotations
from typing import Any

from srl.core.errors import UserError


def expect_declared(name: str, value: Any) -> None:
    """Checks that all settings of a value, and of those in it, are fields of its dataclass.

    Raises:
        UserError: Naming the class, the settings, and what to add to it.
    """
    if not is_dataclass(value) or isinstance(value, type):
        return
    known = {field.name for field in fields(value)}
    for kind in type(value).__mro__:
        if is_dataclass(kind):
            _expect_fields(name, kind, known)
    for field in fields(value):
        expect_declared(f"{name}.{field.name}", getattr(value, field.name))


def _expect_fields(name: str, kind: type, known: set[str]) -> None:
    own, types = vars(kind), get_annotations(kind)
    whose = f"{name} is a {kind.__name__}, whose"
    if "__dataclass_fields__" not in own:
        settings = [key for key, given in types.items() if "ClassVar" not in str(given)]
        if settings:
            raise UserError(
                f"{whose} {', '.join(settings)} would be ignored: put @dataclass(frozen=True) "
                f"above `class {kind.__name__}`"
            )
    for key in own:
        if key in known and key not in types:
            given = f"{key}: {type(own[key]).__name__} = {own[key]!r}"
            raise UserError(
                f"{whose} {key} would be ignored: write `{given}`, with its type, and put "
                f"@dataclass(frozen=True) above `class {kind.__name__}`"
            )
