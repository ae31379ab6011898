"""The course of a curriculum: the present lesson, which metrics decide."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

import numpy as np

from srl.config.curriculum import COUNTS, Lesson
from srl.core.errors import UserError

logger = logging.getLogger(__name__)
_EPISODES = "episodes"


class Curriculum:
    """The present lesson of a run, by the metrics of its episodes."""

    def __init__(self, lessons: Sequence[Lesson], metrics: Mapping[str, float | None]) -> None:
        """Begins with the first lesson.

        Args:
            lessons: All but the last, which has the experiment's own options and no end.
            metrics: Those that there are, by name.

        Raises:
            UserError: If a condition names another metric.
        """
        self._lessons, self.lesson = tuple(lessons), 0
        self._counted = sorted(n for n in metrics if n.partition("/")[0] == _EPISODES)
        self._before = dict.fromkeys(self._counted, 0)  # episodes of earlier lessons
        known = {*metrics, *COUNTS}
        for number, lesson in enumerate(self._lessons):
            for condition in lesson.conditions:
                if condition.metric not in known:
                    raise UserError(
                        f"curriculum[{number}].until names {condition.metric}; metrics are "
                        f"{', '.join(sorted(known))}"
                    )

    def advance(self, metrics: Mapping[str, float | int | None]) -> bool:
        """Begins the next lesson if the present one's condition holds; tells if it does so."""
        if self.lesson == len(self._lessons):
            return False
        lesson = self._lessons[self.lesson]
        for condition in lesson.conditions:
            counted = condition.metric not in COUNTS
            if counted and self._episodes(condition.metric, metrics) < lesson.episodes:
                return False
            if not condition.holds(metrics):
                return False
        self.lesson += 1
        self._before = {name: int(metrics[name] or 0) for name in self._counted}
        count = len(self._lessons) + 1
        logger.info("lesson %d of %d begins: %s", self.lesson + 1, count, lesson.until)
        return True

    def _episodes(self, metric: str, metrics: Mapping[str, float | int | None]) -> int:
        """Episodes of the lesson that a metric is of: of its task, where it is a task's."""
        own = f"{_EPISODES}/{metric.rpartition('/')[2]}"
        name = own if own in self._before else _EPISODES
        return int(metrics[name] or 0) - self._before[name]

    def state(self) -> dict[str, np.ndarray]:
        """Gives what `restore` needs."""
        before = [self._before[name] for name in self._counted]
        return {"lesson": np.array(self.lesson), "before": np.array(before, np.int64)}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Goes on from a saved state."""
        self.lesson = min(int(state["lesson"]), len(self._lessons))
        self._before = dict(zip(self._counted, map(int, state["before"]), strict=True))
