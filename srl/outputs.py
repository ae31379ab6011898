"""Files that commands write: complete, or not there."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from srl.errors import UserError


def expect_place(flag: str, file: Path) -> None:
    """Raises UserError unless `file`, given as `flag`, can be a file in a folder that exists."""
    if not file.absolute().parent.is_dir():
        raise UserError(f"{flag} {file}: there is no folder {file.parent}; make it first")
    if file.is_dir():
        raise UserError(f"{flag} {file} is a folder; give the name of a file")


def write_whole(file: Path, content: bytes) -> None:
    """Writes a file; what stood there before stays until all is written.

    Raises:
        UserError: If it cannot be written.
    """
    unfinished = file.with_name(f".{file.name}.unfinished")
    try:
        unfinished.write_bytes(content)
        unfinished.replace(file)
    except OSError as error:
        raise UserError(f"cannot write {file}: {error.strerror}") from error
    finally:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
