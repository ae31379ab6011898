"""Files that are complete, or as they were before."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from srl.errors import UserError

UNFINISHED = ".unfinished-"
"""What the name of a file that is being written begins with."""


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


def replace_whole(file: Path, content: bytes) -> None:
    """Writes a file; what stood there before stays until all is written.

    Args:
        file: In a folder that exists.
        content: All of it.

    Raises:
        OSError: If it cannot be written; nothing is left of it.
    """
    with replacing(file) as unfinished:
        unfinished.write_bytes(content)


@contextmanager
def replacing(file: Path, *, durable: bool = False) -> Iterator[Path]:
    """Gives the path of an unfinished file, which takes the place of `file` at the end.

    Args:
        file: In a folder that exists; what stands there stays until then, or if an error is raised.
        durable: Wait until the disk has it, so that it outlasts a loss of power.

    Raises:
        OSError: If it cannot be written; nothing is left of it.
    """
    unfinished = file.with_name(f"{UNFINISHED}{file.name}")
    try:
        yield unfinished
        if durable:
            _sync(unfinished)
        unfinished.replace(file)
    except BaseException:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise
    if durable:
        _sync(file.parent)  # which holds the new name


def _sync(path: Path) -> None:
    """Returns when the disk has a file, or the names in a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
