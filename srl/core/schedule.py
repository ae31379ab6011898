"""Schedules: values of settings that change over a run.

    PPO(learning_rate=Schedule.linear(3e-4, 0.0), clip=Schedule(((0.0, 0.3), (0.5, 0.2))))

Importing this loads neither jax nor flax: experiment files do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Self

from srl.core.errors import RunError, UserError, expect_number, range_text
from srl.core.field_types import FromText
from srl.core.settings import Settings, expect_settings

_CHECKED = 100
"""Parts of a run, at whose ends a function is checked before the run begins."""


@dataclass(frozen=True)
class Schedule(FromText, Settings):
    """A setting's value by the progress of a run, from 0 at its start to 1 at its end.

    Progress is the share of the run's updates that are done. All of an update has one value.
    """

    metavar: ClassVar[str] = "SCHEDULE"
    expected: ClassVar[str] = "a schedule, such as 3e-4/0 or 0:3e-4/0.5:1e-4/1:0"

    points: tuple[tuple[float, float], ...] = ()
    """Progress and value, in the order of progress; values between two are on the line through
    them. Two with the same progress make a jump."""
    function: Callable[[float], float] | None = None
    """A function of progress in place of points: one at the top level of a module or file."""

    @classmethod
    def linear(cls, *values: float) -> Self:
        """Gives a schedule through these values, at even distances: from the first to the last."""
        last = max(1, len(values) - 1)
        return cls(tuple((number / last, value) for number, value in enumerate(values)))

    @classmethod
    def read(cls, text: str) -> Self:
        """Gives the schedule of a text such as 3e-4/0 or 0:3e-4/0.5:1e-4/1:0.

        Raises:
            ValueError: If the text is none.
        """
        parts = [part.split(":") for part in text.split("/")]
        if len(parts) < 2 or len(lengths := {len(part) for part in parts}) > 1 or lengths - {1, 2}:
            raise ValueError(text)
        numbers = [tuple(map(float, part)) for part in parts]
        if lengths == {1}:
            return cls.linear(*(value for (value,) in numbers))
        return cls(tuple((progress, value) for progress, value in numbers))

    def value(self, progress: float) -> float:
        """The value at this progress.

        Raises:
            RunError: If the function gives no finite number.
        """
        if self.function is not None:
            found = self.function(progress)
            if not isinstance(found, int | float) or not math.isfinite(found):
                raise RunError(f"the schedule {self} gives {found!r} at progress {progress:.6g}")
            return float(found)
        for (before, first), (after, last) in pairwise(self.points):
            if before <= progress < after:
                return first + (last - first) * (progress - before) / (after - before)
        ends = self.points[0], self.points[-1]
        return float(ends[0][1] if progress < ends[0][0] else ends[1][1])

    def validate(self, name: str, limits: Sequence[float] = (-math.inf,)) -> None:
        """Raises UserError where it is none, or leaves the limits of the setting `name`."""
        expect_settings(name, self)
        if (self.function is None) == (not self.points):
            raise UserError(f"{name}: a Schedule has points, or a function; give one of them")
        if self.function is not None:
            self._validate_function(name, limits)
        for point in self.points:
            expect_number(f"{name}: the progress of a point", point[0], 0.0, 1.0)
            expect_number(f"{name}: the value of a point", point[1], *map(float, limits))
        if list(self.points) != sorted(self.points, key=lambda point: point[0]):
            raise UserError(f"{name} is {self}; give the points in the order of their progress")

    def _validate_function(self, name: str, limits: Sequence[float]) -> None:
        function = self.function
        where = getattr(function, "__qualname__", "<")
        if not callable(function) or "<" in where:
            raise UserError(
                f"{name}: {function!r} has no name by which a run's processes could import it; "
                "write a function at the top level of the file or of a module"
            )
        least, most = map(float, (*limits, math.inf)[:2])
        for number in range(_CHECKED + 1):
            try:
                value = self.value(number / _CHECKED)
            except Exception as error:
                raise UserError(
                    f"{name}: the schedule {self} failed at progress {number / _CHECKED}: {error}"
                ) from error
            if not least <= value <= most:
                raise UserError(
                    f"{name}: the schedule {self} gives {value:g} at progress "
                    f"{number / _CHECKED}; expected {range_text(least, most, value)}"
                )

    def __str__(self) -> str:
        """The text that `read` takes; of a function its name."""
        if self.function is not None:
            return getattr(self.function, "__qualname__", repr(self.function))
        return "/".join(":".join(map(_text_of, point)) for point in self.points)


def _text_of(number: float) -> str:
    """Gives the shortest text that stands for exactly this number."""
    text = f"{number:g}"
    return text if float(text) == number else repr(number)


if TYPE_CHECKING:
    Adjustable = Any  # a Schedule as it is given, a number where learning computes with it
else:
    Adjustable = float | Schedule
"""The type of a setting that may change while a run goes."""
