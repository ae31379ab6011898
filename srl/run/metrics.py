"""Numbers of a run, keyed by env steps: `metrics.jsonl`."""

from __future__ import annotations

import json
import logging
import math
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from srl.core.errors import Unwritable
from srl.record.files import is_count, parse_json, write_atomically

logger = logging.getLogger(__name__)

FILE = "metrics.jsonl"
REVERTED_FILE = "metrics.reverted.jsonl"
"""The reports that came after a checkpoint to which the run has returned."""


class MetricsWriter:
    """Appends reports to a run folder.

    Each line reaches the file whole, in one write, before `write` returns.
    """

    def __init__(self, folder: Path, resume_at: int | None = None) -> None:
        """Opens the file.

        Args:
            folder: Holds `metrics.jsonl`.
            resume_at: Reports of more env steps than this move to `metrics.reverted.jsonl`, so
                that the curve goes on where the run does.
        """
        self._path = folder / FILE
        try:
            if resume_at is not None:
                _revert_to(self._path, resume_at)
            self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        except OSError as error:
            raise _failure(self._path, error) from None

    def write(self, report: Mapping[str, Any]) -> dict[str, Any]:
        """Adds one report, whose `env_steps` place it on the x-axis; gives it as JSON has it."""
        values = {name: plain(value) for name, value in report.items()}
        line = json.dumps({"time": round(time.time(), 3), **values}) + "\n"
        try:
            rest = line.encode()
            while rest:  # once, unless the disk is nearly full
                rest = rest[os.write(self._file, rest) :]
        except OSError as error:
            raise _failure(self._path, error) from None
        return values

    def close(self) -> None:
        """Closes the file."""
        os.close(self._file)


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


def newest_first(folder: Path) -> Iterator[dict[str, Any]]:
    """Yields a run's reports from the last to the first, each parsed only when it is asked for."""
    for line in reversed((folder / FILE).read_bytes().split(b"\n")):
        if (report := report_of(line)) is not None:
            yield report


def is_evaluation(report: Mapping[str, Any]) -> bool:
    """Tells if a line reports an evaluation; training may have passed its version since."""
    return "eval/episodes" in report


def report_of(line: bytes) -> dict[str, Any] | None:
    """The report that a line holds; None where it holds none."""
    try:
        report = parse_json(line)
    except ValueError:
        return None
    good = isinstance(report, dict) and is_count(report.get("env_steps"))
    return report if good else None


def _revert_to(path: Path, env_steps: int) -> None:
    """Moves the reports after `env_steps`, and a torn last line, to the file of reverted ones.

    Broken lines before it stay, as they may hold what another program wrote.
    """
    if not path.exists():
        return
    *lines, last = path.read_bytes().split(b"\n")
    if report_of(last) is not None:
        lines.append(last)
        last = b""
    kept, reverted = [], []
    for number, line in enumerate(lines, 1):
        report = report_of(line)
        if report is None:
            logger.warning("%s, line %d is broken and stays as it is: %.40r", path, number, line)
        stays = report is None or report["env_steps"] <= env_steps
        (kept if stays else reverted).append(line + b"\n")
    if last:
        reverted.append(last + b"\n")
    if reverted:
        with path.with_name(REVERTED_FILE).open("ab") as file:
            file.writelines(reverted)
    write_atomically(path, b"".join(kept))


def plain(value: Any) -> Any:
    """A JSON value; what is not finite becomes null."""
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def number(value: Any) -> float:
    """A metric as a number; NaN of any other value, and of one that no float64 can hold."""
    good = isinstance(value, int | float) and not isinstance(value, bool)
    try:
        return float(value) if good else math.nan
    except OverflowError:
        return math.nan


def _failure(path: Path, error: OSError) -> Unwritable:
    return Unwritable(f"cannot write metrics to {path}: {error.strerror or error}")
