"""Reading of arguments, the same for every subcommand."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import math
import re
import shutil
import textwrap
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

from srl.core.errors import UserError, range_text
from srl.core.field_types import NUMBERS, TextType
from srl.core.other_names import unknown_option


class Arguments(argparse.ArgumentParser):
    """A parser that raises UserErrors of one line, and whose help fits the terminal."""

    advice = ""
    """A sentence for an unknown option that resembles none, with "; " at its end."""

    def __init__(
        self,
        command: str,
        *,
        program: str = "srl",
        synopsis: Iterable[str] = (),
        **settings: Any,
    ) -> None:
        """Reads the arguments of `srl <command>`.

        Args:
            command: After `srl`.
            program: The first words, in place of `srl`.
            synopsis: What may follow the command, in place of what argparse derives. No line
                breaks inside of an element such as "[--plan NAME]".
            settings: Of argparse. In descriptions and epilogs, paragraphs are filled to the
                terminal's width; indented ones are tables, "  name  text".
        """
        settings.setdefault("formatter_class", _Paragraphs)
        super().__init__(f"{program} {command}", allow_abbrev=False, **settings)
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

    @property
    def flags(self) -> list[str]:
        """The options that the command itself has, such as --json."""
        return [flag for action in self._actions for flag in action.option_strings]

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Parses all arguments.

        Raises:
            UserError: If one is wrong or unknown; it names the nearest known option.
        """
        options, others = self.parse_known_args(args, namespace)
        for flag in (text.partition("=")[0] for text in others if text.startswith("-")):
            advice = f"{self.advice}see {self.prog} --help"
            raise UserError(unknown_option(flag, self.flags, advice))
        if others:
            self.error(f"not expected: {' '.join(others)}")
        return options

    def parse_known_args(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, args: Any = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Parses as argparse does; an option given twice with different values raises UserError."""
        known, others = super().parse_known_args(args, namespace)
        self._expect_once(list(args or ()))
        return known, others

    def parse_target(self, argv: list[str]) -> tuple[Any, list[str]]:
        """Reads the arguments of a command that names an experiment first.

        Returns:
            The options, with `target` and the command's `flags` among them, and the arguments for
            the experiment.

        Raises:
            UserError: If an argument is wrong, or no target is given and `target` has no default.
        """
        named = argv[:1] if argv and not argv[0].startswith("-") else []
        options, overrides = self.parse_known_args(argv[len(named) :])
        options.target = named[0] if named else self.get_default("target")
        options.flags = self.flags
        if options.target is None:
            raise UserError(f"{self.prog} needs an experiment file or an environment id first")
        return options, overrides

    def _expect_once(self, argv: list[str]) -> None:
        kinds = (argparse._AppendAction, argparse._ExtendAction)
        lists = [action for action in self._actions if isinstance(action, kinds)]
        repeatable = {flag for action in lists for flag in action.option_strings} | _LISTS
        first: dict[str, str] = {}
        for argument, following in itertools.pairwise([*argv, "--"]):
            flag, has_value, text = argument.partition("=")
            text = text if has_value else "" if following.startswith("--") else following
            key = flag.replace("_", "-")
            if not flag.startswith("--") or key in repeatable:
                continue
            if first.setdefault(key, text) != text:
                raise UserError(
                    f"{flag} is given twice, with {first[key]!r} and {text!r}; give it once"
                )


_LISTS = {"--env.wrappers", "--env.metrics", "--env.ignore"}
"""Options of an experiment that are given once for each element."""


def _argument_type(way: TextType) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        try:
            return way.read(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r}; expected {way.expected}") from None

    return read


def number(least: float, most: float = math.inf) -> Callable[[str], Any]:
    """An argument's type: the numbers from `least` to `most`, whole ones if `least` is whole."""
    read = NUMBERS[type(least)].read

    def in_range(text: str) -> Any:
        value: Any = -math.inf  # of a text that is no number
        with contextlib.suppress(ValueError):
            if least <= (value := read(text)) <= most:
                return value
        raise argparse.ArgumentTypeError(f"{text!r}; expected {range_text(least, most, value)}")

    return in_range


def one_of(*names: str) -> Callable[[str], str]:
    """An argument's type: one of these texts."""

    def known(text: str) -> str:
        if text not in names:
            raise argparse.ArgumentTypeError(f"{text!r}; expected one of {', '.join(names)}")
        return text

    return known


def listed(read: Callable[[str], Any]) -> Callable[[str], list[Any]]:
    """An argument's type: values between commas, each of which is read by `read`."""
    return lambda text: [read(part) for part in text.split(",")]


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
