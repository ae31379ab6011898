"""Runs that an engine places on a cluster. The engine starts processes; all else is the same."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from srl.checkpoint import Checkpoints
from srl.errors import RunError, UserError
from srl.experiment import Resolved
from srl.files import parse_json
from srl.launch.engines import ray, slurm
from srl.launch.engines.engine import TERMINAL, Engine, Submission, names_file
from srl.launch.engines.packed_run import first_files
from srl.launch.local import in_processes
from srl.run.folder import RunFolder, create_run, find_run, read_config
from srl.run.follow import Jobs, Say, follow
from srl.run.follow_here import follow_here, stop_here
from srl.run.status import BEGUN_FILE, OUTCOME_FILE, read_outcome, write_outcome
from srl.run.terminal import INTERRUPTED, shown
from srl.streams.transport.keys import create_keys, key_file

ENGINES: dict[str, Engine] = {"slurm": slurm, "ray": ray}
"""By the name that `--on` takes."""


def run_elsewhere(resolved: Resolved, options: Any, say: Say) -> int:
    """Gives a new run to an engine and follows it; with `--dry-run` shows what it would be given.

    Args:
        resolved: What is to run.
        options: Of the command line.
        say: Shows a line.

    Returns:
        The exit code of the run, or 130 if the user has left it running.
    """
    if options.dry_run:
        folder = RunFolder((options.run_dir or Path("RUN_DIR")).absolute())
        with tempfile.TemporaryDirectory() as scratch:
            made = create_run(resolved, Path(scratch) / "run")
            run = _submission(resolved, folder, options, made)
        texts = ENGINES[options.on].texts(run)
        several = [f"# {name}\n{text}" for name, text in texts.items()]
        say("\n".join(several if len(several) > 1 else texts.values()))
        return 0
    folder = create_run(resolved, options.run_dir)
    try:
        _submit(_submission(resolved, folder, options), say)
    except UserError:
        folder.discard()
        raise
    return _follow(folder, say, new=True)


def resume_elsewhere(folder: RunFolder, resolved: Resolved, options: Any, say: Say) -> int:
    """Gives a run to an engine, to go on with; as `run_elsewhere`."""
    with folder.locked():  # it may train on this machine
        _submit(_submission(resolved, folder, options), say)
    return _follow(folder, say, new=True)


def attach(path: Path, say: Say) -> int:
    """Follows a run, here or elsewhere, and never ends it; returns as `run_elsewhere`."""
    folder = find_run(path)
    return follow_here(folder, say) if _is_here(folder) else _follow(folder, say, new=False)


def _follow(folder: RunFolder, say: Say, *, new: bool) -> int:
    engine, names = _given(folder)

    def alive() -> str:
        return ", ".join(sorted(engine.states(names)))

    def refused() -> str:
        return engine.refused(names)

    jobs = Jobs(alive, refused, lambda: _stop(folder, engine, names), new)
    return follow(folder, folder.log(TERMINAL), jobs, say)


def stop(path: Path, say: Say) -> int:
    """Ends a run, here or elsewhere, after a checkpoint; does not wait for that."""
    folder = find_run(path)
    if _is_here(folder):
        say(stop_here(folder))
        return 0
    engine, names = _given(folder)
    if read_outcome(folder.path) is not None:
        say(f"{shown(folder)} has ended; `srl resume {shown(folder)}` goes on with it")
        return 0
    say(_stop(folder, engine, names))
    return 0


def _stop(folder: RunFolder, engine: Engine, names: Mapping[str, str]) -> str:
    """Ends a run; gives what becomes of it, in words."""
    if engine.stop(names):
        return f"it ends after a checkpoint; `srl top {shown(folder)}` shows when"
    if read_outcome(folder.path) is not None:  # by itself, just now
        return f"{shown(folder)} has ended"
    write_outcome(folder.path, INTERRUPTED)
    with contextlib.closing(Checkpoints(folder.checkpoints)) as checkpoints:
        version = checkpoints.latest()
    if version is None:
        return f"cancelled before it began; `srl resume {shown(folder)}` begins it"
    return (
        f"cancelled while it waited for a host; `srl resume {shown(folder)}` goes on after update "
        f"{version}"
    )


def refuse_running(folder: RunFolder) -> None:
    """Raises UserError if an engine still has the run, which another may then not go on with."""
    if read_outcome(folder.path) is None and (name := _engine_of(folder)) is not None:
        engine, names = _given(folder)
        try:
            goes_on = engine.states(names)
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


def _is_here(folder: RunFolder) -> bool:
    """Whether a run trains on this machine, or did last."""
    read_config(folder)  # which says so where there is no run
    return folder.trained_by() is not None or _engine_of(folder) is None


def _engine_of(folder: RunFolder) -> str | None:
    return next((name for name in ENGINES if names_file(folder.path, name).exists()), None)


def _given(folder: RunFolder) -> tuple[Engine, dict[str, str]]:
    """The engine that a run was given to, and how that calls it."""
    name = _engine_of(folder)
    assert name is not None, "asked only of runs that were given to one"
    return ENGINES[name], _names(names_file(folder.path, name))


def _names(file: Path) -> dict[str, str]:
    """How an engine calls what it was given."""
    try:
        names = parse_json(file.read_bytes())
    except (OSError, ValueError) as error:
        raise _lost(file, error) from error
    if not isinstance(names, dict) or not all(isinstance(x, str) for x in names.values()):
        raise _lost(file, "it is no object of texts")
    return names


def _lost(file: Path, reason: object) -> UserError:
    return UserError(
        f"{file} does not tell the names of the run's jobs any more ({reason}); if they have "
        "ended, remove it"
    )


def _submit(run: Submission, say: Say) -> None:
    folder, on = run.folder, run.options.on
    told_before = [
        key_file(folder.path),
        *(folder.path / name for name in (OUTCOME_FILE, BEGUN_FILE)),
        folder.log(TERMINAL),
        *(names_file(folder.path, name) for name in ENGINES),  # it may have been elsewhere
    ]
    with _put_aside(told_before):
        create_keys(folder.path)  # anew: nobody of an earlier submission can take part
        names = ENGINES[on].submit(run)
    names_file(folder.path, on).parent.mkdir(exist_ok=True)
    names_file(folder.path, on).write_text(json.dumps(names) + "\n")
    told = ", ".join(f"{what} {name}" for what, name in names.items())
    say(f"submitted {shown(folder)}: {told}")


@contextlib.contextmanager
def _put_aside(files: Sequence[Path]) -> Iterator[None]:
    """Removes files, unless what is done meanwhile fails: then they are as they were."""
    aside = {file: file.with_suffix(".before") for file in files if file.exists()}
    for file, kept in aside.items():
        file.replace(kept)
    try:
        yield
    except BaseException:
        for file, kept in aside.items():
            kept.replace(file)
        raise
    for kept in aside.values():
        kept.unlink()


def _submission(
    resolved: Resolved, folder: RunFolder, options: Any, made: RunFolder | None = None
) -> Submission:
    experiment = resolved.experiment
    if experiment.plan == "auto":
        raise UserError("--plan auto measures this machine; name a plan for a cluster")
    plan = experiment.settled_plan
    if not in_processes(plan):
        raise UserError(
            f"the plan {plan.name} runs in one process: start `srl run` itself as a job, or choose "
            "another plan, such as --plan decoupled"
        )
    return Submission(plan, folder, experiment.name, options, first_files(made or folder))
