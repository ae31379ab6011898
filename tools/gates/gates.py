"""The runs of what algorithms have to learn, and the table of results."""

from __future__ import annotations

import json
import math
import re
import sys
from pathlib import Path
from typing import Any

from srl.core.console.arguments import Arguments, listed, number
from srl.core.console.number_text import number_text
from srl.core.errors import UserError
from srl.record.files import expect_place, parse_json, write_output
from tools.gates import table as gates_table
from tools.gates.runs import GateRun
from tools.gates.summary import summary
from tools.gates.table import Gate, gates_named

_SEEDS = [0, 1, 2, 3, 4]


def gates(argv: list[str]) -> int:
    """`gates [NAME...] [--seeds 0,1] [--plan NAME] [--runs DIR] [--out FILE.md] [--json]`."""
    options = _parser().parse_args(argv)
    chosen = gates_named(options.names)
    if options.list:
        sys.stdout.write(_listing(chosen) + "\n")
        return 0
    _expect_distinct(options.seeds)
    runs = {gate: _runs(gate, options) for gate in chosen}
    for first, *_ in runs.values():
        _ = first.experiment  # raises before anything runs where options do not fit
    results = _Results(options.out) if options.out else None
    if results:
        results.expect_no_fewer_seeds(chosen, len(options.seeds))
    passed = True
    for gate in chosen:
        row = _row(gate, runs[gate])
        passed &= row["passed"]
        if results:
            results.add(row)
        _print_row(row, options.json)
    for row in results.out_of_date() if results else ():
        _print_row(row, options.json)
    return 0 if passed else 1


def _parser() -> Arguments:
    parser = Arguments(
        "tools.gates",
        program="python -m",
        description="Train what algorithms have to learn, and compare the mean return over seeds "
        "with its gate. Runs are kept: those that have ended are not run again, and one that was "
        "stopped is resumed. The exit code is 1 where a mean is below its threshold.",
    )
    add = parser.add_argument
    add("names", nargs="*", metavar="NAME", help="default: all; --list shows them")
    add("--list", action="store_true", help="show the gates and their commands, and run nothing")
    seeds = "default 0,1,2,3,4"
    add("--seeds", type=listed(number(0)), default=_SEEDS, metavar="S,S,...", help=seeds)
    add("--plan", metavar="NAME", help="run under this plan those that name none")
    runs = "where runs are kept; default runs/gates"
    add("--runs", type=Path, default=Path("runs/gates"), metavar="DIR", help=runs)
    out = (
        "put rows into this table and into FILE.json; other rows stay; rows of gates that have "
        "changed since are shown as out of date"
    )
    add("--out", type=Path, metavar="FILE.md", help=out)
    add("--json", action="store_true", help="print one JSON object a row")
    return parser


def _expect_distinct(seeds: list[int]) -> None:
    if len(set(seeds)) < len(seeds):
        raise UserError(f"--seeds {','.join(map(str, seeds))}: give each seed once")


def _runs(gate: Gate, options: Any) -> list[GateRun]:
    """A gate's runs, in folders named after the gate and the seed."""
    chosen = options.plan and "--plan" not in gate.arguments
    arguments = ("--plan", options.plan) if chosen else ()
    folder = options.runs / gate.name.replace(":", "_")
    return [GateRun(gate, seed, folder / str(seed), arguments) for seed in options.seeds]


def _row(gate: Gate, runs: list[GateRun]) -> dict[str, Any]:
    """Runs a gate's seeds, those that are not done yet; gives its results."""
    for place, run in enumerate(runs, 1):
        sys.stderr.write(f"{gate.name}, seed {run.seed}: run {place} of {len(runs)}\n")
        run.train()
    experiment = runs[0].experiment
    returns = [run.value() for run in runs]
    found = summary(returns)
    row = {
        "name": gate.name,
        "algorithm": type(experiment.algorithm).__name__,
        "env": gate.arguments[0],
        "seeds": [run.seed for run in runs],
        "returns": _plain(returns),
        **{key: _plain(value) for key, value in found._asdict().items()},
        "threshold": gate.threshold,
        "published": gate.published,
        "env_steps": experiment.env_steps,
        "seconds": round(sum(run.seconds() for run in runs) / len(runs), 1),
        "command": _command(gate, *runs[0].options),
    }
    return _judged(row)


def _command(gate: Gate, *options: str) -> str:
    return f"srl run {' '.join([*gate.arguments, *options])}"


def _judged(row: dict[str, Any]) -> dict[str, Any]:
    """A row with what it counts for by the table of gates as it is now."""
    old = _is_out_of_date(row)
    reached = row["mean"] is not None and row["mean"] >= row["threshold"]
    return {**row, "passed": reached and not old, "out_of_date": old}


def _is_out_of_date(row: dict[str, Any]) -> bool:
    """Tells if the row's gate now has another command or threshold, or no longer exists.

    The plan that `--plan` names is no part of a gate.
    """
    gate = next((gate for gate in gates_table.GATES if gate.name == row["name"]), None)
    if gate is None or gate.threshold != row["threshold"]:
        return True
    return not re.fullmatch(re.escape(_command(gate)) + r"( --plan \S+)?", row["command"])


def _plain(value: Any) -> Any:
    """Numbers that JSON can hold, with a digit more than is meant."""
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return round(float(value), 2) if math.isfinite(value) else None


