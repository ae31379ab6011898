"""How every subcommand reads the words after its name."""

from __future__ import annotations

import argparse
import json
from typing import Any, NoReturn

from srl.errors import UserError


class Arguments(argparse.ArgumentParser):
    """A parser whose complaint is a UserError of one line."""

    def __init__(self, command: str, **settings: Any) -> None:
        """Reads the words of `srl <command>`."""
        super().__init__(f"srl {command}", allow_abbrev=False, **settings)

    def error(self, message: str) -> NoReturn:
        """Raises UserError with the message."""
        raise UserError(f"{message}; see {self.prog} --help")


def environment_options(words: list[str]) -> dict[str, Any]:
    """`--scenario full --hiders 3` as {"scenario": "full", "hiders": 3}."""
    if len(words) % 2 or any(not word.startswith("--") for word in words[::2]):
        raise UserError(f"{' '.join(words)!r} is not made of pairs --option value")
    return {
        name[2:].replace("-", "_"): _value(text)
        for name, text in zip(words[::2], words[1::2], strict=True)
    }


def _value(text: str) -> Any:
    """A flag or a number where the text is one."""
    try:
        value = json.loads(text.lower())
    except ValueError:
        return text
    return value if isinstance(value, bool | int | float) else text


def expect_at_least(least: int, **values: int) -> None:
    """Raises UserError for an option, by its name in Python, whose value is below `least`."""
    for name, value in values.items():
        if value < least:
            flag = name.replace("_", "-")
            raise UserError(f"--{flag} {value}; expected a whole number from {least} up")
