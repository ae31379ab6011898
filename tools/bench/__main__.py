"""The command `python -m tools.bench NAME ... [--json]`."""

from __future__ import annotations

import sys

from srl.api.cli import exit_code
from srl.extras.bench.command import run_named
from tools.bench import BENCHMARKS, PROGRAM


def main(argv: list[str]) -> int:
    """Runs one benchmark; gives its exit code."""
    return exit_code(lambda: run_named(PROGRAM, "tools.bench", BENCHMARKS, argv))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
