"""Measuring things in turns, so that a machine that slows down slows them all."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from srl.core.console.arguments import Arguments, number
from srl.core.console.stages import Stages

Rates = dict[str, list[float]]
"""A number for each round, by what was measured."""


class Interrupted(KeyboardInterrupt):
    """The end of a measurement by Ctrl-C."""

    def __init__(self, rates: Rates) -> None:
        """Takes what the whole rounds gave; no numbers if there was none."""
        self.rates = rates


def training_arguments(
    command: str, target: str | None, seconds: float, epilog: str, **settings: Any
) -> Arguments:
    """A parser with the options that the benchmarks of training share; for `parse_target`.

    Args:
        command: The name of the command, such as "bench train".
        target: What is measured where nothing is named; None demands a name.
        seconds: The default of --seconds.
        epilog: Ends its help.
        settings: Of `Arguments`.
    """
    named = "FILE|ENV_ID" if target is None else "[FILE|ENV_ID]"
    synopsis = (named, "[OPTION VALUE ...]", "[--FIELD VALUE ...]")
    parser = Arguments(command, epilog=epilog, synopsis=synopsis, **settings)
    parser.set_defaults(target=target)
    add_rounds(parser, seconds)
    return parser


def add_rounds(parser: Arguments, seconds: float) -> None:
    """Adds --seconds, with this default, --rounds and --json."""
    add = parser.add_argument
    each = f"for each side; default {seconds:g}"
    add("--seconds", type=number(1e-3), default=seconds, metavar="S", help=each)
    rounds = "after a first to warm up; default 5"
    add("--rounds", type=number(1), default=5, metavar="N", help=rounds)
    add("--json", action="store_true", help="one JSON object a line")


def in_turns(
    sides: Mapping[str, Callable[[float], float]], seconds: float, rounds: int, title: str = ""
) -> Rates:
    """Runs each side for `seconds` in all; a round before the first warms up.

    Args:
        sides: Each runs for about the seconds that it is given, and gives its rate.
        seconds: For each side.
        rounds: How many.
        title: Names what is measured, in the progress that is shown.

    Raises:
        Interrupted: At Ctrl-C.
    """
    rates: Rates = {name: [] for name in sides}
    begin, left = time.monotonic(), ""
    try:
        with Stages() as stages:
            for count in range(rounds + 1):
                if count:
                    seconds_left = (time.monotonic() - begin) / count * (rounds + 1 - count)
                    left = f", about {seconds_left:.0f} s left"
                for name, side in sides.items():
                    stages.show("measuring", f"{title}{name}, round {count} of {rounds}{left}")
                    rate = side(seconds / (rounds + 1))
                    if count:
                        rates[name].append(rate)
    except KeyboardInterrupt:
        whole = min(map(len, rates.values()))
        raise Interrupted({name: measured[:whole] for name, measured in rates.items()}) from None
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


def neighbouring_ratios(rates: Sequence[float], vs_rates: Sequence[float]) -> list[float]:
    """The ratios of neighbouring rounds, so that a machine that slows down slows both sides."""
    return [
        *(own / peer for own, peer in zip(rates, vs_rates, strict=True)),
        *(own / peer for own, peer in zip(rates[1:], vs_rates[:-1], strict=True)),
    ]


def comparison(vs_rates: Sequence[float], ratios: Sequence[float]) -> dict[str, float]:
    """The text about the side that another is compared with."""
    return {
        "vs_value": median(vs_rates),
        "ratio": median(ratios),
        "ratio_min": min(ratios),
        "ratio_max": max(ratios),
    }


def show(line: Mapping[str, Any], text: str, as_json: bool) -> None:
    """Prints a result at once: as JSON, or as a text for a person."""
    sys.stdout.write((json.dumps(line) if as_json else text) + "\n")
    sys.stdout.flush()
