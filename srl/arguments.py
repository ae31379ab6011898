"""How every subcommand reads the words after its name."""

from __future__ import annotations

import argparse
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


def expect_at_least(least: int, **values: int) -> None:
    """Raises UserError for an option, by its name in Python, whose value is below `least`."""
    for name, value in values.items():
        if value < least:
            flag = name.replace("_", "-")
            raise UserError(f"--{flag} {value}; expected a whole number from {least} up")
