"""JSON of files that may be damaged, or written by others."""

from __future__ import annotations

import json
from typing import Any, TypeGuard

_DEEPEST = 100  # levels: what walks over the values may be recursive


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON text.

    Raises:
        ValueError: If it is none, or is nested too deeply.
    """
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    level, depth = [value], 0
    while level:
        if depth > _DEEPEST:
            raise ValueError("it is nested too deeply")
        depth += 1
        level = [inner for outer in level for inner in _inside(outer)]
    return value


def _inside(value: Any) -> list[Any]:
    """The parts of a value that may have parts themselves."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [part for part in parts if isinstance(part, dict | list)]


def is_count(value: Any) -> TypeGuard[int]:
    """Whether a value is a whole number of at least 0 that fits into int64."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63
