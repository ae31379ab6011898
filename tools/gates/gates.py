"""The command that runs gates."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from srl.core.console.arguments import Arguments, listed, number
from srl.core.errors import UserError
from tools.gates.results import Results, make_row, row_line
from tools.gates.runs import GateRun
from tools.gates.table import Gate, gates_named


def gates(argv: list[str]) -> int:
    """`gates [NAME...] [--seeds 0,1] [--plan NAME] [--runs DIR] [--out FILE.md] [--json]`."""
    options = _parser().parse_args(argv)
    chosen = gates_named(options.names)
    _expect_fit(options)
    results = Results(options.out) if options.out else None
    if options.list:
        if results:
            results.write()
        sys.stdout.write(_listing(chosen) + "\n")
        return 0
    runs = {gate: gate_runs(gate, options) for gate in chosen}
    for first, *_ in runs.values():
        _ = first.experiment  # raises before anything runs where options do not fit
    passed = True
    for gate in chosen:
        row = _run(gate, runs[gate])
        passed &= row["passed"]
        if results:
            results.write(row)
        _print_row(row, options.json)
    for row in results.out_of_date() if results else ():
        _print_row(row, options.json)
    return 0 if passed else 1


def _parser() -> Arguments:
    parser = Arguments(
        "tools.gates",
        program="python -m",
        description="Train what algorithms have to learn, and compare the means over seeds with "
        "the thresholds of each gate. Finished runs are not repeated, and stopped ones are "
        "resumed. The exit code is 1 where a mean is below its threshold.",
    )
    add = parser.add_argument
    add("names", nargs="*", metavar="NAME", help="default: all; --list shows them")
    add("--list", action="store_true", help="show the gates and their commands, and run nothing")
    seeds = "in place of the table's, 100 to 104 or 109; choose settings on 0 to 4"
    add("--seeds", type=listed(number(0)), metavar="S,S,...", help=seeds)
    add("--plan", metavar="NAME", help="run under this plan those that name none")
    runs = "where runs are kept; default runs/gates"
    add("--runs", type=Path, default=Path("runs/gates"), metavar="DIR", help=runs)
    out = (
        "put rows into this table and into FILE.json; other rows stay; with --list, only write "
        "the table again, with marks for rows that are out of date"
    )
    add("--out", type=Path, metavar="FILE.md", help=out)
    add("--json", action="store_true", help="print one JSON object a row")
    return parser


def _expect_fit(options: Any) -> None:
    seeds = options.seeds or []
    if len(set(seeds)) < len(seeds):
        raise UserError(f"--seeds {','.join(map(str, seeds))}: give each seed once")
    if options.out and (seeds or options.plan):
        wrong = "--seeds" if seeds else "--plan"
        raise UserError(f"--out is for rows of the table's own seeds and plans; leave out {wrong}")


def gate_runs(gate: Gate, options: Any) -> list[GateRun]:
    """A gate's runs, in folders named after the gate and the seed."""
    chosen = options.plan and "--plan" not in gate.arguments
    arguments = ("--plan", options.plan) if chosen else ()
    folder = options.runs / gate.name.replace(":", "_")
    seeds = options.seeds or gate.table_seeds
    return [GateRun(gate, seed, folder / str(seed), arguments) for seed in seeds]


def _run(gate: Gate, runs: list[GateRun]) -> dict[str, Any]:
    """Runs a gate's seeds that are not done yet; gives its row."""
    for place, run in enumerate(runs, 1):
        sys.stderr.write(f"{gate.name}, seed {run.seed}: run {place} of {len(runs)}\n")
        run.train()
    return make_row(gate, runs)


def _listing(chosen: list[Gate]) -> str:
    """A command for each gate, to be copied whole, with its name and thresholds as a comment."""
    return "\n".join(
        f"srl run {g.command}  # {g.name}: at least {g.threshold:g}, lasting "
        f"{g.lasting_threshold:g}"
        for g in chosen
    )


def _print_row(row: dict[str, Any], as_json: bool) -> None:
    sys.stdout.write((json.dumps(row) if as_json else row_line(row)) + "\n")
    sys.stdout.flush()
