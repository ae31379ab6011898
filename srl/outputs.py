"""Files that are complete, or as they were before."""

from __future__ import annotations

import os
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
    """Writes what a command gives; what stood there before stays until all is written.

    Raises:
        UserError: If it cannot be written.
    """
    try:
        replace_whole(file, content)
    except OSError as error:
        raise UserError(f"cannot write {file}: {error.strerror}") from error


def replace_whole(file: Path, content: bytes, *, durable: bool = False) -> None:
    """Writes a file; what stood there before stays until all is written.

    Args:
        file: In a folder that exists.
        content: All of it.
        durable: Wait until the disk has it, so that it outlasts a loss of power.

    Raises:
        OSError: If it cannot be written; nothing is left of it.
    """
    unfinished = file.with_name(f".{file.name}.unfinished")
    try:
        with unfinished.open("wb") as written:
            written.write(content)
            if durable:
                written.flush()
                os.fsync(written.fileno())
        unfinished.replace(file)
    except BaseException:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise
