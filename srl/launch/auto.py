"""`--plan auto`: trains for some seconds under each plan that may suit, and keeps the fastest."""

from __future__ import annotations

import itertools
import json
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from srl.config.experiment import Resolved, with_overrides
from srl.config.overrides import without
from srl.core.errors import PlanError, UserError
from srl.launch.measure import Measured
from srl.record.run_record import RunFolder
from srl.run.folder import create_run, record
from srl.system.background.cpu_limit import whole_cores_granted
from srl.system.gpus import jax_gpus
from srl.system.supervised import Child

SECONDS = 1.5
"""The time for which each plan is measured, once it is warm."""
_AS_FAST = 0.97
"""The part of the highest speed from which on a plan counts as fast; of these, one with the fewest
processes is taken."""
_REPORTS_A_SECOND = 4.0
_POLL_SECONDS = 0.1
_MOST_UPDATES = 1_000_000  # so that no budget ends before the measuring does


def settled(folder: RunFolder, resolved: Resolved, say: Callable[[str], object]) -> Resolved:
    """The run with its plan chosen, which its folder then records; as it is, if it names one.

    Raises:
        UserError: If the experiment runs under no plan; with the last plan's reason.
    """
    if resolved.experiment.plan != "auto":
        return resolved
    with folder.locked(), _interrupted_by_sigterm():
        resolved = choose(resolved, say)
        record(folder, resolved)
    return resolved


@contextmanager
def _interrupted_by_sigterm() -> Iterator[None]:
    """Lets SIGTERM, which `srl stop` sends, end the measuring as Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def choose(resolved: Resolved, say: Callable[[str], object]) -> Resolved:
    """The run with the plan that is fastest here, as arguments of the command line."""
    experiment = resolved.experiment
    found: list[tuple[float, str, Resolved]] = []
    reason, pace = "none fits", 0.0  # updates a second
    plans = list(candidates(resolved))
    say(f"trains for {SECONDS:g} s under each of {len(plans)} plans, once it is warm:")
    with tempfile.TemporaryDirectory(prefix="srl-auto-", ignore_cleanup_errors=True) as scratch:
        for _, group in itertools.groupby(plans, key=lambda plan: _process_of(plan[1])):
            members = list(group)
            folders = [_folder(each, Path(scratch), pace) for each in members]
            for (arguments, candidate), measured in zip(members, _measured(folders), strict=True):
                name = " ".join(arguments)
                if isinstance(measured, str):
                    reason = measured
                    say(f"{name}: not measured: {reason}")
                    continue
                say(f"{name}: {measured.fps:,.0f} env steps/s; {measured.bottleneck}")
                pace = max(pace, measured.fps / experiment.steps_per_update)
                found.append((measured.fps, name, candidate))
    if not found:
        raise UserError(f"no plan could be measured: {reason}")
    least = _AS_FAST * max(fps for fps, _, _ in found)
    fast = (each for each in found if each[0] >= least)
    fps, chosen, fastest = min(fast, key=_rank)
    say(f"chosen: {chosen}, {fps:,.0f} env steps/s; the run's config.json keeps it")
    return fastest


def _rank(measured: tuple[float, str, Resolved]) -> tuple[int, float]:
    fps, _, candidate = measured
    return candidate.experiment.settled_plan.processes, -fps


def _process_of(candidate: Resolved) -> str:
    """The name of the process that measures a plan; neighbours with one name share it.

    XLA starts once in a process, with one thread or with all cores (`srl.loop.xla_threads`), and
    keeps a GPU's memory.
    """
    plan = candidate.experiment.settled_plan
    if plan.processes > 1:
        return "of controllers"
    return plan.name if jax_gpus() or len(plan.fragments) > 1 else "of single programs"


def candidates(resolved: Resolved) -> Iterator[tuple[tuple[str, ...], Resolved]]:
    """Plans that this experiment could run under, as arguments, with sizes for this machine.

    Those that one process can measure are neighbours.
    """
    num_envs, cores = resolved.experiment.num_envs, max(2, whole_cores_granted())
    fitting = [n for n in range(2, cores + 1) if num_envs % n == 0]
    sizes = sorted({1, *fitting[:1], *fitting[-1:]} if num_envs > 1 else ())
    one = ("--plan.actors.replicas", "1")
    plans = [
        ("--plan", "fused"),
        ("--plan", "replicated", "--plan.learners.replicas", "1"),
        *(("--plan", "threads", "--plan.actors.replicas", str(n)) for n in sizes[1:2]),
        *(("--plan", "inline", "--plan.actors.replicas", str(n)) for n in sizes),
        *(("--plan", name, *one) for name in ("central", "decoupled") if sizes),
        *(("--plan", "central", "--plan.actors.replicas", str(n)) for n in sizes[2:]),
    ]
    kept = without(resolved.overrides, "--plan")
    for arguments in plans:
        with suppress(PlanError):
            yield arguments, with_overrides(resolved, (*kept, *arguments))


def _folder(plan: tuple[tuple[str, ...], Resolved], scratch: Path, pace: float) -> Path:
    """Makes the folder of the same run without an end, for its measurement under a plan."""
    arguments, resolved = plan
    steps = int(resolved.experiment.steps_per_update)
    every = max(1, round(pace / _REPORTS_A_SECOND))
    replaced = ("--env-steps", "--updates", "--pause-at", "--report-every", "--trackers")
    budget = ("--env-steps", str(_MOST_UPDATES * steps), "--report-every", str(every))
    own = (*budget, "--pause-at", "none", "--trackers", "none")
    path = scratch / "_".join(arguments[1:])
    kept = without(resolved.overrides, *replaced)
    return create_run(with_overrides(resolved, (*kept, *own)), path).path


def _measured(folders: Sequence[Path]) -> Iterator[Measured | str]:
    """Measures runs in a process, one after the other; gives the reason where one fails.

    Where the process dies, another one measures those that are left.
    """
    left = list(folders)
    while left:
        for measured in _answers(tuple(left)):
            yield measured
            del left[0]


def _answers(folders: Sequence[Path]) -> Iterator[Measured | str]:
    """The results of a process, as they come; at its death a reason in place of the next one."""
    arguments = (str(SECONDS), *map(str, folders))
    # Not by pipes: what an environment has started may hold them open.
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        with Child(
            "srl.launch.measure", *arguments, stdout=out, stderr=errors, dies_with_parent=True
        ) as child:
            given, place, ended = 0, 0, False
            while not ended:
                ended = child.wait(_POLL_SECONDS)
                # The child writes where the file's position is, which pread leaves.
                new = os.pread(out.fileno(), os.fstat(out.fileno()).st_size - place, place)
                for line in new[: new.rfind(b"\n") + 1].splitlines(keepends=True):
                    answer = json.loads(line)
                    given, place = given + 1, place + len(line)
                    yield answer["error"] if "error" in answer else Measured(**answer)
            code = child.reap().code
        if given < len(folders):
            errors.seek(0)
            problems = errors.read().strip().splitlines()
            yield (problems or [f"it ended with code {code}"])[-1]
