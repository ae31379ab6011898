"""Numbers of an episode that environments in Python report in their infos.

An environment names them in its `metadata["metrics"]`, or the option `metrics` does; `is_success`
needs no name. Each stands in the info of the episode's last step, or in the dict
`info["episode_extra_stats"]` there. They are `Specs.statistics`, so `env/NAME` in a run's metrics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from srl.pools.python.own_options import names_in
from srl.pools.python.simulator import InvalidOutput, mentions

SUCCESS = "is_success"
"""The usual name of a flag: the episode has reached its goal."""
EXTRA = "episode_extra_stats"
"""The usual name of a dict of further numbers."""
DECLARED = "metrics"
"""The key of an environment's metadata with the names."""


def metric_names(env: Any, chosen: Sequence[str], name: str) -> tuple[str, ...]:
    """The numbers that an environment reports.

    Args:
        env: Its modules are searched for the word `is_success`.
        chosen: Further names, of the option.
        name: Messages call the environment so.

    Raises:
        UserError: If its metadata has no list of names.
    """
    metadata = getattr(env, "metadata", None) or {}
    declared = metadata.get(DECLARED, ()) if isinstance(metadata, Mapping) else ()
    names = [*names_in(f"{name}: metadata[{DECLARED!r}]", declared), *chosen]
    if mentions(env, SUCCESS):
        names.append(SUCCESS)
    return tuple(dict.fromkeys(names))


def metric_values(info: Any, names: Sequence[str]) -> list[float]:
    """The numbers in an info; NaN for those that it does not have.

    Raises:
        InvalidOutput: If one is no number.
    """
    if not info:
        return [np.nan] * len(names)
    extra = info.get(EXTRA)
    more = extra if isinstance(extra, Mapping) else {}
    return [_number(name, info.get(name, more.get(name))) for name in names]


def vector_metrics(info: Mapping[str, Any], names: Sequence[str], count: int) -> np.ndarray:
    """The same of the infos of a vector environment: float32 [count, len(names)].

    Raises:
        InvalidOutput: If one is no number.
    """
    values = np.full((count, len(names)), np.nan, np.float32)
    extra = info.get(EXTRA)
    places = [info, extra] if isinstance(extra, Mapping) else [info]
    for k, name in enumerate(names):
        place = next((place for place in places if name in place), None)
        if place is not None:
            there = np.asarray(place.get(f"_{name}", np.ones(count, bool)), bool)
            for env in np.flatnonzero(there):
                values[env, k] = _number(name, place[name][env])
    return values


def _number(name: str, value: Any) -> float:
    if value is None:
        return np.nan
    if hasattr(value, "detach"):  # a tensor of PyTorch
        value = value.detach().cpu()
    array = np.asarray(value)
    if array.size != 1 or array.dtype.kind not in "biuf":
        raise InvalidOutput(f"gave the metric {name!r} as {value!r:.60}; expected one number")
    number = float(array.reshape(()))
    return number if np.isfinite(number) else np.nan
