"""The command `python -m tools.gates`."""

from __future__ import annotations

import sys

from srl.api.cli import exit_code
from srl.system.lasting_output import lasting_output
from tools.gates.gates import gates


def main(argv: list[str]) -> int:
    """Runs gates; gives the exit code."""
    with lasting_output():
        return exit_code(lambda: gates(argv))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
