"""Numbers of a run, keyed by env steps: `metrics.jsonl` and TensorBoard events."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from srl.errors import RunError

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
        from tensorboardX import SummaryWriter

        self._path = folder / FILE
        try:
            if resume_at is not None:
                _forget_after(self._path, resume_at)
            self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            purge = None if resume_at is None else resume_at + 1
            self._events = SummaryWriter(str(folder), purge_step=purge)
        except OSError as error:
            raise _failure(self._path, error) from error

    def write(self, report: Mapping[str, Any]) -> None:
        """Adds one report; its `env_steps` place it on the x-axis."""
        now = time.time()
        values = {name: _plain(value) for name, value in report.items()}
        line = json.dumps({"time": round(now, 3), **values}) + "\n"
        try:
            data = line.encode()
            if os.write(self._file, data) != len(data):
                raise OSError("only a part of the line was written")
            for name, value in values.items():
                if name != "env_steps" and isinstance(value, int | float):
                    self._events.add_scalar(tag(name), value, values["env_steps"], walltime=now)
        except OSError as error:
            raise _failure(self._path, error) from error

    def close(self) -> None:
        """Flushes and closes the files."""
        os.close(self._file)
        self._events.close()


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
    """Every whole line of a run's metrics; a torn last one is left out."""
    lines = []
    for text in (folder / FILE).read_text().splitlines():
        try:
            lines.append(json.loads(text))
        except json.JSONDecodeError:
            break
    return lines


def _forget_after(path: Path, env_steps: int) -> None:
    """Rewrites the file without the lines after `env_steps`, and without a torn one."""
    if not path.exists():
        return
    kept = b""
    for line in path.read_bytes().splitlines(keepends=True):
        try:
            report = json.loads(line)
        except ValueError:
            break
        if not line.endswith(b"\n") or report["env_steps"] > env_steps:
            break
        kept += line
    replacement = path.with_suffix(".tmp")
    replacement.write_bytes(kept)
    os.replace(replacement, path)


def _plain(value: Any) -> Any:
    """A JSON value; what is not finite becomes null."""
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _failure(path: Path, error: OSError) -> RunError:
    return RunError(f"cannot write metrics to {path}: {error.strerror or error}")
