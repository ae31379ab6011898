"""The interface of a tracker."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from srl.config.tracking import Tracking
from srl.core.errors import UserError
from srl.core.optional_packages import install_command


@dataclass(frozen=True)
class TrackedRun:
    """The run that a tracker is to begin with, or to go on with."""

    folder: Path
    config: Mapping[str, Any]
    """The contents of `config.json`."""
    settings: Tracking
    resumed_at: int | None
    """The env steps that a resumed run goes on from; None for a new one."""
    id: str | None
    """The tracker's name of the run; None for a new run."""


class Started(NamedTuple):
    """A run that a tracker has begun with."""

    id: str | None = None
    """The tracker's name of the run, to go on with it after a resume."""
    where: str = ""
    """The place to look at it, in a line; empty if no line is needed."""


_LARGEST = 1e300  # of a value in a histogram, so that no range of values is infinite
_LEAST, _LEAST_SHARE = 1e-300, 1e-9  # of a range of values, and of it relative to the values


class Histogram(NamedTuple):
    """The distribution of values over B bins."""

    counts: np.ndarray  # int64 [B]
    edges: np.ndarray  # float64 [B + 1], rising

    @staticmethod
    def of(values: np.ndarray, bins: int = 64) -> Histogram:
        """Makes the histogram of the finite ones of some values, of any shape."""
        values = np.asarray(values, np.float64).ravel()
        values = values[np.abs(values) <= _LARGEST]
        low, high = (values.min(), values.max()) if values.size else (0.0, 1.0)
        least = max(_LEAST, _LEAST_SHARE * max(-low, high))
        if high - low < least:  # NumPy refuses bins narrower than float64 can tell apart
            low, high = low - max(0.5, least), high + max(0.5, least)
        return Histogram(*np.histogram(values, bins, (low, high)))


class Tracker(Protocol):
    """Keeps what a run reports, and shows it elsewhere.

    All calls come from one thread, `start` first and `end` last. Any of them may raise or take
    long: the run goes on meanwhile. The constructor raises UserError where a library is missing,
    and does nothing else.
    """

    def start(self, run: TrackedRun) -> Started:
        """Begins with a run, or goes on with it; without this there are no further calls."""
        ...

    def metrics(self, values: Mapping[str, float], env_steps: int) -> None:
        """Takes the numbers of a report, by their names in `metrics.jsonl`."""
        ...

    def histogram(self, name: str, histogram: Histogram, env_steps: int) -> None:
        """Takes a histogram; one that cannot show it leaves it out."""
        ...

    def video(self, file: Path, env_steps: int) -> None:
        """Takes a film, an .mp4 file; one that cannot show it leaves it out."""
        ...

    def end(self, code: int) -> None:
        """The run has ended with this exit code: 0 done, 1 failed, 130 interrupted."""
        ...


def expect_library(tracker: str, module: str) -> None:
    """Raises UserError unless the library of a tracker, an extra of srl's, is installed."""
    if importlib.util.find_spec(module) is None:
        raise UserError(
            f"the tracker {tracker} needs the Python module {module}, which is not installed here: "
            f"{install_command(tracker)}"
        )


_TAGS = {
    "episode_return": "charts/episodic_return",
    "episode_length": "charts/episodic_length",
    "fps": "charts/SPS",
    "loss/learning_rate": "charts/learning_rate",
    "staleness_mean": "staleness/mean",
    "staleness_max": "staleness/max",
}


def tag(name: str) -> str:
    """The tag of a metric in TensorBoard and other trackers: CleanRL's where it has one."""
    if name in _TAGS:
        return _TAGS[name]
    first, slash, rest = name.partition("/")
    if first == "loss":
        return f"losses/{rest}"
    if slash and first in _TAGS:  # episode_return/<policy>
        return f"{_TAGS[first]}/{rest}"
    return name if slash else f"charts/{name}"


def without_password(text: str) -> str:
    """The text, without the users and passwords of addresses such as http://user:word@host."""
    return re.sub(r"//[^/\s@]*@", "//", text)
