"""Follows a run that an engine runs elsewhere: shows what its controller shows, until it ends."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from srl.core.errors import UserError
from srl.launch.engines.engine import TERMINAL, Engine
from srl.record.checkpoint import Checkpoints
from srl.record.run_record import RunFolder
from srl.run.follow_here import Say, asked_to_stop
from srl.run.status import has_begun, read_outcome, write_outcome
from srl.run.terminal import FAILED, INTERRUPTED, shown

_LOOK_SECONDS, _ASK_SECONDS = 0.5, 5.0
_GONE_SECONDS = 60.0  # without jobs: a shared folder may show late how the run has ended


@dataclass(frozen=True)
class Jobs:
    """A run that was given to an engine."""

    folder: RunFolder
    engine: Engine
    names: Mapping[str, str]
    """The engine's names of the run's jobs."""

    def stop(self) -> str:
        """Ends the run, after a checkpoint if it trains; gives a line that reports it.

        Raises:
            UserError: If it is another user's, whose file may name any jobs, or the engine does not
                answer.
        """
        run = shown(self.folder)
        if (owner := self.folder.config.stat().st_uid) != os.geteuid():
            raise UserError(f"{run} belongs to user {owner}, who alone can stop it")
        if self.engine.stop(self.names):
            return f"it ends after a checkpoint; `srl top {run}` shows when"
        if read_outcome(self.folder.path) is not None:  # by itself, just now
            return f"{run} has ended"
        write_outcome(self.folder.path, INTERRUPTED)
        version = Checkpoints(self.folder.checkpoints).latest()
        if version is None:
            return f"cancelled before it began; `srl resume {run}` begins it"
        return (
            f"cancelled while it waited for a host; `srl resume {run}` goes on after update "
            f"{version}"
        )


def follow(jobs: Jobs, say: Say, *, new: bool) -> int:
    """Shows a run until it ends, or until the user leaves.

    Args:
        jobs: The run.
        say: Shows a line.
        new: Whether the caller has submitted the jobs, which end if they cannot begin.

    Returns:
        The run's exit code once it has ended; 130 if the user has left it running.

    Raises:
        UserError: If a host cannot take part, and new jobs have not begun; then the run is ended.
    """
    folder = jobs.folder
    terminal = folder.log(TERMINAL)
    watch = _JobMonitor(jobs, say, new)
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
    """Polls the jobs of a run, and reports changes."""

    def __init__(self, jobs: Jobs, say: Say, new: bool) -> None:
        self._jobs, self._say, self._new = jobs, say, new
        self._next_ask = 0.0
        self._reported = self._unfit = self._reported_unfit = ""
        self._gone_at: float | None = None

    def over(self, *, quiet: bool) -> bool:
        """Tells if a run that has no outcome has had no jobs for long.

        Args:
            quiet: True if no other text is being shown, so that the states of jobs may be.
        """
        if time.monotonic() < self._next_ask:
            return False
        self._next_ask = time.monotonic() + _ASK_SECONDS
        state = _asked(self._states, self._reported or "unknown")
        if state:
            self._gone_at = None
        elif self._gone_at is None:
            self._gone_at = time.monotonic()
        elif time.monotonic() > self._gone_at + _GONE_SECONDS and self._goes_on():
            return True
        self._look_for_unfit()
        if state not in ("", self._reported) and quiet:
            self._say(f"jobs: {state}")
            self._reported = state
        return False

    def _look_for_unfit(self) -> None:
        """Reports a host that cannot take part; looks twice: its run may be about to end."""
        before, self._unfit = self._unfit, _asked(self._refused, self._unfit)
        if self._unfit != before or self._unfit == self._reported_unfit or not self._goes_on():
            return
        self._reported_unfit = self._unfit
        if not self._unfit:
            return
        if self._new and not has_begun(self._jobs.folder.path):
            self._jobs.stop()
            raise UserError(self._unfit)
        self._say(self._unfit)

    def _goes_on(self) -> bool:
        return read_outcome(self._jobs.folder.path) is None

    def _states(self) -> str:
        return ", ".join(sorted(self._jobs.engine.states(self._jobs.names)))

    def _refused(self) -> str:
        return self._jobs.engine.refused(self._jobs.names)


def _without_result(folder: RunFolder, say: Say) -> int:
    """Reports a run whose jobs have ended without an outcome."""
    if not any(folder.path.glob("logs/*")):
        raise UserError(
            f"the run's jobs have ended before they could write into {folder.path}/logs: the run's "
            "folder has to be on a file system that all nodes share; choose one with --run-dir"
        )
    say(f"the run's jobs have ended without a result; see {shown(folder)}/logs")
    return FAILED


def _asked(ask: Callable[[], str], before: str) -> str:
    """The engine's answer; the one before if it does not answer."""
    try:
        return ask()
    except UserError:
        return before
