"""The results of gates: a JSON file of rows, and the page made from it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from srl.config.experiment import load_experiment
from srl.core.console.number_text import number_text
from srl.core.errors import UserError
from srl.record.files import expect_place, parse_json, write_output
from tools.gates import table as gates_table
from tools.gates.runs import GateRun, code_version, settings_of
from tools.gates.table import Gate

_HEADER = """# Returns of the algorithms

`python -m tools.gates --out FILE` writes this page and the JSON file of the same name. Settings are
chosen on seeds 0 to 4; figures come from seeds 100 to 104, or to 109 where a run takes seconds. A
gate is passed if the means of two returns over its seeds reach their thresholds:

- *end*: the return at the end of a run. In training it is the last report's `episode_return`: the
  mean of the last 100 episodes, with sampled actions. Where the published figure is an evaluation,
  `srl eval` measures it: 100 episodes of the last checkpoint, with the most probable actions. *IQM*
  is its interquartile mean, with the 95 % bootstrap interval.
- *lowest*: the lowest report of the last third of a run, as what is learned has to last.

*Code* is the last commit that changed `srl/` or `csrc/`; a + stands for changes that were not
committed. Rows by other code than the newest row's are marked. A row is **out of date**, and does
not count as passed, if its gate or a default setting has changed since. More:
[gates](../developing/gates.md).

"""
_RESAMPLES = 10_000
_COLUMNS = (
    *("gate", "env steps", "seeds", "return", "end", "IQM (95 %)", "threshold", "lowest"),
    *("threshold", "published", "min a run", "code", ""),
)


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


def make_row(gate: Gate, runs: list[GateRun]) -> dict[str, Any]:
    """The results of a gate's finished runs, as JSON has them."""
    experiment = runs[0].experiment
    ends, lowest = zip(*(run.returns() for run in runs), strict=True)
    origins = [run.origin() for run in runs]
    row = {
        "name": gate.name,
        "algorithm": type(experiment.algorithm).__name__,
        "env": gate.arguments[0],
        "seeds": [run.seed for run in runs],
        "returns": _plain(ends),
        "lowest": _plain(lowest),
        **{key: _plain(value) for key, value in summary(list(ends))._asdict().items()},
        "lasting": _plain(sum(lowest) / len(lowest)),
        **_required_by(gate),
        "published": gate.published,
        "env_steps": experiment.env_steps,
        "seconds": round(sum(run.seconds() for run in runs) / len(runs), 1),
        "command": f"srl run {gate.command}",
        "options": list(runs[0].options),
        "settings": settings_of(experiment),
        "commits": sorted({commit for origin in origins for commit in origin["commits"]}),
        "date": max(origin["date"] for origin in origins),
        "machine": origins[-1]["machine"],
    }
    return judged(row)


def _required_by(gate: Gate) -> dict[str, Any]:
    """The part of a row that must not differ from its gate."""
    return {
        "threshold": gate.threshold,
        "lasting_threshold": gate.lasting_threshold,
        "evaluated": gate.evaluated,
    }


def _plain(value: Any) -> Any:
    """Numbers that JSON can hold, with a digit more than is meant."""
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return round(float(value), 2) if math.isfinite(value) else None


def judged(row: dict[str, Any]) -> dict[str, Any]:
    """A row with its verdict by the table of gates and the defaults as they are now."""
    changed, end, lasting = _changed(row), row["mean"], row["lasting"]
    reached = None not in (end, lasting) and (
        end >= row["threshold"] and lasting >= row["lasting_threshold"]
    )
    return {**row, "passed": reached and not changed, "changed": changed}


def _changed(row: dict[str, Any]) -> list[str]:
    """The parts of a row's gate that have changed since it was measured."""
    gate = next((gate for gate in gates_table.GATES if gate.name == row["name"]), None)
    if gate is None:
        return ["no such gate"]
    parts = {
        "command": row["command"] != f"srl run {gate.command}",
        "threshold": any(row.get(key, value) != value for key, value in _required_by(gate).items()),
        "settings": _differ(row["settings"], _settings(gate.command)),
    }
    return [name for name, differs in parts.items() if differs]


def _differ(then: dict[str, Any], now: dict[str, Any]) -> bool:
    """Tells if a setting of a row has another value now; later settings keep what was there."""
    return any(name not in now or now[name] != value for name, value in then.items())


@cache
def _settings(command: str) -> dict[str, Any]:
    target, *overrides = Gate("", command, 0, "").arguments
    return settings_of(load_experiment(target, overrides).experiment)


