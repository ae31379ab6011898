"""Runs as their folders record them, and groups of runs that differ in nothing but the seed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np

from srl.core.config_values import flat_values
from srl.core.console.number_text import number_text
from srl.core.errors import UserError
from srl.record.run_record import RunFolder, read_config
from srl.run.metrics import number, read_metrics
from srl.tracking.benchmark_keys import benchmark_keys

logger = logging.getLogger(__name__)

_TRACKING = ("tags", "trackers", "tracking.*")  # change nothing that is learned

Settings = Mapping[str, Any]
"""Values of an experiment by dotted names: algorithm.learning_rate."""


@dataclass(frozen=True)
class Run:
    """The contents of one run's folder."""

    path: Path
    env: Any
    """The environment, as the configuration has it: an id, or a dict with its type."""
    seed: int
    keys: Mapping[str, str]
    """The keys of Open RL Benchmark but the seed."""
    settings: Settings
    """All but the seed, what describes how the run is tracked, and what was to be ignored."""
    reports: Sequence[Mapping[str, Any]]
    """The lines of its metrics; at least one."""

    def values(self, key: str) -> np.ndarray:
        """A metric, float64 [reports]; NaN where it is missing or no number."""
        return np.array([number(report.get(key)) for report in self.reports])

    def hours(self) -> np.ndarray:
        """Hours of training at each report, float64 [reports].

        Added up from env steps and fps, so that the time between a stop and a resume is left out.
        """
        steps, fps = self.values("env_steps"), self.values("fps")
        timed = ~np.isnan(fps)  # not the lines of evaluations, of versions before
        if not timed.any():
            return np.zeros_like(steps)
        new, fps = np.diff(steps[timed], prepend=0.0), fps[timed]
        seconds = np.divide(new, fps, out=np.zeros_like(new), where=fps > 0)
        return np.interp(steps, steps[timed], np.cumsum(seconds)) / 3600


@dataclass(frozen=True)
class Group:
    """Runs with the same settings."""

    label: str
    """The experiment's name, and the settings that other groups of this name do not have."""
    runs: Sequence[Run]


def read_groups(
    paths: Iterable[Path], ignore: Sequence[str] = (), by: Sequence[str] = ()
) -> list[Group]:
    """Reads runs, and puts those together that differ in nothing but the seed.

    Args:
        paths: Folders of runs, or of several runs, such as `runs/<name>`: all of them are meant.
        ignore: Patterns of further settings in which runs of a group may differ.
        by: The settings, or keys of Open RL Benchmark, in which runs of a group are the same,
            whatever the others are; all settings by default.

    Raises:
        UserError: If one is no run's folder, no run has reported yet, or none has a setting.
    """
    found = [_read_all(path, ignore) for path in paths]
    read = {run.path: run for part in found for run in part}
    runs = [run for run in read.values() if run.reports]
    silent = [str(run.path) for run in read.values() if not run.reports]
    if not runs:
        where = ", ".join(silent or map(str, paths))
        raise UserError(
            f"there are no metrics yet in {where}; a run reports for the first time after "
            "report_every updates"
        )
    if silent:
        logger.warning("left out, as there are no metrics yet: %s", ", ".join(silent))
    if by:
        runs = _with_alone(runs, by)
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(repr(sorted(run.settings.items())), []).append(run)
    for members in groups.values():
        _warn_of_copies(members)
    settings = [members[0].settings for members in groups.values()]
    names = [", ".join(map(_value, own.values())) for own in settings] if by else labels(settings)
    return [Group(name, members) for name, members in zip(names, groups.values(), strict=True)]


def _with_alone(runs: Sequence[Run], keys: Sequence[str]) -> list[Run]:
    """The runs, with these of their settings and keys of Open RL Benchmark in place of all."""
    known = dict.fromkeys(key for run in runs for key in (*run.keys, *run.settings))
    for key in keys:
        if key not in known:
            raise UserError(f"--by {key}: no run has such a key; there are {', '.join(known)}")
    return [
        replace(run, settings={key: run.keys.get(key, run.settings.get(key)) for key in keys})
        for run in runs
    ]


