"""Runs that an engine places on a cluster: given to it, followed, ended."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from srl.config.experiment import Resolved
from srl.core.errors import RunError, UserError
from srl.launch.engines import ray, slurm
from srl.launch.engines.engine import (
    TERMINAL,
    Engine,
    Submission,
    names_file,
    read_names,
    write_names,
)
from srl.launch.engines.needs import needs_of
from srl.launch.follow import Jobs, follow
from srl.record.run_record import RunFolder, find_run, read_config
from srl.run.folder import create_run
from srl.run.follow_here import Say, follow_here, stop_here
from srl.run.resume import made_ready, unchanged_on_error
from srl.run.status import BEGUN_FILE, OUTCOME_FILE, UNROLLS_FILE, read_outcome
from srl.run.terminal import shown
from srl.streams.transport.keys import create_keys, key_file

ENGINES: dict[str, Engine] = {"slurm": slurm, "ray": ray}
"""The engines by the name that `--on` takes."""


def run_elsewhere(resolved: Resolved, options: Any, say: Say) -> int:
    """Gives a new run to an engine and follows it; with `--dry-run` shows what it would be given.

    Returns:
        The exit code of the run, or 130 if the user has left it running.
    """
    if options.dry_run:
        folder = RunFolder((options.run_dir or Path("RUN_DIR")).absolute())
        texts = ENGINES[options.on].texts(_submission(resolved, folder, options, say))
        several = [f"# {name}\n{text}" for name, text in texts.items()]
        say("\n".join(several if len(several) > 1 else texts.values()))
        return 0
    folder = create_run(resolved, options.run_dir)
    try:
        jobs = _submit(_submission(resolved, folder, options, say))
    except BaseException:
        folder.discard()
        raise
    say(jobs)
    return follow(_given(folder), say, new=True)


def resume_elsewhere(
    folder: RunFolder, resolved: Resolved, options: Any, say: Say, **start: Any
) -> int:
    """Gives a run to an engine, to go on with; as `run_elsewhere`. `start`: see `made_ready`."""
    run = _submission(resolved, folder, options, say)
    with unchanged_on_error(folder, say):
        made_ready(folder, resolved, say, **start)
        with folder.locked():  # it may train on this machine
            refuse_running(folder)  # or have been submitted since the command began
            jobs = _submit(run)
    say(jobs)
    return follow(_given(folder), say, new=True)


def attach(path: Path, say: Say) -> int:
    """Follows a run, here or elsewhere, and never ends it; returns as `run_elsewhere`."""
    folder = find_run(path)
    return follow_here(folder, say) if _is_here(folder) else follow(_given(folder), say, new=False)


def stop(path: Path, say: Say) -> int:
    """Ends a run, here or elsewhere, after a checkpoint; does not wait for that."""
    folder = find_run(path)
    if _is_here(folder):
        say(stop_here(folder))
        return 0
    jobs = _given(folder)
    if read_outcome(folder.path) is not None:
        say(f"{shown(folder)} has ended; `srl resume {shown(folder)}` goes on with it")
    else:
        say(jobs.stop())
    return 0


def refuse_running(folder: RunFolder) -> None:
    """Raises UserError if an engine still has the run, so that no other process may resume it."""
    if read_outcome(folder.path) is None and (name := _engine_of(folder)) is not None:
        jobs = _given(folder)
        try:
            goes_on = jobs.engine.states(jobs.names)
        except RunError:  # it has failed
            return
        except UserError as error:
            file = names_file(folder.path, name)
            raise UserError(
                f"{shown(folder)} may go on elsewhere: {error}; if it cannot, remove {file}"
            ) from error
        if goes_on:
            raise UserError(
                f"{shown(folder)} goes on elsewhere; `srl top {shown(folder)}` shows it, and "
                f"`srl stop {shown(folder)}` ends it"
            )


def comes_back(folder: RunFolder) -> None:
    """Records that a run is trained on this machine now; raises as `refuse_running`."""
    with folder.locked():
        refuse_running(folder)  # it may have been submitted since the command began
        for name in ENGINES:
            names_file(folder.path, name).unlink(missing_ok=True)


def goes_on(folder: RunFolder) -> bool:
    """Tells if Slurm still has the job of a run's controller; True if that is not known."""
    if _engine_of(folder) != "slurm":  # or the names of the jobs are not written yet
        return True
    try:
        controller = dict(itertools.islice(_given(folder).names.items(), 1))  # its job comes first
        return not controller or bool(slurm.states(controller))
    except UserError:
        return True


def _is_here(folder: RunFolder) -> bool:
    """Tells if a run trains on this machine, or did last."""
    read_config(folder)  # it raises where there is no run
    return folder.trained_by() is not None or _engine_of(folder) is None


def _engine_of(folder: RunFolder) -> str | None:
    return next((name for name in ENGINES if names_file(folder.path, name).exists()), None)


def _given(folder: RunFolder) -> Jobs:
    """The jobs of a run that was given to an engine."""
    name = _engine_of(folder)
    assert name is not None, "asked only of runs that were given to one"
    return Jobs(folder, ENGINES[name], read_names(names_file(folder.path, name), "run"))


def _submit(run: Submission) -> str:
    """Gives a run to its engine, and records the names of the jobs; gives a line with them."""
    folder, on = run.folder, run.options.on
    earlier = [
        key_file(folder.path),
        *(folder.path / name for name in (OUTCOME_FILE, BEGUN_FILE, UNROLLS_FILE)),
        folder.log(TERMINAL),
        *(names_file(folder.path, name) for name in ENGINES),  # it may have been elsewhere
    ]
    with _put_aside(earlier):
        create_keys(folder.path)  # anew: no process of an earlier submission can take part
        names = ENGINES[on].submit(run)
        try:
            write_names(names_file(folder.path, on), names)
        except BaseException:  # without their names nothing could stop the jobs
            with contextlib.suppress(UserError):
                ENGINES[on].stop(names)
            raise
    jobs = ", ".join(f"{what} {name}" for what, name in names.items())
    return f"submitted {shown(folder)}: {jobs}"


@contextlib.contextmanager
def _put_aside(files: Sequence[Path]) -> Iterator[None]:
    """Removes files; restores them if the body of the `with` fails.

    Files that a killed process has left aside are treated alike.
    """
    aside = {file: file.with_suffix(".before") for file in files}
    for file, kept in aside.items():
        if file.exists():
            file.replace(kept)
    try:
        yield
    except BaseException:
        for file, kept in aside.items():
            if kept.exists():
                kept.replace(file)
        raise
    for kept in aside.values():
        kept.unlink(missing_ok=True)


def _submission(resolved: Resolved, folder: RunFolder, options: Any, say: Say) -> Submission:
    experiment = resolved.experiment
    if experiment.plan == "auto":
        raise UserError("--plan auto measures this machine; name a plan for a cluster")
    plan = experiment.settled_plan
    if plan.processes == 1:
        raise UserError(
            f"the plan {plan.name} runs in one process: start `srl run` itself as a job, or choose "
            "another plan, such as --plan decoupled"
        )
    evaluates = experiment.evaluation is not None
    needs = needs_of(experiment)
    if needs.unknown:
        say(
            f"the environment cannot be made here ({needs.unknown}), so its memory is not counted: "
            f"--plan.{plan.home('step')}.memory names what its workers take"
        )
    return Submission(plan, folder, experiment.name, options, evaluates, needs.memory)
