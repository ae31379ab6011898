"""Files of a run and of commands: written whole or not at all, read although others wrote them."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeGuard

from srl.core.errors import SrlError, UserError

_DEEPEST = 100  # levels: what walks over the values may be recursive
UNFINISHED = ".unfinished-"
"""The prefix of the name of an unfinished file."""


def short_path(path: Path) -> str:
    """A path as short as it can be written from the current folder."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative


def expect_place(flag: str, file: Path) -> None:
    """Raises UserError unless `file`, given as `flag`, can be a file in a folder that exists."""
    if not file.absolute().parent.is_dir():
        raise UserError(f"{flag} {file}: there is no folder {file.parent}; make it first")
    if file.exists() and not file.is_file():
        kind = "a folder" if file.is_dir() else "a device or pipe"
        raise UserError(f"{flag} {file} is {kind}; give the name of a file")
    if str(file) == "-":
        raise UserError(f"{flag} -: output is written to a file; give its name")


def write_output(file: Path, content: bytes) -> None:
    """Writes what a command gives; what stood there before stays until all is written.

    Raises:
        UserError: If it cannot be written.
    """
    with writing(file):
        if file.exists() and not (file.is_file() or file.is_dir()):
            raise OSError(errno.EINVAL, "it is no regular file")
        write_atomically(file.resolve(), content)  # what a link names, and not the link


@contextmanager
def writing(path: Path, failure: type[SrlError] = UserError) -> Iterator[None]:
    """Raises `failure`, with the reason, where `path` cannot be written."""
    try:
        yield
    except OSError as error:
        raise failure(f"cannot write {path}: {error.strerror or error}") from error


def write_atomically(file: Path, content: bytes) -> None:
    """Writes a file in a folder that exists; what stood there stays until all is written.

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


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON text that may be damaged, or written by others.

    Raises:
        ValueError: If it is none, or is nested too deeply.
    """
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    level, depth = [value], 0
    while level:
        if depth > _DEEPEST:
            raise ValueError("it is nested too deeply")
        depth += 1
        level = [inner for outer in level for inner in _inside(outer)]
    return value


def read_object(file: Path) -> dict[str, Any]:
    """The JSON object that a file holds; empty where there is none, or it is damaged."""
    try:
        value = parse_json(file.read_bytes())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _inside(value: Any) -> list[Any]:
    """The parts of a value that may have parts themselves."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [part for part in parts if isinstance(part, dict | list)]


def is_count(value: Any) -> TypeGuard[int]:
    """Tells if a value is a whole number of at least 0 that fits into int64."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63
