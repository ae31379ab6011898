"""Errors that a person can act on: what was given, what was expected, what to do."""

import math
import os
import sysconfig
import traceback
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from numbers import Integral, Real
from types import TracebackType
from typing import Any

_LONGEST = 2_000  # characters of the text of an error that srl did not raise


class SrlError(Exception):
    """Base of all errors that srl raises on purpose."""


class UserError(SrlError):
    """The user's mistake: reported in a line or two, without a traceback; exit code 2."""


class PlanError(UserError):
    """A plan that cannot work: why, and what to change."""


class RunError(SrlError):
    """A failure while running, such as a simulator that raised or a full disk; exit code 1."""


class Final(RunError):
    """A failure that a new start of the worker does not end."""


class Unwritable(Final):
    """The run's folder cannot be written, as on a full disk."""


class WorkerLost(RunError):
    """A worker process that died too often, or hangs."""


def nearest(name: str, known: Collection[str]) -> str:
    """Asks whether the nearest of these names was meant; lists all where none is near."""
    import difflib  # which most errors do not need

    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"


def either(names: Iterable[str]) -> str:
    """Names in words: a, b or c."""
    *most, last = names
    return f"{', '.join(most)} or {last}" if most else last


def expect(good: object, name: str, given: object, expected: str) -> None:
    """Raises UserError for the value of `name` unless it is good."""
    if not good:
        raise UserError(f"{name} is {given!r}; expected {expected}")


def expect_apart(settings: object, pair: str, why: str, both: object) -> None:
    """Raises UserError if `both` of a pair of settings are given that do not go together."""
    if both:
        name = type(settings).__name__
        raise UserError(f"{name} with {pair}: {why}; leave out one of the two")


def expect_number(
    name: str, given: object, least: float, most: float = math.inf, *, or_none: bool = False
) -> None:
    """Raises UserError unless `given` is a number from `least` to `most`, whole if `least` is."""
    if or_none and given is None:
        return
    kind = Integral if isinstance(least, int) else Real
    good = isinstance(given, kind) and not isinstance(given, bool)
    expected = f"{range_text(least, most, given if good else least)}{', or none' * or_none}"
    expect(good and least <= given <= most, name, given, expected)  # type: ignore[operator]


_HUGE = 10**9
"""An upper limit from here on is named only to a number beyond it."""


def range_text(least: float, most: float, given: Any = -math.inf) -> str:
    """The numbers from `least` to `most` in words; whole ones if `least` is.

    Args:
        least: The lower limit.
        most: The upper limit. A huge one is left out unless `given` is beyond it.
        given: The number that is out of the range.
    """
    whole = isinstance(least, int)
    low, high = (str(x) if isinstance(x, int) else f"{x:.10g}" for x in (least, most))
    unlimited = most == math.inf or given <= most >= _HUGE
    limits = f"from {low} up" if unlimited else f"from {low} to {high}"
    return f"a {'whole number' if whole else 'number'} {limits}"


PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
"""The folder of srl's own code."""


def explained(error: BaseException) -> str:
    """The text that is shown for an error.

    For one that srl raised, this is its message, and the frames of the environment, or of other
    code, that caused it; for any other, the whole traceback.
    """
    if not isinstance(error, SrlError):
        return formatted(error)
    cause = error
    while isinstance(cause, SrlError) and cause.__cause__ is not None:
        cause = cause.__cause__
    if isinstance(cause, SrlError):
        return str(error)
    return f"{error}\n{foreign_frames(cause)}".rstrip()


def foreign_frames(error: BaseException) -> str:
    """The traceback of an error without srl's own frames at its beginning.

    Empty for an error that was raised by srl, whose text is complete.
    """
    frames = error.__traceback__
    while frames is not None and is_own(frames.tb_frame.f_code.co_filename):
        frames = frames.tb_next
    if frames is None:
        return ""
    return formatted(error, frames)


def formatted(error: BaseException, frames: TracebackType | None = None) -> str:
    """The traceback of an error, from these frames on if they are given, with bounded texts."""
    parts = traceback.format_exception(type(error), error, frames or error.__traceback__)
    return "\n".join(shortened(part.rstrip()) for part in parts)


def described(error: BaseException) -> str:
    """The class of an error and its text: of one that an environment raised, which may be any."""
    try:
        text = str(error)
    except Exception as second:
        text = f"(its text is unknown: its __str__ raised {type(second).__name__})"
    return f"{type(error).__name__}: {shortened(text)}"


@contextmanager
def reported(name: str, expected: str) -> Iterator[None]:
    """Reports an error of a function that a user wrote, in one line.

    Raises:
        UserError: For an error that srl did not raise, with the user's line.
    """
    try:
        yield
    except SrlError:
        raise
    except Exception as error:
        text = described(error).partition("\n")[0]
        raise UserError(f"{name} raised {text}{_place(error)}; {expected}") from error


def _place(error: BaseException) -> str:
    """The innermost line outside srl and outside installed packages; empty where there is none."""
    installed = PACKAGE, *sysconfig.get_paths().values()
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith((*installed, "<")):
            return f" ({frame.filename}, line {frame.lineno})"
    return ""


def shortened(text: str) -> str:
    """The text; of a long one the beginning, and how many characters are left out."""
    left_out = len(text) - _LONGEST
    return text if left_out <= 0 else f"{text[:_LONGEST]}... ({left_out:,} more characters)"


def is_own(file: str) -> bool:
    """Tells if a source file is srl's: the environments that come with it count as the user's."""
    return file.startswith(PACKAGE) and not file.startswith(f"{PACKAGE}envs{os.sep}")
