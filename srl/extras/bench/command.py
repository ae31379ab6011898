"""The subcommand `srl bench`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping

from srl.core.console.arguments import table
from srl.core.errors import UserError, nearest

BENCHMARKS = {
    "pool": "environment steps of pools, alone or against a peer",
    "train": "whole training under one plan or several",
    "act": "decisions of a policy, by the number of slots",
    "gpu": "training on a GPU: rates, the pool's share and the GPU's load, by game and plan",
}
"""Module of this package -> help."""


def main(argv: list[str]) -> int:
    """`srl bench NAME ... [--json]`."""
    return run_named("srl bench", "srl.extras.bench", BENCHMARKS, argv)


def run_named(program: str, package: str, benchmarks: Mapping[str, str], argv: list[str]) -> int:
    """Runs the benchmark that the first argument names, or lists all; gives the exit code.

    Args:
        program: The words of the command before the name.
        package: The package of the benchmarks; each is a module with a `main`.
        benchmarks: Module -> help.
        argv: The arguments.
    """
    if not argv or argv[0] in ("-h", "--help"):
        sys.stdout.write(f"usage: {program} NAME ...\n\n{table(benchmarks)}\n\n")
        sys.stdout.write(f"{program} NAME --help describes one\n")
        return 0
    name, *rest = argv
    if name not in benchmarks:
        raise UserError(f"there is no benchmark {name!r}; {nearest(name, benchmarks)}")
    return importlib.import_module(f"{package}.{name}").main(rest)
