"""Runs that an engine places on a cluster. The engine starts processes; all else is the same."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from srl.errors import UserError
from srl.experiment import Resolved, plan_of
from srl.launch import slurm
from srl.launch.folder import RunFolder, create_run, find_run
from srl.launch.follow import follow
from srl.launch.host_words import forget_outcome
from srl.launch.local import in_processes
from srl.launch.terminal import shown
from srl.streams.keys import create_keys, key_file

Say = Callable[[str], object]


def run_elsewhere(resolved: Resolved, options: Any, say: Say) -> int:
    """Gives a new run to an engine and follows it; with `--dry-run` shows what it would be given.

    Args:
        resolved: What is to run.
        options: Of the command line.
        say: Shows a line.

    Returns:
        The exit code of the run, or 130 if the user has left it running.
    """
    plan = _plan(resolved)
    words = _words(options)
    if options.dry_run:
        folder = RunFolder((options.run_dir or Path("RUN_DIR")).absolute())
        texts = slurm.scripts(plan, folder, resolved.experiment.name, words)
        return _shown(say, "\n".join(f"# {name}.sh\n{text}" for name, text in texts.items()))
    folder = create_run(resolved, options.run_dir)
    try:
        return _submitted(folder, resolved, words, say)
    except UserError:
        folder.discard()
        raise


def resume_elsewhere(folder: RunFolder, resolved: Resolved, options: Any, say: Say) -> int:
    """Gives a run to an engine, to go on with; as `run_elsewhere`."""
    return _submitted(folder, resolved, _words(options), say)


def attach(path: Path, say: Say) -> int:
    """Follows a run that was given to an engine; returns as `run_elsewhere`."""
    folder = find_run(path)
    numbers = list(slurm.submitted(folder).values())

    def stop() -> None:
        slurm.cancel(numbers[:1], gently=True)

    def alive() -> str:
        return ", ".join(sorted(slurm.states(numbers)))

    return follow(folder, slurm.terminal(folder), alive, stop, say)


def stop(path: Path, say: Say) -> int:
    """Ends a run that was given to an engine, after a checkpoint; does not wait for that."""
    folder = find_run(path)
    slurm.cancel(list(slurm.submitted(folder).values())[:1], gently=True)
    return _shown(say, f"it ends after a checkpoint; `srl top {shown(folder)}` shows when")


def _submitted(folder: RunFolder, resolved: Resolved, words: list[str], say: Say) -> int:
    if not key_file(folder.path).exists():
        create_keys(folder.path)
    forget_outcome(folder.path)
    slurm.terminal(folder).unlink(missing_ok=True)
    texts = slurm.scripts(_plan(resolved), folder, resolved.experiment.name, words)
    numbers = slurm.submit(folder, texts)
    told = ", ".join(f"{fragment} {number}" for fragment, number in numbers.items())
    say(f"submitted {shown(folder)}: {told}")
    return attach(folder.path, say)


def _plan(resolved: Resolved):
    experiment = resolved.experiment
    if experiment.plan == "auto":
        raise UserError("--plan auto measures this machine; name a plan for a cluster")
    plan = plan_of(experiment)
    if not in_processes(plan):
        raise UserError(
            f"the plan {plan.name} runs in one process: start `srl run` itself as a job, or choose "
            "another plan, such as --plan decoupled"
        )
    return dataclasses.replace(plan)


def _words(options: Any) -> list[str]:
    named = {
        name: getattr(options, name) for name in ("partition", "account", "constraint", "time")
    }
    return [*(f"--{name}={value}" for name, value in named.items() if value), *options.sbatch]


def _shown(say: Say, text: str) -> int:
    say(text)
    return 0
