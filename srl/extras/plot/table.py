"""Curves as a table of comma-separated values."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence

import numpy as np

from srl.extras.plot.curves import Axis, Curve, thinned


def table(panels: Mapping[str, Sequence[Curve]], axis: Axis, rows: int) -> str:
    """Gives CSV: at most `rows` lines for each group, and a column for each metric.

    Metrics of groups with several runs have two more columns, the ends of their band. A field is
    empty where a curve has nothing; numbers have four digits.
    """
    banded = {key for key, curves in panels.items() if any(c.raw is None for c in curves)}
    columns = [
        column
        for key in panels
        for column in ((key, f"{key} low", f"{key} high") if key in banded else (key,))
    ]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["curve", "runs", axis, *columns])
    for label in dict.fromkeys(curve.label for curves in panels.values() for curve in curves):
        own = {key: c for key, curves in panels.items() for c in curves if c.label == label}
        places = thinned(np.unique(np.concatenate([c.x for c in own.values()])), rows)
        numbers = {column: np.full(len(places), math.nan) for column in columns}
        for key, curve in own.items():
            numbers[key] = _at(places, curve, curve.mean)
            if key in banded:
                numbers[f"{key} low"] = _at(places, curve, curve.low)
                numbers[f"{key} high"] = _at(places, curve, curve.high)
        runs = np.nanmax([_at(places, c, c.runs.astype(float)) for c in own.values()], 0)
        for place, x in enumerate(places):
            fields = [_digits(numbers[column][place]) for column in columns]
            writer.writerow([label, f"{runs[place]:.0f}", f"{x:.10g}", *fields])
    return text.getvalue()


def _at(places: np.ndarray, curve: Curve, values: np.ndarray) -> np.ndarray:
    """A curve's values at these places, NaN outside of its extent."""
    return np.interp(places, curve.x, values, left=math.nan, right=math.nan)


def _digits(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.4g}"
