"""`--plan auto`: trains for some seconds under each plan that may suit, and keeps the fastest."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from srl.errors import RunError, UserError
from srl.experiment import Resolved, load_experiment
from srl.launch.folder import RunFolder, create_run, record
from srl.launch.measure import Measured

SECONDS = 4.0
"""For which each plan is measured, once it is warm."""
_REPORTS_A_SECOND = 2.0
_MOST_UPDATES = 1_000_000  # so that no budget ends before the measuring does


def settled(
    folder: RunFolder, resolved: Resolved, say: Callable[[str], None] = print, seconds: float = SECONDS
) -> Resolved:
    """The run with its plan chosen, which its folder then tells; as it is, if it names one.

    Args:
        folder: The run's.
        resolved: What is going to run.
        say: Shows a line of what was found.
        seconds: For which each plan is measured.

    Raises:
        UserError: If the experiment runs under no plan; with the reason of the last.
    """
    if resolved.experiment.plan != "auto":
        return resolved
    with folder.locked():
        resolved = choose(resolved, say, seconds)
        record(folder, resolved)
    return resolved


def choose(resolved: Resolved, say: Callable[[str], None], seconds: float) -> Resolved:
    """The same with the plan that is fastest here, as words of the command line."""
    found: list[tuple[float, Resolved]] = []
    reason = "no plan fits"
    pace = 0.0  # updates a second
    steps = resolved.experiment.num_envs * resolved.experiment.algorithm.unroll_length
    say(f"measures each plan for {seconds:g} s; env steps/s, and what holds it back:")
    with tempfile.TemporaryDirectory(prefix="srl-auto-", ignore_cleanup_errors=True) as place:
        for number, words in enumerate(candidates(resolved)):
            name = " ".join(words)
            try:
                one = with_plan(resolved, words)
                measured = _measure(one, Path(place) / str(number), pace, seconds)
            except (UserError, RunError) as error:
                reason = str(error)
                say(f"  {name:<42} {'-':>10}  {reason}")
                continue
            say(f"  {name:<42} {measured.fps:>10,.0f}  {measured.bottleneck}")
            pace = max(pace, measured.fps / steps)
            found.append((measured.fps, one))
    if not found:
        raise UserError(f"no plan could be measured: {reason}")
    best = max(found, key=lambda each: each[0])[1]
    say(f"trains with {' '.join(best.overrides[len(_without_plan(resolved.overrides)) :])}")
    return best


def candidates(resolved: Resolved) -> Iterator[tuple[str, ...]]:
    """Words for the plans that this experiment could run under, with sizes for this machine."""
    cores = len(os.sched_getaffinity(0))
    num_envs = resolved.experiment.num_envs
    sizes = [n for n in range(2, max(cores, 2) + 1) if num_envs % n == 0]
    most = [n for n in sizes if n <= cores // 2][-1:] + sizes[-1:]
    plans = [
        ("--plan", "fused"),
        *(("--plan", "threads", "--plan.actors.replicas", str(n)) for n in sizes[:1]),
        ("--plan", "replicated", "--plan.learners.replicas", "1"),
        *(("--plan", "inline", "--plan.actors.replicas", str(n)) for n in dict.fromkeys(most)),
    ]
    for words in plans:
        try:
            with_plan(resolved, words)
        except UserError:
            continue
        yield words


def with_plan(resolved: Resolved, words: Sequence[str]) -> Resolved:
    """The same under the plan that these words name."""
    overrides = (*_without_plan(resolved.overrides), *words)
    return load_experiment(
        resolved.target, overrides, source=resolved.source, directory=resolved.directory
    )


def _without_plan(words: Sequence[str]) -> list[str]:
    rest = iter(words)
    kept = []
    for word in rest:
        if word == "--plan":
            next(rest, None)
        elif not word.startswith("--plan="):
            kept.append(word)
    return kept


def _measure(resolved: Resolved, path: Path, pace: float, seconds: float) -> Measured:
    """What another process finds."""
    experiment = resolved.experiment
    steps = experiment.num_envs * experiment.algorithm.unroll_length
    budget = ("--env-steps", str(_MOST_UPDATES * steps))
    reports = ("--report-every", str(max(1, round(pace / _REPORTS_A_SECOND))))
    words = (*_without(resolved.overrides, "--updates"), *budget, *reports)
    # One that is recorded, not loaded: its budget may stand in the file, as a number of updates.
    del words
    longer = dataclasses.replace(experiment, env_steps=1, updates=None)
    del longer, budget, reports
    raise NotImplementedError(path, subprocess, sys, json, create_run, seconds)
