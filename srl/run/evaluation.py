"""A run's side of evaluation: which version is evaluated next, and which is the best."""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from srl.config.evaluation import Evaluation
from srl.core.console.number_text import number_text
from srl.core.errors import RunError, UserError
from srl.loop.training import Training
from srl.record.array_file import copied_leaves
from srl.record.checkpoint import BEST, Checkpoints
from srl.record.run_record import RunFolder
from srl.record.versions import Versions

logger = logging.getLogger(__name__)

_LOOK_SECONDS = 0.2  # between two looks for a result
_KEY = "evaluation"  # of the metrics, in the metadata of the best version


class Evaluated(NamedTuple):
    """A version, and what its evaluation has found."""

    report: dict[str, Any]
    """A line of metrics: the version's counts, and `eval/*`."""
    text: str


@dataclass
class _Offer:
    """The version that is being evaluated."""

    counts: dict[str, int]
    arrays: dict[str, np.ndarray]
    identity: Future[str]


class Evaluations:
    """Offers versions to the process that evaluates them, one at a time, and takes the results.

    Training neither waits for a result nor depends on one, but for its end.
    """

    def __init__(self, settings: Evaluation, run: Path, checkpoints: Checkpoints) -> None:
        """Reads how well the best version did, of a run that goes on.

        Raises:
            Unwritable: If the run's folder cannot be written.
        """
        self._settings, self._checkpoints = settings, checkpoints
        self._versions = Versions(run)
        self._versions.clear()
        self._best = best_value(settings, checkpoints)
        self._offer: _Offer | None = None
        self._thread = ThreadPoolExecutor(1, "evaluations")
        self._next_look, self._films_over = 0.0, False
        self._run = RunFolder(run)
        self._film: Path | None = None  # of the newest version of which there is a result
        self.reached = ""
        """A description of the version that has reached the target; empty before."""
        self.newest = -1
        """The updates of the newest version of which there is a result."""

    def offer(self, trainer: Training, *, urgent: bool = False) -> None:
        """Offers the present version, unless another is being evaluated; returns before the disk.

        Args:
            trainer: Has the version.
            urgent: Whether the run waits for the result: then another is not waited for.
        """
        if (self._offer is not None and not urgent) or self._versions.given_up:
            return
        counts = trainer.learner.progress.counts
        arrays = copied_leaves(trainer.acting_state())
        texts = {name: json.dumps(count) for name, count in counts.items()}
        identity = self._thread.submit(self._versions.offer, arrays, texts, urgent=urgent)
        self._offer = _Offer(counts, arrays, identity)

    def result(self) -> Evaluated | None:
        """Gives a version's evaluation results, once; cheap where there is nothing new.

        Raises:
            Unwritable: If the version could not be offered.
        """
        now, offer = time.monotonic(), self._offer
        if offer is None or now < self._next_look or not offer.identity.done():
            return None
        self._next_look = now + _LOOK_SECONDS
        metrics = self._versions.result(offer.identity.result())
        if metrics is None:
            return None
        self._offer, self.newest = None, offer.counts["updates"]
        self._film = self._run.film(offer.counts["env_steps"])
        value = metrics.get(f"eval/{self._settings.metric}")
        best = value is not None and (self._best is None or value > self._best)
        if best:
            self._best = value
            self._checkpoints.save_best(
                offer.arrays, {**offer.counts, "time": time.time(), _KEY: metrics}
            )
        if value is not None and met(self._settings, value):
            self.reached = reached_text(self._settings, self.newest, value)
        report = {**offer.counts, "policy_version": self.newest, **metrics}
        text = _text(offer.counts, metrics, best, f"eval/{self._settings.metric}")
        return Evaluated(report, text + self._about_films())

    def _about_films(self) -> str:
        """Why versions are not filmed any more, once."""
        if self._films_over or not (reason := self._versions.no_films()):
            return ""
        self._films_over = True
        return f"; versions are not filmed any more: {reason}"

    def about_end(self) -> str:
        """Gives a note for the end of the run: that versions were not evaluated, or not filmed."""
        if self.given_up:
            log = self._run.path / "logs" / "evaluator.log"
            target = (
                "" if self._settings.target is None else ", so its target could not end the run"
            )
            return f"the last versions were not evaluated{target}; {log} has the reason"
        if not self._settings.video or self._films_over or not self._film or self._film.exists():
            return ""
        return (
            f"version {self.newest:,} was not filmed, as a run does not wait for films; "
            f"`srl eval {self._run.path} --video` can do so"
        )

    @property
    def given_up(self) -> bool:
        """True if no version is evaluated any more."""
        return self._versions.given_up

    def close(self) -> None:
        """Waits until the last offer is written."""
        self._thread.shutdown()


def met(settings: Evaluation, value: float | None) -> bool:
    """Tells if a version's metric reaches the target."""
    return value is not None and settings.target is not None and value >= settings.target


def best_value(settings: Evaluation, checkpoints: Checkpoints) -> float | None:
    """The metric of the best version of a run so far; None where there is none."""
    with contextlib.suppress(UserError, RunError):
        metrics = checkpoints.metadata(BEST).get(_KEY)
        value = metrics.get(f"eval/{settings.metric}") if isinstance(metrics, dict) else None
        return float(value) if isinstance(value, int | float) else None
    return None


def target_reached(settings: Evaluation | None, checkpoints: Checkpoints) -> str:
    """Describes the version that has reached a run's target; empty if none has."""
    if settings is None or not met(settings, value := best_value(settings, checkpoints)):
        return ""
    assert value is not None
    return reached_text(settings, checkpoints.metadata(BEST).get("updates"), value)


def reached_text(settings: Evaluation, version: Any, value: float) -> str:
    """The text about a version that has reached the target."""
    assert settings.target is not None
    return (
        f"version {version} has reached the target: its eval/{settings.metric} is "
        f"{number_text(value)}, and evaluation.target {number_text(settings.target)}"
    )


def _text(counts: Mapping[str, int], metrics: Mapping[str, Any], best: bool, chosen: str) -> str:
    shown = [
        f"{name.removeprefix('eval/')} {number_text(value)}"
        for name, value in metrics.items()
        if value is not None
        and not name.endswith(("eval/episodes", "/return_error", "/return_std"))
        if name == chosen or not name.startswith("eval/env/")
    ]
    best_so_far = "; the best so far" if best else ""
    return f"evaluated version {counts['updates']:,}: {', '.join(shown)}{best_so_far}"