def _listing(chosen: list[Gate]) -> str:
    """A command for each gate, to be copied whole, with its name and threshold as a comment."""
    commands = [f"srl run {g.command}  # {g.name}: at least {g.threshold:g}" for g in chosen]
    return "\n".join(commands)


def _print_row(row: dict[str, Any], as_json: bool) -> None:
    sys.stdout.write((json.dumps(row) if as_json else _line(row)) + "\n")
    sys.stdout.flush()


def _line(row: dict[str, Any]) -> str:
    if row["out_of_date"]:
        return f"{row['name']}: OUT OF DATE, no gate has its command and threshold any more"
    verdict = "passed" if row["passed"] else "BELOW THRESHOLD"
    return f"{row['name']}: {verdict}, {_number(row['mean'])} of {_number(row['threshold'])}"


def _number(value: float | None) -> str:
    return "-" if value is None else number_text(value)


class _Results:
    """A file of results and the table made from it, in the order of `GATES`."""

    def __init__(self, table_file: Path) -> None:
        """Reads the results that are there.

        Raises:
            UserError: If the file cannot be written, or is none of results.
        """
        expect_place("--out", table_file)
        self._table, self._file = table_file, table_file.with_suffix(".json")
        if table_file.suffix != ".md":
            raise UserError(f"--out {table_file}: the name must end in .md")
        self._rows: dict[str, dict[str, Any]] = {}
        self._seeds: dict[str, int] = {}
        if self._file.exists():
            try:
                rows = map(_judged, parse_json(self._file.read_bytes()))
                self._rows = {row["name"]: row for row in rows}
                self._seeds = {name: len(row["seeds"]) for name, row in self._rows.items()}
            except (OSError, ValueError, TypeError, KeyError) as error:
                raise UserError(f"{self._file} holds no results of gates: {error}") from error

    def expect_no_fewer_seeds(self, chosen: list[Gate], seeds: int) -> None:
        """Raises UserError where a row would take the place of one of more seeds."""
        old = {row["name"] for row in self.out_of_date()}
        for gate in chosen:
            there = self._seeds.get(gate.name, 0)
            if there > seeds and gate.name not in old:
                raise UserError(
                    f"--out {self._table}: its row {gate.name} is of {there} seeds, and --seeds "
                    f"gives {seeds}; give as many, or another file"
                )

    def out_of_date(self) -> list[dict[str, Any]]:
        """The rows whose gates have changed since, or are gates no more."""
        return [row for row in self._rows.values() if row["out_of_date"]]

    def add(self, row: dict[str, Any]) -> None:
        """Writes both files with a row that is new, or in place of an earlier one."""
        self._rows[row["name"]] = row
        order = [gate.name for gate in gates_table.GATES]
        known = {name: self._rows[name] for name in order if name in self._rows}
        self._rows = known | self._rows  # those that are no gates any more come last
        rows = ",\n".join(json.dumps(row) for row in self._rows.values())
        write_output(self._file, f"[\n{rows}\n]\n".encode())
        write_output(self._table, markdown(list(self._rows.values())).encode())


_HEADER = """# Returns of the algorithms

`python -m tools.gates --out FILE` writes this page and the JSON file of the same name. A gate is a
command with a threshold for the mean return over seeds. *IQM* is the interquartile mean of the
returns with its 95 % bootstrap interval. A return is `episode_return` in the last line of a run's
metrics: the mean of its last 100 episodes, with sampled actions. For gates of staleness it is the
lowest report of the run's last third. With an evaluation in the command, it is the mean of the last
version's evaluated episodes, with the most probable actions. A row is out of date if its gate's
command or threshold has changed since.

The settings of `ppo-hopper`, `ppo-walker2d`, `ppo-ant`, `impala-...`, `appo-...`,
`dqn-mountain_car`, `pqn-cartpole:hidden_velocities` and `td3-...`, and some defaults of PPO and
DQN, were chosen on seeds of this table, those of PQN with memory on seed 1 alone. Their figures are
optimistic: other seeds may do worse.

| gate | env steps | seeds | mean | IQM (95 %) | threshold | published | min a run | |
|---|---|---|---|---|---|---|---|---|
"""


def markdown(rows: list[dict[str, Any]]) -> str:
    """The table, each row's command, and the gates that have no row."""
    lines = [_cells(row) for row in rows]
    commands = [f"    {row['command']}  # {row['name']}" for row in rows]
    there = {row["name"] for row in rows if not row["out_of_date"]}
    others = [gate for gate in gates_table.GATES if gate.name not in there]
    absent = [f"    srl run {gate.command}  # {gate.name}" for gate in others]
    if absent:
        absent = ["", "Gates that have not been run with so many seeds:", "", *absent]
    return _HEADER + "\n".join([*lines, "", *commands, *absent]) + "\n"


def _cells(row: dict[str, Any]) -> str:
    interval = f"{_number(row['iqm'])} ({_number(row['low'])} to {_number(row['high'])})"
    cells = (
        row["name"],
        f"{row['env_steps']:,}",
        len(row["seeds"]),
        _number(row["mean"]),
        interval,
        _number(row["threshold"]),
        row["published"],
        f"{row['seconds'] / 60:.1f}",
        _verdict(row),
    )
    return f"| {' | '.join(map(str, cells))} |"


def _verdict(row: dict[str, Any]) -> str:
    if row["out_of_date"]:
        return "**out of date**"
    return "passed" if row["passed"] else "**below threshold**"
