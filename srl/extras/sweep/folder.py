"""The folder of a sweep: its runs' folders, and Optuna's journal, which records its trials."""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from srl.core.errors import UserError
from srl.core.optional_packages import install_command
from srl.record.files import short_path, writing

JOURNAL = "sweep.journal"
_STUDY = "sweep"
_ASKED = "asked"


def import_optuna() -> Any:
    """Imports Optuna; raises UserError if it is not installed."""
    try:
        optuna: Any = importlib.import_module("optuna")
    except ImportError:
        raise UserError(f"Optuna is not installed: {install_command('sweep')}") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Makes the folder of a sweep, and keeps a second command from running the same sweep.

    Raises:
        UserError: If one does, or the folder cannot be written.
    """
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                f"another command runs the sweep in {short_path(folder)}; give --sweep-dir "
                "another folder, or end that command first"
            ) from None
        yield
    finally:
        os.close(lock)


def open_study(folder: Path, asked: Mapping[str, Any], *, minimize: bool) -> Any:
    """Opens Optuna's study in a folder that is locked, or begins one.

    Args:
        folder: The sweep's.
        asked: The values of the command, as JSON holds them: another command's sweep is another.
        minimize: Whether a smaller objective is better.

    Raises:
        UserError: If the folder holds another sweep, something else, or a damaged file, or Optuna
            is not installed.
    """
    file, optuna = folder / JOURNAL, import_optuna()
    if not file.exists() and any(name != "lock" for name in os.listdir(folder)):
        raise UserError(
            f"{short_path(folder)} holds something else than a sweep; give --sweep-dir another "
            "folder"
        )
    # Of a command that was killed: no other one writes here now.
    file.with_name(f"{JOURNAL}.lock").unlink(missing_ok=True)
    try:
        _cut_half_a_line(file)
        backend = optuna.storages.journal.JournalFileBackend(str(file))
        study = optuna.create_study(
            study_name=_STUDY,
            storage=optuna.storages.JournalStorage(backend),
            direction="minimize" if minimize else "maximize",
            load_if_exists=True,
        )
        if _ASKED not in study.user_attrs:
            study.set_user_attr(_ASKED, dict(asked))
    except OSError as error:
        raise UserError(f"cannot read or write {file}: {error.strerror}") from error
    except Exception as error:  # of Optuna, which checks little by itself
        raise UserError(
            f"{file} is no sweep of this srl; give --sweep-dir another folder"
        ) from error
    _expect_same(folder, study.user_attrs[_ASKED], asked)
    return study


def _cut_half_a_line(file: Path) -> None:
    """Ends the journal after its last whole line: a disk may have been full, a machine lost."""
    written = file.read_bytes() if file.exists() else b""
    if not written.endswith(b"\n"):
        with file.open("ab") as journal:
            journal.truncate(written.rfind(b"\n") + 1)


def _expect_same(folder: Path, before: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    others = [
        f"with {name.replace('_', ' ')}: {_text(before.get(name))} (here {_text(value)})"
        for name, value in asked.items()
        if before.get(name) != value
    ]
    if others:
        raise UserError(
            f"{short_path(folder)} holds another sweep, {' and '.join(others)}; give --sweep-dir "
            "another folder"
        )


def _text(value: Any) -> str:
    return (" ".join(map(str, value)) or "none") if isinstance(value, list) else str(value)
