"""Means over a gate's runs, and their confidence intervals."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

_RESAMPLES = 10_000


class Summary(NamedTuple):
    """The returns of runs that differ in nothing but the seed."""

    mean: float
    iqm: float
    """The interquartile mean: the mean without the lowest and the highest quarter."""
    low: float
    """The ends of the 95 % bootstrap interval of the interquartile mean; NaN for a single run."""
    high: float


def summary(returns: list[float]) -> Summary:
    """Summarises at least one return, as Agarwal et al. (2021, arXiv:2108.13264) recommend."""
    from scipy import stats

    values = np.array(returns)
    low = high = np.nan
    if len(values) > 1:
        found = stats.bootstrap(
            (values,),
            lambda x, axis: stats.trim_mean(x, 0.25, axis),
            n_resamples=_RESAMPLES,
            method="percentile",
            rng=0,
        )
        low, high = found.confidence_interval
    return Summary(values.mean(), stats.trim_mean(values, 0.25), low, high)