def labels(settings: Sequence[Settings]) -> list[str]:
    """Short names that distinguish groups: the experiment's, and the settings in which they differ.

    Only groups of the same name are distinguished by settings. Where a part is of another type or
    has another name, such as another plan, its further settings are left out if they can be.
    """
    names = [str(group.get("name")) for group in settings]
    labels = list(names)
    for name in dict.fromkeys(names):
        places = [place for place, other in enumerate(names) if other == name]
        members = [settings[place] for place in places]
        differing = _differing(members)
        few = [key for key in differing if not _follows(key, differing)]
        texts = _settings_texts(members, few)
        if len(set(texts)) < len(texts):
            texts = _settings_texts(members, differing)
        if len(set(texts)) < len(texts):
            texts = _settings_texts(members, differing, repr)
        for place, text in zip(places, texts, strict=True):
            labels[place] = ", ".join(filter(None, (name, text)))
    return labels


def _differing(settings: Sequence[Settings]) -> list[str]:
    """The settings that are not the same in all groups, in the order of the configuration."""
    keys = dict.fromkeys(key for group in settings for key in group)
    return [key for key in keys if len({repr(group.get(key)) for group in settings}) > 1]


def _follows(key: str, differing: Sequence[str]) -> bool:
    """Tells if a part that the setting belongs to differs in its type or name."""
    parts = key.split(".")
    heads = (".".join(parts[:depth]) for depth in range(1, len(parts)))
    whole = [f"{head}.{what}" for head in heads for what in ("type", "name")]
    return any(head in differing and head != key for head in whole)


def _value(value: Any) -> str:
    if isinstance(value, float):
        return number_text(value, digits=6)
    return str(value).rpartition(":")[2] or str(value)  # "module:Class" is shown as "Class"


def _settings_texts(
    settings: Sequence[Settings], keys: Sequence[str], show: Callable[[Any], str] = _value
) -> list[str]:
    shown = {key: _shown(key) for key in keys}
    twice = {name for name in shown.values() if list(shown.values()).count(name) > 1}
    shown = {key: key if name in twice else name for key, name in shown.items()}
    return [
        ", ".join(f"{shown[key]}={show(group[key])}" for key in keys if key in group)
        for group in settings
    ]


def _shown(key: str) -> str:
    """The last part of a setting's name; of a type or name, the part that has it."""
    parts = key.split(".")
    return parts[-2] if parts[-1] in ("type", "name") and len(parts) > 1 else parts[-1]


def _read_all(path: Path, ignore: Sequence[str]) -> list[Run]:
    """The run in a folder; or those of the runs in it that can be read."""
    inner = [] if (path / "config.json").is_file() else sorted(path.glob("*/config.json"))
    if not inner:
        return [read_run(path.resolve(), ignore)]
    runs = []
    for config in inner:
        try:
            runs.append(read_run(config.parent.resolve(), ignore))
        except UserError as error:
            logger.warning("left out: %s", error)
    return runs


def read_run(path: Path, ignore: Sequence[str] = ()) -> Run:
    """Reads one run; raises UserError where its configuration or metrics cannot be read."""
    values = read_config(RunFolder(path))["experiment"]
    settings = flat_values(values)
    seed = settings.pop("seed", 0)
    for key in list(settings):
        if any(fnmatchcase(key, pattern) for pattern in (*_TRACKING, *ignore)):
            del settings[key]
    try:
        reports = read_metrics(path)
    except FileNotFoundError:
        reports = []
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read the metrics in {path}: {error}") from error
    env_id, exp_name, _, tags = benchmark_keys(values).values()
    keys = {"env_id": env_id, "exp_name": exp_name, "tags": " ".join(tags)}
    return Run(path, values.get("env"), seed, keys, settings, reports)


def _warn_of_copies(runs: Sequence[Run]) -> None:
    """Runs of one seed are no independent samples."""
    by_seed: dict[int, Run] = {}
    for run in runs:
        other = by_seed.setdefault(run.seed, run)
        if other is not run:
            logger.warning(
                "%s and %s have the same settings and seed %d: the band takes them for independent",
                other.path,
                run.path,
                run.seed,
            )
