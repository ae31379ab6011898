"""Follows a run that an engine runs elsewhere: shows what its controller shows, until it ends."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from srl.errors import UserError
from srl.run.folder import RunFolder
from srl.run.status import has_begun, read_outcome
from srl.run.terminal import FAILED, INTERRUPTED, shown

Say = Callable[[str], object]
"""Shows a line."""
_LOOK_SECONDS, _ASK_SECONDS = 0.5, 5.0
_GONE_SECONDS = 60.0  # without jobs: a shared folder may show late how the run has ended


@dataclass(frozen=True)
class Jobs:
    """What an engine can be asked and told about a run."""

    alive: Callable[[], str]
    """What it says of the run's jobs; empty if it knows none."""
    refused: Callable[[], str]
    """What it says of a host that cannot take part; empty if all can."""
    stop: Callable[[], str]
    """Ends the run, after a checkpoint if it trains; gives what becomes of it, in words."""
    new: bool
    """Whether they were submitted by this command, which then ends them if they cannot begin."""


def follow(folder: RunFolder, terminal: Path, jobs: Jobs, say: Say) -> int:
    """Shows a run until it ends, or until the user leaves.

    Args:
        folder: The run's.
        terminal: The file that holds what the controller shows; from where it is now.
        jobs: The run's, which are asked after now and then.
        say: Shows a line.

    Returns:
        The run's exit code once it has ended; 130 if the user has left it running.

    Raises:
        UserError: If a host cannot take part, and new jobs have not begun; then the run is ended.
    """
    watch = _JobMonitor(folder, jobs, say)
    with contextlib.ExitStack() as stack:
        file = None
        while True:
            try:
                if file is None and terminal.exists():
                    file = stack.enter_context(terminal.open(errors="replace"))
                shown_now = file.read() if file else ""
                sys.stdout.write(shown_now)
                sys.stdout.flush()
                code = read_outcome(folder.path)
                if code is not None and not shown_now:
                    return code
                if watch.over(quiet=not shown_now):
                    return _without_result(folder, say)
                time.sleep(_LOOK_SECONDS)
            except KeyboardInterrupt:
                if not asked_to_stop():
                    say(f"left running; `srl top {shown(folder)}` shows it again")
                    return INTERRUPTED
                try:
                    say(jobs.stop())
                except UserError as error:
                    say(str(error))


class _JobMonitor:
    """Asks after the jobs of a run now and then, and tells what has changed."""

    def __init__(self, folder: RunFolder, jobs: Jobs, say: Say) -> None:
        self._folder, self._jobs, self._say = folder, jobs, say
        self._next_ask = 0.0
        self._told = self._unfit = self._told_unfit = ""
        self._gone_at: float | None = None

    def over(self, *, quiet: bool) -> bool:
        """Whether no job has been left for long of a run that has not said how it ended.

        Args:
            quiet: Whether the states of jobs may be told: nothing else is being shown.
        """
        if time.monotonic() < self._next_ask:
            return False
        self._next_ask = time.monotonic() + _ASK_SECONDS
        state = _asked(self._jobs.alive, self._told or "unknown")
        if state:
            self._gone_at = None
        elif self._gone_at is None:
            self._gone_at = time.monotonic()
        elif time.monotonic() > self._gone_at + _GONE_SECONDS and self._goes_on():
            return True
        self._look_for_unfit()
        if state not in ("", self._told) and quiet:
            self._say(f"jobs: {state}")
            self._told = state
        return False

    def _look_for_unfit(self) -> None:
        """Tells of a host that cannot take part; looks twice: it may be about to tell how it ended.

        Raises:
            UserError: If the jobs are new and the run has not begun; it is ended.
        """
        before, self._unfit = self._unfit, _asked(self._jobs.refused, self._unfit)
        if self._unfit != before or self._unfit == self._told_unfit or not self._goes_on():
            return
        self._told_unfit = self._unfit
        if not self._unfit:
            return
        if self._jobs.new and not has_begun(self._folder.path):
            self._jobs.stop()
            raise UserError(self._unfit)
        self._say(self._unfit)

    def _goes_on(self) -> bool:
        return read_outcome(self._folder.path) is None


def _without_result(folder: RunFolder, say: Say) -> int:
    """Tells of a run whose jobs have ended, and not said how."""
    if not any(folder.path.glob("logs/*")):
        raise UserError(
            f"the run's jobs have ended before they could write into {folder.path}/logs: the run's "
            "folder has to be on a file system that all nodes share; choose one with --run-dir"
        )
    say(f"the run's jobs have ended without a result; see {shown(folder)}/logs")
    return FAILED


def _asked(ask: Callable[[], str], before: str) -> str:
    """What the engine says; as before if it does not answer."""
    try:
        return ask()
    except UserError:
        return before


def asked_to_stop() -> bool:
    """Whether the user wants the run to end rather than to go on without a terminal."""
    if not sys.stdin.isatty():
        return False
    sys.stderr.write("\nend the run after a checkpoint (e), or leave it running (Enter)? ")
    sys.stderr.flush()
    try:
        return sys.stdin.readline().strip().lower().startswith("e")
    except KeyboardInterrupt:
        return False
