"""Benchmarks of single mechanisms."""

PROGRAM = "python -m tools.bench"
"""The words of the command, in the checkout's folder."""
BENCHMARKS = {
    "learn": "samples that are learned from",
    "actors": "many actors, policy workers and a learner: the cost of each role",
    "parameters": "new parameters, until many hosts have them",
    "stream": "blocks and messages that pass between threads, processes and hosts",
    "commands": "training by other programs, such as peers' scripts, in turns with ours",
    "replay": "a replay of many frames: its memory, its checkpoints, and reading it again",
    "skew": "training on slow simulators with uneven steps, in lock step and as they get ready",
}
"""Module of this package -> help."""
