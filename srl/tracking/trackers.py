"""All trackers of a run, each in a thread of its own."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from srl.config.tracking import Tracking
from srl.core.errors import described
from srl.record.files import UNFINISHED, read_object, write_atomically
from srl.record.run_record import RunFolder, films
from srl.tracking.mlflow import MLflow
from srl.tracking.prometheus import Prometheus
from srl.tracking.tensorboard import TensorBoard
from srl.tracking.tracker import Histogram, TrackedRun, Tracker, without_password
from srl.tracking.wandb import WandB

logger = logging.getLogger(__name__)

IDS_FILE = "trackers.json"
"""The file of the run's folder with what trackers call the run."""
_KINDS: Mapping[str, Callable[[], Tracker]] = {
    "tensorboard": TensorBoard,
    "wandb": WandB,
    "mlflow": MLflow,
    "prometheus": Prometheus,
}
_MOST_WAITING = 10_000  # calls of a tracker that does not answer
_END_SECONDS = 60.0  # for what is still to be sent
_JOIN_SECONDS = 0.2
_LONGEST = 300  # characters of an error


class Trackers:
    """TensorBoard, and the trackers that were asked for.

    None of them holds up the run or ends it: each has a thread, in which its calls wait for their
    turn, and what goes wrong there is shown in a line.
    """

    def __init__(self, names: Sequence[str], settings: Tracking) -> None:
        """Starts nothing yet; raises UserError where the library of one is missing."""
        self._settings = settings
        self._lines: SimpleQueue[str] = SimpleQueue()
        self._ids = threading.Lock()
        kinds = {name: _KINDS[name] for name in ("tensorboard", *names)}
        self._lanes = [_Lane(name, kind(), self._lines.put) for name, kind in kinds.items()]
        self._say: Callable[[str], None] = lambda text: None
        self._films: set[tuple[Path, int]] = set()

    def start(
        self,
        folder: Path,
        config: Mapping[str, Any],
        resumed_at: int | None,
        say: Callable[[str], None],
    ) -> None:
        """Begins with a run, or goes on with it.

        Args:
            folder: The run's.
            config: What its `config.json` holds.
            resumed_at: The env steps that a resumed run goes on from; None for a new one.
            say: Shows a line; called by the thread that calls the methods here.
        """
        self._say, self._folder = say, folder
        self._films = {*self._finished_films()}  # of the time before a resume
        known = self._read_ids() if resumed_at is not None else {}
        for lane in self._lanes:
            name = lane.name
            run = TrackedRun(folder, config, self._settings, resumed_at, known.get(name))
            lane.start(run, partial(self._keep_id, name))

    def report(self, report: Mapping[str, Any]) -> None:
        """Hands a line of metrics to all trackers, and films that have been made since the last."""
        step = report["env_steps"]
        kinds = int | float
        values = {k: float(v) for k, v in report.items() if isinstance(v, kinds) and k != "time"}
        for lane in self._lanes:
            lane.call(lane.tracker.metrics, values, step)
        self._new_films(step)
        self._show_lines()

    def histograms(self, histograms: Mapping[str, Histogram], env_steps: int) -> None:
        """Hands histograms to all trackers."""
        for lane in self._lanes:
            for name, histogram in histograms.items():
                lane.call(lane.tracker.histogram, name, histogram, env_steps)

    def end(self, code: int, env_steps: int, alive: Callable[[], None]) -> None:
        """Lets all trackers end, as far as they do within a minute; calls `alive` meanwhile."""
        self._new_films(env_steps)
        for lane in self._lanes:
            lane.end(code)
        deadline = time.monotonic() + _END_SECONDS
        while any(lane.busy for lane in self._lanes) and time.monotonic() < deadline:
            alive()
            for lane in self._lanes:
                lane.wait(_JOIN_SECONDS)
        for lane in self._lanes:
            if lane.busy:
                self._lines.put(
                    f"{lane.name} has not ended within {_END_SECONDS:.0f} s: it may lack what the "
                    "run reported last"
                )
        self._show_lines()

    def _new_films(self, env_steps: int) -> None:
        new = [film for film in self._finished_films() if film not in self._films]
        made_at = films(RunFolder(self._folder)) if new else {}
        for film in new:
            self._films.add(film)
            for lane in self._lanes:
                lane.call(lane.tracker.video, film[0], made_at.get(film[0], env_steps))

    def _finished_films(self) -> list[tuple[Path, int]]:
        """The films in the run's folder, with when they were made."""
        found: list[tuple[Path, int]] = []
        for file in sorted((self._folder / "videos").glob("*.mp4")):
            with suppress(FileNotFoundError):  # the evaluator removes old ones
                if not file.name.startswith(UNFINISHED):
                    found.append((file, file.stat().st_mtime_ns))
        return found

    def _show_lines(self) -> None:
        while not self._lines.empty():
            self._say(self._lines.get())

    def _read_ids(self) -> dict[str, str]:
        ids = read_object(self._folder / IDS_FILE)
        return {name: own for name, own in ids.items() if isinstance(own, str)}

    def _keep_id(self, name: str, run_id: str) -> None:
        with self._ids:
            ids = self._read_ids() | {name: run_id}
            write_atomically(self._folder / IDS_FILE, (json.dumps(ids) + "\n").encode())


class _Lane:
    """A tracker in a thread of its own."""

    def __init__(self, name: str, tracker: Tracker, show: Callable[[str], None]) -> None:
        self.name, self.tracker, self._show = name, tracker, show
        self._calls: SimpleQueue[Callable[[], Any] | None] = SimpleQueue()
        self._open, self._reported = True, set[str]()

    def start(self, run: TrackedRun, keep_id: Callable[[str], None]) -> None:
        """Begins with a run; `keep_id` takes what the tracker calls it."""
        # A daemon: a tracker that hangs is left behind.
        name = f"tracker {self.name}"
        args = (run, keep_id)
        self._thread = threading.Thread(target=self._run, args=args, name=name, daemon=True)
        self._thread.start()

    def call(self, function: Callable[..., Any], *args: Any) -> None:
        """Lets the thread call a method of the tracker, when those before have been."""
        if self._open and self._calls.qsize() < _MOST_WAITING:
            self._calls.put(partial(function, *args))
        elif self._open:
            self._report("late", "does not answer; what is reported meanwhile is left out there")

    def end(self, code: int) -> None:
        self._calls.put(partial(self.tracker.end, code))
        self._calls.put(None)

    @property
    def busy(self) -> bool:
        return self._thread.is_alive()

    def wait(self, seconds: float) -> None:
        self._thread.join(seconds)

    def _run(self, run: TrackedRun, keep_id: Callable[[str], None]) -> None:
        try:
            run_id, where = self.tracker.start(run)
            if run_id is not None:
                keep_id(run_id)
        except Exception as error:
            self._open = False
            return self._report("start", f"cannot begin, and the run goes on without: {_of(error)}")
        if where:
            self._show(f"{self.name:<12} {where}")
        while (call := self._calls.get()) is not None:
            try:
                call()
            except Exception as error:
                self._report("call", f"lacks what was reported just now: {_of(error)}")
        return None

    def _report(self, kind: str, text: str) -> None:
        """Shows a failure; further ones of its kind are for the log alone."""
        if kind in self._reported:
            return logger.info("the tracker %s %s", self.name, text)
        self._reported.add(kind)
        return self._show(f"the tracker {self.name} {text}")


def _of(error: Exception) -> str:
    """An error in a line, without a password that an address in it may hold."""
    text = " ".join(described(error).split())
    return without_password(text)[:_LONGEST]
