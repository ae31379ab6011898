"""Lessons of a curriculum: other options of the environment, until a condition on metrics holds.

    experiment = Experiment(..., curriculum=(Lesson({"length": 4}, "episode_return >= 0.9"),))

Importing this loads neither jax nor flax: experiment files do.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

from srl.core.errors import UserError, expect, expect_number
from srl.core.field_types import FromText
from srl.core.settings import Settings
from srl.pools.config import environment_options

_SIGNS = {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt}
COUNTS = ("env_steps", "updates")
"""Metrics that are counts of the run."""
_CONDITION = 'conditions, such as "episode_return >= 0.9 and env_steps >= 1e6"'


class Condition(NamedTuple):
    """A bound of a metric."""

    metric: str
    sign: str
    bound: float

    def holds(self, metrics: Mapping[str, float | None]) -> bool:
        """Tells if the metric is within the bound; not where it is not known."""
        value = metrics.get(self.metric)
        return value is not None and _SIGNS[self.sign](value, self.bound)


@dataclass(frozen=True)
class Lesson(FromText, Settings):
    """Options that the environment has until a condition holds, in place of the experiment's."""

    metavar: ClassVar[str] = "LESSON"
    expected: ClassVar[str] = 'a lesson, such as "length=4 until episode_return >= 0.9"'

    options: Mapping[str, Any]
    """Options of the environment by name; of a mixture's task, TASK.OPTION."""
    until: str
    """The condition with which the next lesson begins: METRIC >= NUMBER, or with another of <=, >
    and <; several are joined by `and`. Metrics are those of episodes in reports, env_steps and
    updates."""
    episodes: int = 100
    """Episodes of the lesson, of a task's for its metrics, before the condition counts. Means are
    over the last 100."""

    @classmethod
    def read(cls, text: str) -> Self:
        """Gives the lesson of a text; see `expected`.

        Raises:
            ValueError: If the text is none.
        """
        options, until, condition = text.partition(" until ")
        if not until:
            raise ValueError(text)
        flags = [f"--{part.strip()}" for part in options.split(",") if part.strip()]
        try:
            lesson = cls(environment_options(flags), condition.strip())
            lesson.validate("curriculum")
        except UserError as error:
            raise ValueError(text) from error
        return lesson

    def __str__(self) -> str:
        """The text that `read` takes."""
        options = ", ".join(f"{name}={value}" for name, value in self.options.items())
        return f"{options} until {self.until}"

    def validate(self, name: str) -> None:
        """Raises UserError where a setting is out of its limits."""
        good = isinstance(self.options, Mapping)
        expect(good, f"{name}.options", self.options, 'values by name: {"length": 4}')
        good = isinstance(self.until, str) and bool(self.conditions)
        expect(good, f"{name}.until", self.until, _CONDITION)
        expect_number(f"{name}.episodes", self.episodes, 1, 100_000)

    @cached_property
    def conditions(self) -> tuple[Condition, ...]:
        """The conditions that must all hold; none where the text is wrong."""
        found = []
        for part in re.split(r"\band\b", self.until):
            match = re.fullmatch(r"\s*([\w./-]+)\s*(>=|<=|>|<)\s*(\S+)\s*", part)
            try:
                metric, sign, bound = match.groups() if match else ("", "", "")
                found.append(Condition(metric, sign, float(bound)))
            except ValueError:
                return ()
        return tuple(found)


def expect_curriculum(lessons: Any) -> None:
    """Raises UserError where an experiment's curriculum is none."""
    good = isinstance(lessons, tuple | list) and all(isinstance(x, Lesson) for x in lessons)
    expect(
        good, "curriculum", lessons, 'lessons: (Lesson({"length": 4}, "episode_return >= 0.9"),)'
    )
    for number, lesson in enumerate(lessons):
        lesson.validate(f"curriculum[{number}]")
