"""The training speed of two programs in any language."""

from __future__ import annotations

import shlex
import subprocess
import time
from collections.abc import Mapping
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any

from srl.core.console.arguments import Arguments, number
from srl.core.console.number_text import number_text
from srl.core.console.stages import Stages
from srl.core.errors import RunError, UserError
from srl.extras.bench.rounds import Rates, comparison, median, neighbouring_ratios, show
from tools.bench import PROGRAM

_NOTES = """Each command is run to both budgets in every round, the two in turns. Its rate is the
difference of the budgets over the difference of the times, so starting and compiling do not count;
the seconds to the larger budget, which include them, are reported beside it. {steps} in a command
stands for the budget. Commands run in an empty folder of their own, so name files by whole paths.
"""
_BUDGET = "{steps}"
_LAST_CHARACTERS = 2000


def main(argv: list[str]) -> int:
    """`bench commands COMMAND [--vs COMMAND] --steps LESS,MORE [--rounds N] [--json]`."""
    parser = Arguments("commands", program=PROGRAM, epilog=_NOTES)
    add = parser.add_argument
    add("command", metavar="COMMAND", help='such as "srl run CartPole-v1 --env-steps {steps}"')
    add("--vs", metavar="COMMAND", help="to compare with")
    add("--steps", metavar="LESS,MORE", required=True, help="the two budgets, in env steps")
    add("--rounds", type=number(1), default=3, metavar="N", help="default 3")
    add("--json", action="store_true", help="one JSON object a line")
    options = parser.parse_args(argv)
    budgets = _budgets(options.steps)
    sides = {"own": options.command} | ({"vs": options.vs} if options.vs else {})
    for command in sides.values():
        if _BUDGET not in command:
            raise UserError(f"{command!r} has no {_BUDGET} where its number of env steps belongs")
    rates, seconds = _measure(sides, budgets, options.rounds)
    line = _line(sides, budgets, rates, seconds)
    show(line, _text(line), options.json)
    return 0


def _budgets(text: str) -> tuple[int, int]:
    try:
        less, more = (int(float(part)) for part in text.split(","))
        if 0 < less < more:
            return less, more
    except (ValueError, OverflowError):
        pass
    raise UserError(f"--steps takes two budgets, the smaller first, as 20000,60000; not {text!r}")


def _measure(
    sides: Mapping[str, str], budgets: tuple[int, int], rounds: int
) -> tuple[Rates, Rates]:
    """The rates of each command, and its seconds to the larger budget, by round."""
    rates: Rates = {name: [] for name in sides}
    seconds: Rates = {name: [] for name in sides}
    with Stages() as stages:
        for count in range(1, rounds + 1):
            for name, command in sides.items():
                stages.show("measuring", f"{command}, round {count} of {rounds}")
                less, more = (_run(command.replace(_BUDGET, str(budget))) for budget in budgets)
                if more <= less:
                    raise RunError(
                        f"{command!r} took {less:.1f} s to {budgets[0]:,} steps and {more:.1f} s "
                        f"to {budgets[1]:,}: the budgets are too near each other to be compared"
                    )
                rates[name].append((budgets[1] - budgets[0]) / (more - less))
                seconds[name].append(more)
    return rates, seconds


def _run(command: str) -> float:
    """Runs a command in a folder of its own; gives its seconds."""
    with TemporaryDirectory() as folder, TemporaryFile() as output:
        begin = time.perf_counter()
        try:
            process = subprocess.run(
                shlex.split(command), cwd=folder, stdout=output, stderr=output, check=False
            )
        except OSError as error:
            raise UserError(f"cannot run {command!r}: {error.strerror or error}") from error
        elapsed = time.perf_counter() - begin
        if process.returncode:
            output.seek(0)
            text = output.read().decode(errors="replace")[-_LAST_CHARACTERS:]
            raise RunError(f"{command!r} ended with {process.returncode}:\n{text}")
    return elapsed


def _line(
    sides: Mapping[str, str], budgets: tuple[int, int], rates: Rates, seconds: Rates
) -> dict[str, Any]:
    config: dict[str, Any] = {"steps": list(budgets), "command": sides["own"]}
    config["seconds"] = median(seconds["own"])
    line = {"name": "commands", "config": config}
    line |= {"value": median(rates["own"]), "unit": "env steps/s"}
    if "vs" in sides:
        config |= {"vs": sides["vs"], "vs_seconds": median(seconds["vs"])}
        line |= comparison(rates["vs"], neighbouring_ratios(rates["own"], rates["vs"]))
    return line


def _text(line: Mapping[str, Any]) -> str:
    config = line["config"]
    lines = [_rate_text(config, line["value"], config["command"], config["seconds"])]
    if "vs" in config:
        lines += [
            _rate_text(config, line["vs_value"], config["vs"], config["vs_seconds"]),
            f"ratio {line['ratio']:.2f} ({line['ratio_min']:.2f} to {line['ratio_max']:.2f})",
        ]
    return "\n".join(lines)


def _rate_text(config: Mapping[str, Any], rate: float, command: str, seconds: float) -> str:
    budget = config["steps"][1]
    return f"{number_text(rate)} env steps/s, {seconds:.1f} s to {budget:,}: {command}"
