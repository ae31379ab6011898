"""How every subcommand reads the words after its name."""

from __future__ import annotations

import argparse
import itertools
import re
import shutil
import textwrap
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

from srl.errors import UserError
from srl.field_types import NUMBERS, TextType


class Arguments(argparse.ArgumentParser):
    """A parser whose complaint is a UserError of one line, and whose help fits the terminal."""

    def __init__(self, command: str, *, synopsis: Iterable[str] = (), **settings: Any) -> None:
        """Reads the words of `srl <command>`.

        Args:
            command: After `srl`.
            synopsis: What may follow the command, in place of what argparse derives. No line
                breaks inside of an element such as "[--plan NAME]".
            settings: Of argparse. In descriptions and epilogs, paragraphs are filled to the
                terminal's width; indented ones are tables, "  name  text".
        """
        settings.setdefault("formatter_class", _Paragraphs)
        super().__init__(f"srl {command}", allow_abbrev=False, **settings)
        for kind, way in NUMBERS.items():
            self.register("type", kind, _argument_type(way))
        elements = [element.replace(" ", "\xa0") for element in synopsis]
        if elements:
            prefix = len("usage: ")
            text = wrapped(" ".join([*self.prog.split(), *elements]), 4, taken=prefix)
            self.usage = text.replace("\xa0", " ")

    def error(self, message: str) -> NoReturn:
        """Raises UserError with the message."""
        raise UserError(f"{message.removeprefix('argument ')}; see {self.prog} --help")

    def parse_known_args(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, args: Any = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """As argparse does; refuses an option that is given twice with different values."""
        known, others = super().parse_known_args(args, namespace)
        self._expect_once(list(args or ()))
        return known, others

    def _expect_once(self, words: list[str]) -> None:
        kinds = (argparse._AppendAction, argparse._ExtendAction)
        lists = [action for action in self._actions if isinstance(action, kinds)]
        repeatable = {flag for action in lists for flag in action.option_strings}
        first: dict[str, str] = {}
        for word, following in itertools.pairwise([*words, "--"]):
            flag, has_value, text = word.partition("=")
            text = text if has_value else "" if following.startswith("--") else following
            key = flag.replace("_", "-")
            if not flag.startswith("--") or key in repeatable:
                continue
            if first.setdefault(key, text) != text:
                raise UserError(
                    f"{flag} is given twice, with {first[key]!r} and {text!r}; give it once"
                )


def _argument_type(way: TextType) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        try:
            return way.read(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r}; expected {way.expected}") from None

    return read


class _Paragraphs(argparse.HelpFormatter):
    """Fills each paragraph by itself, and keeps the rows of tables apart."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        paragraphs = text.strip("\n").split("\n\n")
        return "\n\n".join(_filled(paragraph) for paragraph in paragraphs)


def _filled(paragraph: str) -> str:
    if not paragraph.startswith(" "):
        return wrapped(" ".join(paragraph.split()))
    rows = [re.match(r" +\S+ *", row) for row in paragraph.splitlines()]
    return "\n".join(wrapped(row.string, row.end()) for row in rows if row)


def wrapped(text: str, hanging: int = 0, *, taken: int = 0) -> str:
    """The text in lines that fit the terminal, 80 columns in a pipe.

    Args:
        text: Without line breaks.
        hanging: Columns by which lines after the first are indented.
        taken: Columns before the first line that are used already.
    """
    width = max(40, shutil.get_terminal_size().columns - 2)
    lines = textwrap.fill(
        " " * taken + text,
        width,
        subsequent_indent=" " * hanging,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return lines[taken:]


def table(rows: Mapping[str, str]) -> str:
    """A line for each name and its text."""
    column = max(map(len, rows)) + 4
    lines = [wrapped(f"  {name:<{column - 2}}{text}", column) for name, text in rows.items()]
    return "\n".join(lines)


def expect_at_least(least: int, **values: int) -> None:
    """Raises UserError for an option, by its name in Python, whose value is below `least`."""
    for name, value in values.items():
        if value < least:
            flag = name.replace("_", "-")
            raise UserError(f"--{flag} {value}; expected a whole number from {least} up")
