"""Follows a run that an engine runs elsewhere: shows what its controller shows, until it ends."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from pathlib import Path

from srl.errors import UserError
from srl.launch.folder import RunFolder
from srl.launch.host_words import read_outcome
from srl.launch.local import FAILED, INTERRUPTED
from srl.launch.terminal import shown
from srl.metrics import FILE

Say = Callable[[str], object]
"""Shows a line."""
_LOOK_SECONDS, _ASK_SECONDS = 0.5, 5.0


def follow(
    folder: RunFolder,
    terminal: Path,
    alive: Callable[[], str],
    refused: Callable[[], str],
    stop: Callable[[], None],
    say: Say,
) -> int:
    """Shows a run until it ends, or until the user leaves.

    Args:
        folder: The run's.
        terminal: The file that holds what the controller shows; from where it is now.
        alive: What the engine says of the run's jobs, asked now and then; empty if it knows none.
        refused: What the engine says of a host that cannot take part, asked as often.
        stop: Ends the run after a checkpoint.
        say: Shows a line.

    Returns:
        The run's exit code once it has ended; 130 if the user has left it running.

    Raises:
        UserError: If a host cannot take part, and nothing was learned yet; then the run is ended.
    """
    told = lacking = seen = ""
    learned_before = _size(folder)
    with contextlib.ExitStack() as stack:
        file = None
        next_look = 0.0
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
                if time.monotonic() >= next_look:
                    next_look = time.monotonic() + _ASK_SECONDS
                    state = _asked(alive, told or "unknown")
                    if not state and read_outcome(folder.path) is None:
                        return _without_result(folder, say)
                    before, seen = seen, _asked(refused, seen)
                    # What has just ended may be about to tell how: so this is looked at twice.
                    if seen == before != lacking and read_outcome(folder.path) is None:
                        lacking = seen
                        if _size(folder) == learned_before:
                            stop()
                            raise UserError(lacking)
                        say(lacking)
                    if state != told and not shown_now:
                        say(f"jobs: {state}")
                        told = state
                time.sleep(_LOOK_SECONDS)
            except KeyboardInterrupt:
                if not _asked_to_stop():
                    say(f"left running; `srl top {shown(folder)}` shows it again")
                    return INTERRUPTED
                try:
                    stop()
                    say("it ends after a checkpoint")
                except UserError as error:
                    say(str(error))


def _without_result(folder: RunFolder, say: Say) -> int:
    """Tells of a run whose jobs have ended, and not said how."""
    if not any(folder.path.glob("logs/*")):
        raise UserError(
            f"the run's jobs have ended before they could write into {folder.path}/logs: the run's "
            "folder has to be on a file system that all nodes share; choose one with --run-dir"
        )
    say(f"the run's jobs have ended without a result; see {shown(folder)}/logs")
    return FAILED


def _size(folder: RunFolder) -> int:
    """Of the metrics, in bytes: they grow as soon as something is learned."""
    file = folder.path / FILE
    return file.stat().st_size if file.exists() else 0


def _asked(ask: Callable[[], str], before: str) -> str:
    """What the engine says; as before if it does not answer."""
    try:
        return ask()
    except UserError:
        return before


def _asked_to_stop() -> bool:
    """Whether the user wants the run to end rather than to go on without a terminal."""
    if not sys.stdin.isatty():
        return False
    sys.stderr.write("\nend the run after a checkpoint (e), or leave it running (Enter)? ")
    sys.stderr.flush()
    try:
        return sys.stdin.readline().strip().lower().startswith("e")
    except KeyboardInterrupt:
        return False
