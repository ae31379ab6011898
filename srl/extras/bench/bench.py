"""The subcommand `srl bench`."""

from __future__ import annotations

import importlib
import sys

from srl.core.console.arguments import table
from srl.core.errors import UserError, nearest

_BENCHMARKS = {
    "pool": "environment steps of pools, alone or against a peer",
    "act": "decisions of a policy, by the number of slots",
    "learn": "samples that are learned from",
    "train": "whole training under one plan or several",
    "gpu": "training on a GPU: rates, the pool's share and the GPU's load, by game and plan",
    "actors": "many actors, policy workers and a learner: what each role costs",
    "parameters": "new parameters, until many hosts have them",
    "stream": "blocks and messages that pass between threads, processes and hosts",
    "commands": "training by other programs, such as peers' scripts, beside ours",
    "replay": "a replay of many frames: its memory, its checkpoints, how it is read again",
}


def bench(argv: list[str]) -> int:
    """`srl bench NAME ... [--json]`."""
    if not argv or argv[0] in ("-h", "--help"):
        sys.stdout.write(f"usage: srl bench NAME ...\n\n{table(_BENCHMARKS)}\n\n")
        sys.stdout.write("srl bench NAME --help describes one\n")
        return 0
    name, *rest = argv
    if name not in _BENCHMARKS:
        raise UserError(f"there is no benchmark {name!r}; {nearest(name, _BENCHMARKS)}")
    return importlib.import_module(f"srl.extras.bench.{name}").main(rest)
