"""Hooks: functions of the user that are called during a run, and their effects.

They are called in the process of `srl run` or `srl.train`. The run waits for them between two
updates, so that a change reaches all learners at the same update.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from srl.config.experiment import HOOKS, Experiment
from srl.core.errors import RunError, UserError, expect_number, nearest

logger = logging.getLogger(__name__)


class Answer(NamedTuple):
    """A hook's wishes for the run."""

    stop: bool = False
    settings: Mapping[str, float] = {}
    """Adjustable settings to change."""


Happened = Sequence[tuple[str, Mapping[str, Any]]]
"""Events in order, each with its numbers."""


class Asking(NamedTuple):
    """The trainer's access to the hooks, in any process."""

    kinds: tuple[str, ...]
    """The events at which to ask."""
    ask: Callable[[Happened, Mapping[str, float]], Answer]
    """Takes what has happened, and the settings; gives what the hooks want."""


NO_HOOKS = Asking((), lambda *_: Answer())


class Event:
    """An event of a run, as its hooks receive it."""

    def __init__(
        self,
        kind: str,
        path: Path,
        metrics: Mapping[str, Any],
        settings: Mapping[str, float],
        limits: Mapping[str, tuple[float, ...]],
    ) -> None:
        """Takes what there is to know; `limits` are those of the algorithm's settings."""
        self.kind = kind
        """The name of the event: report, checkpoint or evaluation."""
        self.path = path
        """The run's folder."""
        self.metrics = metrics
        """The line of metrics of a report or an evaluation; the counts of a checkpoint:
        env_steps, agent_steps and updates."""
        self.settings = settings
        """The algorithm's adjustable settings, as they are now."""
        self._limits = limits
        self._stop, self._changed = False, dict[str, float]()

    def stop(self) -> None:
        """Ends the run now, after a checkpoint; it has not failed, and can be resumed."""
        self._stop = True

    def change(self, **settings: float) -> None:
        """Changes adjustable settings from the next update on; checkpoints keep the change.

        Raises:
            UserError: If there is no such setting that can change, or its value is out of limits.
        """
        for name, value in settings.items():
            if name not in self.settings:
                hint = nearest(name, self.settings or ("none",))
                raise UserError(f"{name} cannot change while the run goes; {hint}")
            expect_number(name, value, *map(float, self._limits.get(name, (-math.inf,))))
            self._changed[name] = float(value)
        self.settings = {**self.settings, **self._changed}

    @property
    def answer(self) -> Answer:
        """The hook's wishes."""
        return Answer(self._stop, self._changed)


class Hooks:
    """Calls the hooks of an experiment."""

    def __init__(self, experiment: Experiment, folder: Path) -> None:
        given = {kind: getattr(experiment, name) for kind, name in HOOKS.items()}
        self._functions: dict[str, Any] = {k: f for k, f in given.items() if f is not None}
        self._folder, self._limits = folder, experiment.algorithm.limits
        self.failure: RunError | None = None
        """The error of a hook, which ends the run after a checkpoint."""
        self.stopped = False

    @property
    def asking(self) -> Asking:
        """Access to the hooks for a trainer in the same process."""
        return Asking(tuple(self._functions), self.call)

    def call(self, happened: Happened, settings: Mapping[str, float]) -> Answer:
        """Calls the hooks for what has happened; one that raises ends the run."""
        stop, changed = False, dict[str, float]()
        for kind, metrics in happened:
            answer = self._call(kind, metrics, {**settings, **changed})
            stop, changed = stop or answer.stop, {**changed, **answer.settings}
        self.stopped = self.stopped or stop
        return Answer(stop, changed)

    def _call(self, kind: str, metrics: Mapping[str, Any], settings: Mapping[str, float]) -> Answer:
        if kind not in self._functions:
            return Answer()
        event = Event(kind, self._folder, metrics, settings, self._limits)
        try:
            self._functions[kind](event)
        except (Exception, SystemExit) as error:
            text = f"the hook {HOOKS[kind]} raised {type(error).__name__}: {error}"
            self.failure = RunError(text)
            self.failure.__cause__ = error
            return Answer(stop=True)
        if event.answer.settings:
            logger.info("%s changes %s", HOOKS[kind], dict(event.answer.settings))
        return event.answer
