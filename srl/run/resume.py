"""A run that goes on: from which checkpoint, to what budget, for how long."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from srl.config.experiment import Resolved
from srl.config.overrides import without
from srl.core.errors import RunError, UserError, expect
from srl.record.array_file import SUFFIX
from srl.record.checkpoint import BEST, LATER, Checkpoints
from srl.record.files import is_count, short_path, write_atomically
from srl.record.run_record import RunFolder
from srl.run.folder import record
from srl.run.metrics import FILE, REVERTED_FILE, read_metrics


def made_ready(
    folder: RunFolder,
    resolved: Resolved,
    say: Callable[[str], object],
    *,
    env_steps: int | None = None,
    updates: int | None = None,
    minutes: float | None = None,
    version: int | None = None,
    partial_replay: bool = False,
    anew: bool = False,
) -> Resolved:
    """Makes a run ready to go on; gives it with its new budget and limit of time, if there are any.

    All is checked before the run's folder is changed.

    Args:
        folder: The run's.
        resolved: The run.
        say: Shows a line of text.
        env_steps: The budget in all, if it changes. The run no longer ends at its target of
            evaluation if it has reached that.
        updates: The same, in updates.
        minutes: The limit of time for each start, if it changes; infinity for none.
        version: As for `choose_start`; so are the others.
        partial_replay: This.
        anew: This.

    Raises:
        UserError: When so much is done already, there is no such checkpoint, or another process
            trains the run.
        Damaged: When the checkpoint cannot be read.
    """
    before = resolved
    if env_steps is not None or updates is not None:
        budget = {"env_steps": env_steps, "updates": updates}
        resolved = _extended(folder, resolved, **budget, version=version)
    if minutes is not None:
        resolved = _limited(resolved, None if minutes == math.inf else minutes)
    choose_start(folder, say, version=version, partial_replay=partial_replay, anew=anew)
    if resolved is not before:
        with folder.locked():
            record(folder, resolved)
    return resolved


def choose_start(
    folder: RunFolder,
    say: Callable[[str], object],
    *,
    version: int | None = None,
    partial_replay: bool = False,
    anew: bool = False,
) -> None:
    """Makes a run ready to go on from a checkpoint.

    Args:
        folder: The run's.
        say: Shows a line of text.
        version: The updates of the checkpoint; the newest by default.
        partial_replay: Whether to leave out blocks of its replay that are damaged.
        anew: Whether a run that has trained and has no checkpoint may begin anew.

    Raises:
        UserError: When there is no such checkpoint, or another process trains the run.
        Damaged: When the checkpoint cannot be read.
    """
    if version is not None:
        for later in return_to(folder, version, partial_replay=partial_replay):
            say(f"checkpoint {later.stem} is later, and kept as {later}")
    expect_progress(folder, anew=anew)
    if partial_replay:
        with folder.locked():
            left_out = Checkpoints(folder.checkpoints).leave_out_damaged_blocks()
        say(left_out or "no block of the replay is damaged")


def expect_progress(folder: RunFolder, *, anew: bool = False) -> None:
    """Raises UserError if a run has trained and has no checkpoint, unless it may begin anew."""
    if anew or Checkpoints(folder.checkpoints).versions() or not (folder.path / FILE).exists():
        return
    done = max((report["env_steps"] for report in read_metrics(folder.path)), default=0)
    if done:
        raise UserError(
            f"{folder.path} has no checkpoint to go on from, and its metrics reach {done:,} env "
            f"steps: `srl resume {short_path(folder.path)} --anew` (in Python anew=True) trains "
            f"from the beginning, and keeps them in {REVERTED_FILE}"
        )


def _extended(
    folder: RunFolder,
    resolved: Resolved,
    *,
    env_steps: int | None,
    updates: int | None,
    version: int | None,
) -> Resolved:
    """The same run with a larger budget than that of a version."""
    from srl.run.evaluation import target_reached  # loads the trainer, which acting does without

    name, budget = ("env_steps", env_steps) if updates is None else ("updates", updates)
    if env_steps is not None and updates is not None:
        raise UserError("give --env-steps or --updates, not both")
    kept = without(resolved.overrides, "--env-steps", "--updates", "--pause-at")
    option = f"--{name.replace('_', '-')}"
    # The experiment's file may have a pause.
    overrides = (*kept, "--pause-at", "none", option, str(budget))
    changes: dict[str, Any] = {"updates": None, "pause_at": None, name: budget}
    experiment = dataclasses.replace(resolved.experiment, **changes)
    evaluation = experiment.evaluation
    checkpoints = Checkpoints(folder.checkpoints)
    later = version is not None and _best_updates(checkpoints) > version  # it is set aside
    if evaluation and not later and target_reached(evaluation, checkpoints):
        overrides = (*overrides, "--evaluation.target", "none")
        evaluation = dataclasses.replace(evaluation, target=None)
        experiment = dataclasses.replace(experiment, evaluation=evaluation)
    experiment.validate()
    counts = checkpoints.newest_counts() if version is None else checkpoints.metadata(version)
    done = counts[name] if counts else 0
    if budget is not None and budget <= done:
        raise UserError(f"{option} {budget}: {done} are done already; give more")
    return dataclasses.replace(resolved, experiment=experiment, overrides=overrides)


def _limited(resolved: Resolved, minutes: float | None) -> Resolved:
    """The same run with another limit of time for each start."""
    text = "none" if minutes is None else str(minutes)
    overrides = resolved.overrides
    if resolved.target:
        overrides = (*without(overrides, "--minutes"), "--minutes", text)
    experiment = dataclasses.replace(resolved.experiment, minutes=minutes)
    experiment.validate()
    return dataclasses.replace(resolved, experiment=experiment, overrides=overrides)


def return_to(folder: RunFolder, version: int, *, partial_replay: bool = False) -> list[Path]:
    """Makes a version the newest checkpoint of a run; later ones are renamed.

    Returns:
        Where the later ones are now.

    Raises:
        UserError: When there is no such version, or another process trains the run.
        Damaged: When it cannot be read.
    """
    expect(is_count(version), "version", version, "a number of updates")
    with folder.locked():
        checkpoints = Checkpoints(folder.checkpoints)
        checkpoints.restore(version)
        if not partial_replay:
            checkpoints.check_replay(version)
        later: list[int | str] = [other for other in checkpoints.versions() if other > version]
        if _best_updates(checkpoints) > version:
            later.append(BEST)  # it would end the run by its target
        return [checkpoints.set_aside(other, LATER) for other in later]


@contextlib.contextmanager
def unchanged_on_error(folder: RunFolder, say: Callable[[str], object]) -> Iterator[None]:
    """Restores a run's settings and later checkpoints if the body of the `with` fails."""
    config, aside = folder.config.read_bytes(), {*folder.checkpoints.glob(f"*.{LATER}*")}
    try:
        yield
    except BaseException:
        for path in {*folder.checkpoints.glob(f"*.{LATER}*")} - aside:
            path.rename(path.with_name(f"{path.stem}{SUFFIX}"))
            say(f"checkpoint {path.stem} counts again")
        if folder.config.read_bytes() != config:
            write_atomically(folder.config, config)
        raise


def _best_updates(checkpoints: Checkpoints) -> int:
    """The updates of the best version; -1 where there is none, or it is damaged."""
    with contextlib.suppress(UserError, RunError):
        updates = checkpoints.metadata(BEST).get("updates")
        return updates if isinstance(updates, int) else -1
    return -1
