"""The begin of a process beside a run: its priority is low before it loads anything."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from srl.beside.share import take_lowest_priority

LOW = "low"


def main(argv: Sequence[str]) -> int:
    """Calls the `main` of a module; gives its exit code.

    Args:
        argv: LOW or "", the module, and the arguments of its `main`.
    """
    priority, module, *arguments = argv
    if priority == LOW:
        take_lowest_priority()
    return importlib.import_module(module).main(arguments)
