"""Lessons of a curriculum: other options of the environment, until a condition on metrics holds.

    experiment = Experiment(..., curriculum=(Lesson({"length": 4}, "episode_return >= 0.9"),))

Importing this loads neither jax nor flax: experiment files do.
"""

from __future__ import annotations

import json
import math
import operator
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar, NamedTuple, Self

from srl.core.errors import UserError, expect
from srl.core.field_types import FromText
from srl.core.settings import Range, Settings, expect_settings
from srl.pools.config import environment_options

_SIGNS = {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt}
COUNTS = ("env_steps", "updates")
"""Metrics that are counts of the run."""
_CONDITION = 'conditions with finite bounds, such as "episode_return >= 0.9 and env_steps >= 1e6"'
_NAME = re.compile(r'\s*([\w.-]+|"(?:[^"\\]|\\.)*")\s*=\s*')  # of an option
_END = re.compile(r"\s*(,|(?<!\S)until\s)")  # of an option's value
_EPISODES = re.compile(r"\s+over\s+(\d+)\s+episodes\s*$")


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
    episodes: Annotated[int, Range(1, 100_000)] = 100
    """Episodes of the lesson, of a task's for its metrics, before the condition counts. Means are
    over the last 100."""

    @classmethod
    def read(cls, text: str) -> Self:
        """Gives the lesson of a text: NAME=VALUE, ... until CONDITION [over NUMBER episodes].

        Values are JSON; one that is not is taken as it stands, up to a comma.

        Raises:
            ValueError: If the text is none.
        """
        try:
            options, until = _read_options(text)
            episodes = _EPISODES.search(until)
            more = {"episodes": int(episodes[1])} if episodes else {}
            lesson = cls(options, _EPISODES.sub("", until).strip(), **more)
            lesson.validate("curriculum")
        except UserError as error:
            raise ValueError(text) from error
        return lesson

    def __str__(self) -> str:
        """The text of which `read` makes an equal lesson, if JSON holds the options."""
        options = ", ".join(
            f"{_name_text(name)}={json.dumps(value, default=str)}"
            for name, value in self.options.items()
        )
        over = "" if self.episodes == Lesson.episodes else f" over {self.episodes} episodes"
        return f"{options} until {self.until}{over}".lstrip()

    def validate(self, name: str) -> None:
        """Raises UserError where a setting is out of its limits."""
        expect_settings(name, self)
        expect(self.conditions, f"{name}.until", self.until, _CONDITION)

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
            if not math.isfinite(found[-1].bound):
                return ()
        return tuple(found)


def _name_text(name: str) -> str:
    """An option's name as `_read_options` takes it: in quotes where it would not stay as it is."""
    plain = re.fullmatch(r"[\w.]+", name) and not name.startswith("env.")
    return name if plain else json.dumps(name)


def _read_options(text: str) -> tuple[dict[str, Any], str]:
    """Gives the options at the beginning of a lesson's text, and the text behind its `until`."""
    options: dict[str, Any] = {}
    texts: list[str] = []  # of values that are no JSON
    end = re.match(r"\s*(until)\s", text)
    at = end.end() if end else 0
    while end is None or end[1] == ",":
        name = _NAME.match(text, at)
        if name is None:
            raise ValueError(text)
        quoted, begin = name[1].startswith('"'), name.end()
        value, end = _json_value(text, begin)
        if end:
            plain = name[1].removeprefix("env.").replace("-", "_")
            options[json.loads(name[1]) if quoted else plain] = value
        else:
            end = _END.search(text, begin)
            if end is None or quoted:
                raise ValueError(text)
            texts.append(f"--{name[1]}={text[begin : end.start()].strip()}")
        at = end.end()
    return {**options, **environment_options(texts)}, text[at:]


def _json_value(text: str, begin: int) -> tuple[Any, re.Match[str] | None]:
    """The value in JSON that begins there, and the match of `_END` behind it; None without one."""
    try:
        value, at = json.JSONDecoder().raw_decode(text, begin)
    except ValueError:
        return None, None
    return value, _END.match(text, at)


def expect_curriculum(lessons: Any) -> None:
    """Raises UserError where an experiment's curriculum is none."""
    good = isinstance(lessons, tuple | list) and all(isinstance(x, Lesson) for x in lessons)
    expect(
        good, "curriculum", lessons, 'lessons: (Lesson({"length": 4}, "episode_return >= 0.9"),)'
    )
    for number, lesson in enumerate(lessons):
        lesson.validate(f"curriculum[{number}]")
