"""The state of a run, as its processes record it in its folder for others."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from srl.dataflow.plan import MOST_LEARNERS
from srl.loop.learning.unroll_ledger import Account, Ledger
from srl.loop.stage import Stage
from srl.record.files import is_count, read_object, write_atomically, write_output
from srl.record.json_shape import COUNT, fits

ADDRESS_FILE = "controller.json"
"""The file of the run's folder with the controller's address."""
OUTCOME_FILE = "outcome.json"
"""The file of the run's folder that records how the run has ended."""
BEGUN_FILE = "begun.json"
"""The file of the run's folder that is there once all workers that the run needs have begun."""
UNROLLS_FILE = "unrolls.json"
"""The file of the run's folder with the account of unrolls of a run on several hosts."""
_PARTS = {str: (COUNT,) * Ledger.NUMBERS}
STAGE_FILE = "stage.json"
"""The file of the run's folder with the stage of a training on this machine."""


def write_address(folder: Path, address: str) -> int:
    """Records the controller's address for hosts that share the run's folder.

    Returns:
        The controller's term: how many there were before it.

    Raises:
        UserError: If it cannot be written.
    """
    before = read_object(folder / ADDRESS_FILE).get("term")
    term = before + 1 if isinstance(before, int) else 0
    write_output(folder / ADDRESS_FILE, _text({"address": address, "term": term}))
    return term


def read_address(folder: Path) -> str | None:
    """The address of the controller, or of the last one; None where none is recorded."""
    address = read_object(folder / ADDRESS_FILE).get("address")
    return address if isinstance(address, str) else None


def note_begun(folder: Path) -> None:
    """Records that all workers that the run needs have begun."""
    _write(folder / BEGUN_FILE, {"begun": True})


def has_begun(folder: Path) -> bool:
    """Tells if the run has begun since it was given to an engine."""
    return "begun" in _read_new(folder / BEGUN_FILE)


def note_unrolls(folder: Path, parts: Mapping[int, Account]) -> None:
    """Records the account of unrolls for the controller after this one: each learner's part."""
    with contextlib.suppress(OSError):  # then fewer are known as rolled back
        _write(folder / UNROLLS_FILE, {str(learner): part for learner, part in parts.items()})


def read_unrolls(folder: Path) -> dict[int, Account]:
    """The parts of the account that the last controller has recorded; empty without any."""
    values = read_object(folder / UNROLLS_FILE)
    if not fits(values, _PARTS):
        return {}
    known = {str(learner): learner for learner in range(MOST_LEARNERS)}
    parts = {known[name]: Account(*part) for name, part in values.items() if name in known}
    return {learner: part for learner, part in parts.items() if part.adds_up}


def write_outcome(folder: Path, code: int, reason: str = "") -> None:
    """Records how a run has ended: the exit code, and the reason of a failure where it is known.

    Raises:
        OSError: If it cannot be written.
    """
    _write(folder / OUTCOME_FILE, {"code": code, "reason": reason})


def read_outcome(folder: Path) -> int | None:
    """The exit code of a run that has ended; None before."""
    code = _read_new(folder / OUTCOME_FILE).get("code")
    return code if is_count(code) and code < 256 else None


def read_reason(folder: Path) -> str:
    """Why a run has failed; empty where that is not recorded."""
    reason = read_object(folder / OUTCOME_FILE).get("reason")
    return reason if isinstance(reason, str) else ""


def note_stage(folder: Path, stage: Stage, details: str = "") -> None:
    """Records the stage, and how far it is, of a run on this machine before its first report."""
    with contextlib.suppress(OSError):  # on a full disk; then only `srl top` lacks it
        _write(folder / STAGE_FILE, {"stage": stage, "details": details})


def read_stage(folder: Path) -> tuple[Stage, str] | None:
    """The stage that a run was in last, and how far; None where that is not recorded."""
    values = read_object(folder / STAGE_FILE)
    details = values.get("details")
    with contextlib.suppress(ValueError):
        return Stage(values.get("stage")), details if isinstance(details, str) else ""
    return None


def _write(file: Path, values: dict[str, Any]) -> None:
    write_atomically(file, _text(values))


def _text(values: dict[str, Any]) -> bytes:
    return (json.dumps(values) + "\n").encode()


def _read_new(file: Path) -> dict[str, Any]:
    """Reads a file that may be new, which NFS may show only once it has listed the folder."""
    with contextlib.suppress(OSError):
        os.listdir(file.parent)
    return read_object(file)