def row_line(row: dict[str, Any]) -> str:
    """A row as a line of text."""
    if row["changed"]:
        return f"{row['name']}: OUT OF DATE ({', '.join(row['changed'])})"
    verdict = "passed" if row["passed"] else "BELOW THRESHOLD"
    end, lasting = (
        f"{number_text(row[value])} of {number_text(row[threshold])}"
        for value, threshold in (("mean", "threshold"), ("lasting", "lasting_threshold"))
    )
    here, commits = code_version(), row["commits"]
    other = "" if commits == [here] else f"; by code {', '.join(commits)}, here is {here}"
    return f"{row['name']}: {verdict}, end {end}, lowest {lasting}{other}"


class Results:
    """A file of results and the page made from it, in the order of `GATES`."""

    def __init__(self, page: Path) -> None:
        """Reads the results that are there.

        Raises:
            UserError: If the file cannot be written, or is none of results.
        """
        expect_place("--out", page)
        self._page, self._file = page, page.with_suffix(".json")
        if page.suffix != ".md":
            raise UserError(f"--out {page}: the name must end in .md")
        self._rows: dict[str, dict[str, Any]] = {}
        if self._file.exists():
            try:
                rows = map(judged, parse_json(self._file.read_bytes()))
                self._rows = {row["name"]: row for row in rows}
                markdown(list(self._rows.values()))
            except (OSError, ValueError, TypeError, KeyError) as error:
                raise UserError(f"{self._file} holds no results of gates: {error}") from error

    def out_of_date(self) -> list[dict[str, Any]]:
        """The rows whose gates have changed since, or are gates no more."""
        return [row for row in self._rows.values() if row["changed"]]

    def write(self, *rows: dict[str, Any]) -> None:
        """Writes both files with rows that are new, or in place of earlier ones."""
        self._rows |= {row["name"]: row for row in rows}
        order = [gate.name for gate in gates_table.GATES]
        known = {name: self._rows[name] for name in order if name in self._rows}
        self._rows = known | self._rows  # those that are no gates any more come last
        lines = ",\n".join(json.dumps(row) for row in self._rows.values())
        write_output(self._file, f"[\n{lines}\n]\n".encode())
        write_output(self._page, markdown(list(self._rows.values())).encode())


def markdown(rows: list[dict[str, Any]]) -> str:
    """The table, the machines, each row's command, and the gates without a row."""
    newest = max(rows, key=lambda row: row["date"], default={"commits": []})["commits"]
    lines = [_line(_COLUMNS), _line(["---"] * len(_COLUMNS))]
    lines += [_line(_cells(row, newest)) for row in rows]
    machines: dict[str, list[str]] = {}
    for row in rows:
        if machine := row["machine"]:  # empty where the record of a run's origin was lost
            machines.setdefault(_machine(machine), []).append(row["name"])
    measured = [f"Measured on {text}: {', '.join(names)}." for text, names in machines.items()]
    commands = [f"    {row['command']}  # {row['name']}" for row in rows]
    there = {row["name"] for row in rows if not row["changed"]}
    others = [gate for gate in gates_table.GATES if gate.name not in there]
    absent = [f"    srl run {gate.command}  # {gate.name}" for gate in others]
    if absent:
        absent = ["", "Gates without a row that is up to date:", "", *absent]
    parts = [*lines, "", *(line for text in measured for line in (text, "")), *commands, *absent]
    return _HEADER + "\n".join(parts) + "\n"


def _machine(machine: dict[str, Any]) -> str:
    cores = f"{machine['cores']} core{'s' * (machine['cores'] != 1)} of {machine['processor']}"
    devices = ", ".join([cores, *machine["gpus"]])
    return f"{devices}, with Python {machine['python']} and JAX {machine['jax']}"


def _line(cells: Iterable[Any]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def _cells(row: dict[str, Any], newest: list[str]) -> tuple[Any, ...]:
    return (
        row["name"],
        f"{row['env_steps']:,}",
        _seeds(row["seeds"]),
        "evaluated" if row["evaluated"] else "in training",
        number_text(row["mean"]),
        f"{number_text(row['iqm'])} ({number_text(row['low'])} to {number_text(row['high'])})",
        number_text(row["threshold"]),
        number_text(row["lasting"]),
        number_text(row["lasting_threshold"]),
        row["published"],
        f"{row['seconds'] / 60:.1f}",
        ", ".join(row["commits"]),
        _verdict(row, newest),
    )


def _seeds(seeds: list[int]) -> str:
    together = len(seeds) > 1 and seeds == list(range(seeds[0], seeds[-1] + 1))
    return f"{seeds[0]} to {seeds[-1]}" if together else ", ".join(map(str, seeds))


def _verdict(row: dict[str, Any], newest: list[str]) -> str:
    if row["changed"]:
        return f"**out of date**: {', '.join(row['changed'])}"
    verdict = "passed" if row["passed"] else "**below threshold**"
    return verdict if row["commits"] == newest else f"{verdict}, by other code"
