"""The begin of a process beside a run: its priority is low before it loads anything."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from srl.system.background.priority import lower_priority


def main(argv: Sequence[str]) -> int:
    """Calls the `main` of a module; gives its exit code.

    Args:
        argv: How nice it is, the module, and the arguments of its `main`.
    """
    nice, module, *arguments = argv
    lower_priority(int(nice))
    return importlib.import_module(module).main(arguments)
