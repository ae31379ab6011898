"""Runs that a process of this machine trains, as other processes show and end them."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from srl.core.errors import UserError
from srl.loop.stage import Stage
from srl.record.checkpoint import Checkpoints
from srl.record.files import is_count
from srl.record.run_record import RunFolder
from srl.run.display import Display
from srl.run.folder import recorded_budget
from srl.run.metrics import FILE, is_evaluation, report_of
from srl.run.status import read_outcome, read_reason, read_stage
from srl.run.terminal import DONE, FAILED, INTERRUPTED, MISTAKEN, shown
from srl.run.train_loop import finished

Say = Callable[[str], object]
"""Shows a line."""
_LOOK_SECONDS = 0.5


def stop_here(folder: RunFolder) -> str:
    """Has the process that trains a run end it after a checkpoint; gives a line that reports it.

    Raises:
        UserError: If that is a process of another machine, or another user's.
    """
    trainer = folder.trained_by()
    if trainer is None:
        return f"{shown(folder)} has ended; `srl resume {shown(folder)}` goes on with it"
    pid, host = trainer
    if host != socket.gethostname():
        raise UserError(f"{shown(folder)} is trained on {host or 'another host'}; stop it there")
    try:
        os.kill(pid, signal.SIGTERM)
    except OSError as error:
        raise UserError(f"cannot stop process {pid}, which trains it: {error.strerror}") from error
    return f"it ends after a checkpoint; `srl top {shown(folder)}` shows when"


def follow_here(folder: RunFolder, say: Say) -> int:
    """Shows the reports of a run, from the last one on, until it ends or the user leaves.

    Returns:
        0 if the run is finished; 130 if it was stopped before, or the user has left it running; its
        own exit code if it has failed.
    """
    experiment = recorded_budget(folder)
    reports, started = _Reports(folder.path / FILE), False
    with contextlib.closing(Display(experiment)) as display:
        while True:
            try:
                trains = folder.trained_by() is not None
                new = reports.new()
                if trains and not started and (noted := read_stage(folder.path)):
                    display.stage(*noted)
                    # Before its first step, reports are of an earlier training.
                    new = new if noted[0] in (Stage.STEPPING, Stage.SAVING) else []
                for report in new if started else new[-1:]:
                    started = True
                    display.report(report)
                if not trains:
                    break
                time.sleep(_LOOK_SECONDS)
            except KeyboardInterrupt:
                if not asked_to_stop():
                    say(f"left running; `srl top {shown(folder)}` shows it again")
                    return INTERRUPTED
                say(stop_here(folder))
    if done := finished(experiment, Checkpoints(folder.checkpoints)):
        say(f"{shown(folder)} is finished: {done}")
        return DONE
    code, how = read_outcome(folder.path), "ended"
    if code in (FAILED, MISTAKEN):
        how = f"failed: {read_reason(folder.path) or 'the reason is not recorded'}"
        how += f"; its logs are in {shown(folder)}/logs"
    elif reason := read_reason(folder.path):
        how = f"ended: {reason}"
    say(f"{shown(folder)} has {how}; `srl resume {shown(folder)}` goes on with it")
    return INTERRUPTED if code is None else code


def asked_to_stop() -> bool:
    """Asks if the user wants the run to end rather than to go on without a terminal."""
    if not sys.stdin.isatty():
        return False
    sys.stderr.write("\nend the run after a checkpoint (e), or leave it running (Enter)? ")
    sys.stderr.flush()
    try:
        return sys.stdin.readline().strip().lower().startswith("e")
    except KeyboardInterrupt:
        return False


class _Reports:
    """The lines of a run's metrics, as they are written."""

    def __init__(self, file: Path) -> None:
        self._file, self._inode, self._read = file, 0, 0

    def new(self) -> list[dict[str, Any]]:
        """The reports since the last call; broken ones are left out."""
        try:
            with self._file.open("rb") as file:
                inode = os.fstat(file.fileno()).st_ino
                if inode != self._inode:  # a resumed run writes the file anew
                    self._inode, self._read = inode, 0
                file.seek(self._read)
                text = file.read()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise UserError(f"cannot read {self._file}: {error.strerror}") from error
        whole = text[: text.rfind(b"\n") + 1]
        self._read += len(whole)
        reports = map(report_of, whole.splitlines())
        trained = (r for r in reports if r and not is_evaluation(r))
        return [_shown(r) for r in trained if is_count(r.get("updates"))]


def _shown(report: dict[str, Any]) -> dict[str, Any]:
    """The values of a report that a display can show: numbers, and one text."""
    return {
        name: value
        for name, value in report.items()
        if isinstance(value, str if name == "bottleneck" else int | float)
    }
