"""Measuring things in turns, so that a machine that slows down slows them all."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from srl.console.arguments import Arguments
from srl.console.stages import Stages
from srl.errors import UserError, expect_number

Rates = dict[str, list[float]]
"""A number for each round, by what was measured."""


def training_arguments(name: str, target: str | None, seconds: float, epilog: str) -> Arguments:
    """A parser with the options that the benchmarks of training share; for `parse_training`.

    Args:
        name: Of the benchmark.
        target: What is measured where nothing is named; None demands a name.
        seconds: The default of --seconds.
        epilog: Ends its help.
    """
    named = "FILE|ENV_ID" if target is None else "[FILE|ENV_ID]"
    synopsis = (named, "[OPTION VALUE ...]", "[--FIELD VALUE ...]")
    parser = Arguments(f"bench {name}", epilog=epilog, synopsis=synopsis)
    parser.set_defaults(target=target)
    add = parser.add_argument
    add("--seconds", type=float, default=seconds, metavar="S", help=f"for each; default {seconds}")
    add("--rounds", type=int, default=5, metavar="N", help="after a first to warm up; default 5")
    add("--json", action="store_true", help="one JSON object a line")
    return parser


def parse_training(parser: Arguments, argv: list[str]) -> tuple[Any, list[str]]:
    """Gives the options, and the arguments that are for the experiment.

    Raises:
        UserError: Where they make no measurement.
    """
    first = argv[:1] if argv and not argv[0].startswith("-") else []
    options, overrides = parser.parse_known_args(argv[len(first) :])
    options.target = first[0] if first else options.target
    if options.target is None:
        raise UserError(f"{parser.prog} needs an experiment file or an environment id first")
    check_rounds(options.seconds, options.rounds)
    return options, overrides


def check_rounds(seconds: float, rounds: int) -> None:
    """Raises UserError where the options make no measurement."""
    if seconds <= 0:
        raise UserError(f"--seconds {seconds}; expected more than 0")
    expect_number("--rounds", rounds, 1)


def in_turns(
    sides: Mapping[str, Callable[[float], float]], seconds: float, rounds: int
) -> dict[str, list[float]]:
    """Runs each side for `seconds` in all; a round before the first warms up.

    Args:
        sides: Each runs for about the seconds that it is given, and gives its rate.
        seconds: For each side.
        rounds: How many.
    """
    rates: Rates = {name: [] for name in sides}
    with Stages() as stages:
        for number in range(rounds + 1):
            for name, side in sides.items():
                stages.show("measuring", f"{name}, round {number} of {rounds}")
                rate = side(seconds / (rounds + 1))
                if number:
                    rates[name].append(rate)
    return rates


def repeated(call: Callable[[], Any], per_call: float) -> Callable[[float], float]:
    """A side that makes a call again and again; its rate is `per_call` for each call."""

    def side(seconds: float) -> float:
        calls, begin = 0, time.perf_counter()
        while (elapsed := time.perf_counter() - begin) < seconds or not calls:
            call()
            calls += 1
        return per_call * calls / elapsed

    return side


def median(rates: Sequence[float]) -> float:
    """The median round's."""
    return float(np.median(rates))


def show(line: Mapping[str, Any], text: str, as_json: bool) -> None:
    """Prints a result at once: as JSON, or as a text for a person."""
    sys.stdout.write((json.dumps(line) if as_json else text) + "\n")
    sys.stdout.flush()
