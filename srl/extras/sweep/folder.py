"""The folder of a sweep: its runs' folders, and a file that records what was asked and chosen."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from srl.core.errors import UserError
from srl.record.files import parse_json, short_path, write_output
from srl.record.json_shape import fits

SCHEMA = 1
_FILE = "sweep.json"
_RANGE = range(1 << 31)


@dataclass
class Chosen:
    """One trial, as it is recorded."""

    settings: dict[str, str]
    """Values by flag; of a population's member those that it has now."""
    pruned: int | None = None
    """See `Trial.pruned`."""


@dataclass
class Exploit:
    """A member of a population that went on from another's checkpoint."""

    interval: int
    """The interval after which this was, from 1."""
    member: int
    source: int
    """The other member."""
    settings: dict[str, str]
    """The settings after the exchange."""


@dataclass
class Record:
    """The sweep's file, without the values of the command."""

    trials: list[Chosen] = field(default_factory=list)
    interval: int = 1
    """The interval of a population that members are trained to the end of."""
    exploits: list[Exploit] = field(default_factory=list)
    """All exchanges of a population so far."""
    pending: int = 0
    """The number of the last ones that may not have been carried out yet."""


@dataclass(frozen=True)
class SweepFolder:
    """The paths of a sweep."""

    path: Path

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Makes the folder, and keeps a second command from running the same sweep.

        Raises:
            UserError: If one does, or the folder cannot be written.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise UserError(f"cannot write {self.path}: {error.strerror}") from error
        try:
            self._lock(lock)
            yield
        finally:
            os.close(lock)

    def _lock(self, file: int) -> None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                f"another command runs the sweep in {short_path(self.path)}; give --sweep-dir "
                "another folder, or end that command first"
            ) from None

    def read(self, asked: Mapping[str, Any]) -> Record:
        """Reads the record; gives a new one in a new folder.

        Args:
            asked: What the command asks for, as JSON holds it.

        Raises:
            UserError: If the folder holds another sweep, something else, or a damaged file.
        """
        file = self.path / _FILE
        try:
            values = parse_json(file.read_bytes())
        except FileNotFoundError:
            if any(name != "lock" for name in os.listdir(self.path)):
                raise UserError(
                    f"{short_path(self.path)} holds something else than a sweep; give --sweep-dir "
                    "another folder"
                ) from None
            return Record()
        except (OSError, ValueError) as error:
            raise UserError(f"cannot read {file}: {error}") from error
        if not fits(values, _SHAPE) or values["schema"] != SCHEMA:
            raise UserError(f"{file} is no sweep of this srl; give --sweep-dir another folder")
        for name, value in asked.items():
            before = values["asked"].get(name)
            if before != value:
                raise UserError(
                    f"{short_path(self.path)} holds another sweep, with {name.replace('_', ' ')}: "
                    f"{_text(before)}, and not {_text(value)}; give --sweep-dir another folder"
                )
        record = values["record"]
        return Record(
            [Chosen(trial["settings"], trial["pruned"]) for trial in record["trials"]],
            record["interval"],
            [
                Exploit(each["interval"], each["member"], each["source"], each["settings"])
                for each in record["exploits"]
            ],
            record["pending"],
        )

    def write(self, asked: Mapping[str, Any], record: Record) -> None:
        """Records the sweep.

        Raises:
            UserError: If it cannot be written.
        """
        values = {"schema": SCHEMA, "asked": asked, "record": asdict(record)}
        write_output(self.path / _FILE, (json.dumps(values, indent=1) + "\n").encode())


_SHAPE = {
    "schema": int,
    "asked": dict,
    "record": {
        "trials": [{"settings": {str: str}, "pruned": int | None}],
        "interval": _RANGE,
        "exploits": [
            {"interval": _RANGE, "member": _RANGE, "source": _RANGE, "settings": {str: str}}
        ],
        "pending": _RANGE,
    },
}


def _text(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
