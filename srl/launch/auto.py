"""`--plan auto`: trains for some seconds under each plan that may suit, and keeps the fastest."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from srl.config.experiment import Resolved, with_overrides
from srl.config.overrides import without
from srl.core.errors import PlanError, RunError, UserError
from srl.launch.measure import Measured
from srl.record.run_record import RunFolder
from srl.run.folder import create_run, record
from srl.system.supervised import Child

SECONDS = 4.0
"""The time for which each plan is measured, once it is warm."""
_REPORTS_A_SECOND = 2.0
_MOST_UPDATES = 1_000_000  # so that no budget ends before the measuring does


def settled(folder: RunFolder, resolved: Resolved, say: Callable[[str], object]) -> Resolved:
    """The run with its plan chosen, which its folder then records; as it is, if it names one.

    Raises:
        UserError: If the experiment runs under no plan; with the last plan's reason.
    """
    if resolved.experiment.plan != "auto":
        return resolved
    with folder.locked():
        resolved = choose(resolved, say)
        record(folder, resolved)
    return resolved


def choose(resolved: Resolved, say: Callable[[str], object]) -> Resolved:
    """The run with the plan that is fastest here, as arguments of the command line."""
    experiment = resolved.experiment
    found: list[tuple[float, str, Resolved]] = []
    reason, pace = "none fits", 0.0  # updates a second
    plans = list(candidates(resolved))
    say(f"trains for {SECONDS:g} s under each plan, once it is warm:")
    with tempfile.TemporaryDirectory(prefix="srl-auto-", ignore_cleanup_errors=True) as scratch:
        for number, (arguments, candidate) in enumerate(plans, 1):
            name = " ".join(arguments)
            say(f"plan {number} of {len(plans)}: {name}")
            try:
                measured = _measure(candidate, Path(scratch) / "_".join(arguments[1:]), pace)
            except (UserError, RunError) as error:
                reason = str(error)
                say(f"    not measured: {reason}")
                continue
            say(f"    {measured.fps:,.0f} env steps/s; {measured.bottleneck}")
            pace = max(pace, measured.fps / experiment.steps_per_update)
            found.append((measured.fps, name, candidate))
    if not found:
        raise UserError(f"no plan could be measured: {reason}")
    fps, chosen, fastest = max(found, key=lambda each: each[0])
    say(f"chosen: {chosen}, {fps:,.0f} env steps/s; the run's config.json keeps it")
    return fastest


def candidates(resolved: Resolved) -> Iterator[tuple[tuple[str, ...], Resolved]]:
    """Plans that this experiment could run under, as arguments, with sizes for this machine."""
    cores = max(2, len(os.sched_getaffinity(0)))
    sizes = [n for n in range(2, cores + 1) if resolved.experiment.num_envs % n == 0]
    several = resolved.experiment.num_envs > 1
    halves = [n for n in sizes if n <= cores // 2]
    plans = [
        ("--plan", "fused"),
        *(("--plan", "threads", "--plan.actors.replicas", str(n)) for n in sizes[:1]),
        ("--plan", "replicated", "--plan.learners.replicas", "1"),
        *(
            ("--plan", "inline", "--plan.actors.replicas", str(n))
            for n in sorted({1, *halves[-1:], *sizes[-1:]} if several else ())
        ),
    ]
    kept = without(resolved.overrides, "--plan")
    for arguments in plans:
        with suppress(PlanError):
            yield arguments, with_overrides(resolved, (*kept, *arguments))


def _measure(resolved: Resolved, path: Path, pace: float) -> Measured:
    """Measures in another process: the same run, without an end, in a folder of its own."""
    experiment = resolved.experiment
    steps = int(experiment.steps_per_update)
    every = max(1, round(pace / _REPORTS_A_SECOND))
    kept = without(resolved.overrides, "--env-steps", "--updates", "--report-every")
    budget = ("--env-steps", str(_MOST_UPDATES * steps), "--report-every", str(every))
    folder = create_run(with_overrides(resolved, (*kept, *budget)), path)
    arguments = (str(folder.path), str(SECONDS))
    # Not by pipes: what an environment has started may hold them open.
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        with Child(
            "srl.launch.measure", *arguments, stdout=out, stderr=errors, dies_with_parent=True
        ) as child:
            code = child.reap().code
        out.seek(0)
        errors.seek(0)
        lines, problems = out.read().splitlines(), errors.read().strip().splitlines()
    if code or not lines:
        last = problems[-1:] or [f"it ended with code {code}"]
        raise RunError(last[0])
    answer = json.loads(lines[-1])
    if "error" in answer:
        raise RunError(answer["error"])
    return Measured(**answer)
