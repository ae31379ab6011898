"""Numbers of a run, keyed by env steps: `metrics.jsonl` and TensorBoard events."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import platform
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from srl.errors import Unwritable
from srl.files import is_count, parse_json, write_atomically

logger = logging.getLogger(__name__)

FILE = "metrics.jsonl"

_TAGS = {
    "episode_return": "charts/episodic_return",
    "episode_length": "charts/episodic_length",
    "fps": "charts/SPS",
    "loss/learning_rate": "charts/learning_rate",
    "staleness_mean": "staleness/mean",
    "staleness_max": "staleness/max",
}


class MetricsWriter:
    """Appends reports to a run folder.

    Each line reaches the file whole, in one write, before `write` returns.
    """

    def __init__(self, folder: Path, resume_at: int | None = None) -> None:
        """Opens the files of `folder`.

        Args:
            folder: Holds `metrics.jsonl` and the TensorBoard events.
            resume_at: Reports of more env steps than this are forgotten, so that the curve goes on
                where the run does.
        """
        self._path = folder / FILE
        try:
            if resume_at is not None:
                _forget_after(self._path, resume_at)
            self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            self._events = _Events(folder, resume_at)
        except OSError as error:
            raise _failure(self._path, error) from None

    def write(self, report: Mapping[str, Any]) -> None:
        """Adds one report; its `env_steps` place it on the x-axis."""
        now = time.time()
        values = {name: plain(value) for name, value in report.items()}
        line = json.dumps({"time": round(now, 3), **values}) + "\n"
        try:
            rest = line.encode()
            while rest:  # once, unless the disk is nearly full
                rest = rest[os.write(self._file, rest) :]
            self._events.write(values, now)
        except OSError as error:
            raise _failure(self._path, error) from None

    def close(self) -> None:
        """Flushes and closes the files."""
        os.close(self._file)
        with contextlib.suppress(OSError):  # on a full disk, which `write` has reported
            self._events.close()


class _Events:
    """A TensorBoard events file, written at once: a full disk is an error, not a lost thread."""

    def __init__(self, folder: Path, resume_at: int | None) -> None:
        from tensorboardX.proto import event_pb2
        from tensorboardX.record_writer import RecordWriter

        part = len(list(folder.glob("events.*")))  # two parts may begin within a second
        name = f"events.out.tfevents.{time.time():.0f}.{platform.node()}.{part}"
        events: Any = event_pb2
        self._event = events.Event
        self._flushed = 0.0
        self._writer = RecordWriter(str(folder / name))
        self._add(wall_time=time.time(), file_version="brain.Event:2")
        if resume_at is not None:  # TensorBoard then forgets what other parts hold from here on
            start = events.SessionLog(status=events.SessionLog.START)
            self._add(wall_time=time.time(), step=resume_at + 1, session_log=start)

    def write(self, values: Mapping[str, Any], now: float) -> None:
        """Adds the numbers of one report."""
        event = self._event(wall_time=now, step=values["env_steps"])
        for name, value in values.items():
            if name != "env_steps" and isinstance(value, int | float):
                event.summary.value.add(tag=tag(name), simple_value=value)
        self._writer.write(event.SerializeToString())
        if now > self._flushed + 1:  # it waits for the disk
            self._flushed = now
            self._writer.flush()

    def _add(self, **fields: Any) -> None:
        self._writer.write(self._event(**fields).SerializeToString())

    def close(self) -> None:
        self._writer.close()


def tag(name: str) -> str:
    """The TensorBoard tag of a metric: CleanRL's where it has one."""
    if name in _TAGS:
        return _TAGS[name]
    first, slash, rest = name.partition("/")
    if first == "loss":
        return f"losses/{rest}"
    if slash and first in _TAGS:  # episode_return/<policy>
        return f"{_TAGS[first]}/{rest}"
    return name if slash else f"charts/{name}"


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """Every report of a run's metrics.

    A torn last line, which may be being written, is left out; so are lines before it that are no
    reports, each with a warning.
    """
    reports, path = [], folder / FILE
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines, 1):
        report = report_of(line)
        if report is not None:
            reports.append(report)
        elif number < len(lines):
            logger.warning("%s, line %d is broken and left out: %.40r", path, number, line)
    return reports


def is_evaluation(report: Mapping[str, Any]) -> bool:
    """Whether a line is of the evaluation of a version, which training may have left behind."""
    return "eval/episodes" in report


def report_of(line: bytes) -> dict[str, Any] | None:
    """The report that a line holds; None where it holds none."""
    try:
        report = parse_json(line)
    except ValueError:
        return None
    good = isinstance(report, dict) and is_count(report.get("env_steps"))
    return report if good else None


def _forget_after(path: Path, env_steps: int) -> None:
    """Rewrites the file without the reports after `env_steps`, and without a torn last line.

    Broken lines before it stay, as they may hold what another program wrote.
    """
    if not path.exists():
        return
    *lines, last = path.read_bytes().split(b"\n")
    if report_of(last) is not None:
        lines.append(last)
    kept = []
    for number, line in enumerate(lines, 1):
        report = report_of(line)
        if report is None:
            logger.warning("%s, line %d is broken and stays as it is: %.40r", path, number, line)
        if report is None or report["env_steps"] <= env_steps:
            kept.append(line + b"\n")
    write_atomically(path, b"".join(kept))


def plain(value: Any) -> Any:
    """A JSON value; what is not finite becomes null."""
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _failure(path: Path, error: OSError) -> Unwritable:
    return Unwritable(f"cannot write metrics to {path}: {error.strerror or error}")
