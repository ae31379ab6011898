"""The settings that a sweep searches: values in a list, or the numbers of a range.

--algorithm.entropy-cost 0,0.01
--algorithm.learning-rate 1e-4..1e-2:log
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from srl.config.experiment import Experiment
from srl.config.overrides import setting_type
from srl.core.errors import UserError
from srl.core.field_types import read, text_types, whole_number

_DIGITS = 4  # of a number that is drawn: what a person would copy
_FACTORS = (0.8, 1.2)  # of Jaderberg et al. (2017, arXiv:1711.09846)

Settings = Mapping[str, str]
"""The values of one trial, as the command line has them, by flag."""


@dataclass(frozen=True)
class Listed:
    """Some values of one setting."""

    flag: str
    values: tuple[str, ...]
    """The values as the command line has them."""
    type_known: bool
    """True if the setting's type is known, and so that it takes these."""

    def distribution(self, kinds: Any) -> Any:
        """The distribution of Optuna's, of its module of these."""
        return kinds.CategoricalDistribution(self.values)

    def text(self, value: str) -> str:
        """A value as the command line has it."""
        return value

    value = text

    def perturbed(self, value: str, rng: np.random.Generator) -> str:
        """The value before or after this one in the list; at an end perhaps the same."""
        place = self.values.index(value) + int(rng.choice((-1, 1)))
        return self.values[min(max(place, 0), len(self.values) - 1)]


@dataclass(frozen=True)
class Range:
    """The numbers from `low` to `high` of one setting."""

    flag: str
    low: float
    high: float
    log: bool
    """True if their logarithms are equally probable."""
    whole: bool
    """True for whole numbers."""
    type_known: bool
    """True if the setting's type is known, and so that it takes these."""

    def distribution(self, kinds: Any) -> Any:
        """The distribution of Optuna's, of its module of these."""
        if self.whole:
            return kinds.IntDistribution(int(self.low), int(self.high), log=self.log)
        return kinds.FloatDistribution(self.low, self.high, log=self.log)

    def value(self, text: str) -> float:
        """The number that the command line has."""
        return int(text) if self.whole else float(text)

    def perturbed(self, value: str, rng: np.random.Generator) -> str:
        """The number times 0.8 or 1.2, within the range."""
        return self.text(float(value) * float(rng.choice(_FACTORS)))

    def text(self, value: float) -> str:
        """A number as the command line has it, in few digits and within the range."""
        rounded = round(value) if self.whole else float(f"{value:.{_DIGITS}g}")
        nearest = min(max(rounded, self.low), self.high)
        return str(int(nearest)) if self.whole else repr(nearest)


Searched = Listed | Range


def settings_text(settings: Settings) -> str:
    """Settings in a line, by the last parts of their names."""
    names = short_names(list(settings))
    return ", ".join(f"{n} {v}" for n, v in zip(names, settings.values(), strict=True))


def short_names(flags: Sequence[str]) -> list[str]:
    """The last parts of flags; the whole names of those that have the same."""
    last = [flag.rpartition(".")[2].removeprefix("--") for flag in flags]
    return [
        flag.removeprefix("--") if last.count(name) > 1 else name
        for flag, name in zip(flags, last, strict=True)
    ]


def split_searched(arguments: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """The arguments that are the same in all trials, and the texts of those that are searched.

    Raises:
        UserError: If a setting is searched twice.
    """
    fixed: list[str] = []
    searched: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        flag, has_value, text = argument.partition("=")
        if not has_value:
            text = rest[0] if rest and not rest[0].startswith("--") else ""
        if not flag.startswith("--") or ("," not in text and _ends(text) is None):
            fixed.append(argument)
            continue
        if not has_value:
            rest.pop(0)
        flag = flag.replace("_", "-")
        if flag in searched:
            raise UserError(f"{flag} is searched twice; give it once")
        searched[flag] = text
    return fixed, searched


def searched_setting(flag: str, text: str, experiment: Experiment) -> Searched:
    """Parses a text such as `0,0.01` or `1e-4..1e-2:log`.

    Args:
        flag: Of the setting, such as --algorithm.learning-rate.
        text: What it is given.
        experiment: With the arguments that are the same in all trials; it knows the type.

    Raises:
        UserError: If the setting does not take it.
    """
    annotation = setting_type(experiment, flag)
    ends = _ends(text)
    if ends is not None:
        low, high, log = ends
        return _range(flag, low, high, log, annotation)
    values = tuple(text.split(","))
    for value in values:
        try:
            if annotation is not None:
                read(annotation, value)
        except ValueError as error:
            raise UserError(f"{flag} has {value!r} in its list; expected {error}") from None
        if not value or values.count(value) > 1:
            what = f"{value!r} twice" if value else "an empty value"
            raise UserError(f"{flag} {text} has {what}; give each value once")
    return Listed(flag, values, annotation is not None)


def _range(flag: str, low: str, high: str, log: bool, annotation: Any) -> Range:
    numbers = float(low), float(high)
    kinds = {way.metavar for way in text_types(annotation)}
    if annotation is not None and not kinds & {"INT", "FLOAT"}:
        raise UserError(f"{flag} {low}..{high}: the setting is no number; list its values: A,B,C")
    whole = "FLOAT" not in kinds if annotation is not None else _whole(low) and _whole(high)
    if whole and not (_whole(low) and _whole(high)):
        raise UserError(f"{flag} {low}..{high}: the setting is a whole number; give whole ends")
    if not -math.inf < numbers[0] < numbers[1] < math.inf:
        raise UserError(f"{flag} {low}..{high}: give the lower end first, and another upper end")
    if log and numbers[0] <= 0:
        raise UserError(f"{flag} {low}..{high}:log: the lower end must be above 0")
    return Range(flag, *numbers, log, whole, annotation is not None)


def _ends(text: str) -> tuple[str, str, bool] | None:
    """The ends of a range such as 1..8 or 1e-4..1e-2:log, and whether it has `:log`."""
    low, dots, high = text.partition("..")
    end = high.removesuffix(":log")
    with suppress(ValueError):
        float(low), float(end)  # pyright: ignore[reportUnusedExpression]
        return (low, end, end != high) if dots else None
    return None


def _whole(text: str) -> bool:
    try:
        whole_number(text)
    except ValueError:
        return False
    return True
