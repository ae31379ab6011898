"""Mean curves over runs, with confidence bands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from srl.extras.plot.runs import Group, Run

Axis = Literal["env_steps", "updates", "hours"]

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Curve:
    """One metric of one group at P places; arrays are float64 [P] unless noted otherwise."""

    label: str
    key: str
    x: np.ndarray
    mean: np.ndarray
    """The mean over the runs that have got this far."""
    low: np.ndarray
    """Lower end of the 95 % confidence interval of the mean; NaN where there is one run."""
    high: np.ndarray
    runs: np.ndarray
    """The number of runs that have got this far, int [P]."""
    spread: tuple[float, float]
    """The least and the greatest value of any run, after smoothing."""
    raw: tuple[np.ndarray, np.ndarray] | None
    """x and value before smoothing, [Q] each, of a group with one run."""

    @property
    def whole(self) -> np.ndarray:
        """True at points where all runs of the group are in the mean, bool [P]."""
        return self.runs == self.runs.max(initial=0)


def curve(group: Group, key: str, axis: Axis, points: int, smooth: float) -> Curve | None:
    """The curve of a metric, or None where no run of the group has it.

    Each run is smoothed by itself and read at common places: where the runs reported, thinned to
    `points`. The mean is over the runs that have got so far; the band is the interval of Student's
    t with n - 1 degrees of freedom around it, mean ± t(0.975, n - 1) s / sqrt(n), for n runs with
    the standard deviation s. One run has no band; its reports are kept unsmoothed beside it.

    Args:
        group: Runs that differ in their seeds.
        key: Of the metric.
        axis: What the curve is drawn against.
        points: At most so many places.
        smooth: Width of the window, as a share of the run's extent: a report becomes the mean of
            all that lie within half of it to either side, fewer at the ends. 0 smooths nothing.
    """
    series = [s for run in group.runs if len((s := _series(run, key, axis))[0])]
    if not series:
        return None
    places = thinned(np.unique(np.concatenate([x for x, _ in series])), points)
    values = np.stack(
        [np.interp(places, x, smoothed(x, y, smooth), left=np.nan, right=np.nan) for x, y in series]
    )
    places, values = places[known := ~np.isnan(values).all(0)], values[:, known]
    count = (~np.isnan(values)).sum(0)
    mean = np.nanmean(values, 0)
    half = _half_width(values, mean, count)
    spread = float(np.nanmin(values)), float(np.nanmax(values))
    raw = None
    if len(series) == 1:
        x, y = series[0]
        chosen = thinned(np.arange(len(x)), points)
        raw = (x[chosen], y[chosen])
    return Curve(group.label, key, places, mean, mean - half, mean + half, count, spread, raw)


def smoothed(x: np.ndarray, y: np.ndarray, width: float) -> np.ndarray:
    """The mean of all values within half of `width` of the extent of x to either side, [R].

    The window shrinks evenly towards both ends, so that a slope is not bent there.
    """
    if width <= 0 or len(x) < 3:
        return y
    half = width * (x[-1] - x[0]) / 2
    half = np.minimum(half, np.minimum(x - x[0], x[-1] - x)) * (1 + 1e-9)
    sums = np.concatenate([[0.0], np.cumsum(y)])
    first, last = np.searchsorted(x, x - half, "left"), np.searchsorted(x, x + half, "right")
    return (sums[last] - sums[first]) / (last - first)


def thinned(values: np.ndarray, points: int) -> np.ndarray:
    """Gives at most so many of the values, evenly by position, with the first and the last."""
    if len(values) <= points:
        return values
    return values[np.round(np.linspace(0, len(values) - 1, points)).astype(int)]


def _series(run: Run, key: str, axis: Axis) -> tuple[np.ndarray, np.ndarray]:
    """The reports that have the metric, in rising order of x."""
    x, y = run.hours() if axis == "hours" else run.values(axis), run.values(key)
    known = np.isfinite(x) & np.isfinite(y)
    x, first = np.unique(x[known], return_index=True)
    return x, y[known][first]


def _half_width(values: np.ndarray, mean: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Half of the confidence interval, NaN for one run."""
    from scipy.special import stdtrit

    several = count > 1
    freedom = np.where(several, count - 1, 1)
    variance = np.nansum((values - mean) ** 2, 0) / freedom
    quantile = stdtrit(freedom, (1 + CONFIDENCE) / 2)
    return np.where(several, quantile * np.sqrt(variance / count), np.nan)


def keys_of(groups: Sequence[Group]) -> list[str]:
    """All metrics that some run has as a number, in the order in which runs report them."""
    runs = [run for group in groups for run in group.runs]
    keys = dict.fromkeys(key for run in runs for report in run.reports for key in report)
    return [key for key in keys if any(np.isfinite(run.values(key)).any() for run in runs)]


def unchanging(groups: Sequence[Group], key: str) -> float | None:
    """The value of a metric that is the same in all reports of all runs."""
    values = np.concatenate([run.values(key) for group in groups for run in group.runs])
    values = np.unique(values[~np.isnan(values)])
    return float(values[0]) if len(values) == 1 else None
