"""Files of blocks beside checkpoints: each is written once, and the checkpoints share them.

A block is what one update adds to a replay, and a file holds the blocks of a range of updates for
some of the slots. A checkpoint lists the files that it needs, each with its checksum: to save a
large replay again costs no more than what is new in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Set
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from srl.record import array_file
from srl.record.array_file import SUFFIX, Unreadable
from srl.record.files import UNFINISHED

Files = Mapping[str, str]
"""The checksums of files by name."""


class Blocks(NamedTuple):
    """The contents of a block file, as its name gives them."""

    begin: int
    """The first update."""
    end: int
    """The update after the last."""
    part: int
    """The index of the part of the slots, from 0; all parts are of one size."""
    parts: int

    @property
    def name(self) -> str:
        """The file's."""
        return f"{self.begin}-{self.end}.{self.part}of{self.parts}{SUFFIX}"

    @staticmethod
    def named(name: str) -> Blocks | None:
        """Parses a block file's name; None for other files."""
        found = re.fullmatch(rf"(\d+)-(\d+)\.(\d+)of(\d+){re.escape(SUFFIX)}", name, re.ASCII)
        return None if found is None else Blocks(*map(int, found.groups()))

    def meets(self, part: int, parts: int) -> bool:
        """Tells if the file holds slots of part `part` of a division into `parts`."""
        before = (self.part + 1) * parts <= part * self.parts
        after = self.part * parts >= (part + 1) * self.parts
        return not (before or after)


def expect_files(listed: Any) -> dict[str, str]:
    """Gives what a checkpoint lists.

    Raises:
        ValueError: If srl has not written it.
    """
    good = isinstance(listed, dict) and all(
        Blocks.named(name) and isinstance(checksum, str) for name, checksum in listed.items()
    )
    if not good:
        raise ValueError("its list of the replay's files is none")
    return listed


def read(folder: Path, name: str, checksum: str) -> dict[str, np.ndarray]:
    """The arrays of a file by name.

    Raises:
        Unreadable: If it is absent or damaged, or another one than was listed.
    """
    expect_header(folder, name, checksum)
    try:
        return array_file.read(folder / name)[0]
    except Unreadable as error:
        raise Unreadable(f"{folder.name}/{name}: {error}") from None


def expect_header(folder: Path, name: str, checksum: str) -> None:
    """Raises Unreadable unless a file has its length, and the checksum that was listed."""
    try:
        if array_file.read_header(folder / name)[1] != checksum:
            raise Unreadable("it is of another checkpoint")
    except Unreadable as error:
        raise Unreadable(f"{folder.name}/{name}: {error}") from None


def damaged(folder: Path, files: Files, alive: Callable[[], None]) -> dict[str, Unreadable]:
    """Reads all of the files, `alive` before each; gives those that are damaged, and why."""
    found: dict[str, Unreadable] = {}
    for name, checksum in files.items():
        alive()
        try:
            read(folder, name, checksum)
        except Unreadable as error:
            found[name] = error
    return found


def remove_unused(folder: Path, used: Set[str], newest: int) -> None:
    """Removes files that no checkpoint uses; those of one after the newest may be in the making."""
    for file in folder.glob(f"*{SUFFIX}"):
        blocks = Blocks.named(file.name.removeprefix(UNFINISHED))
        if blocks is not None and blocks.end <= newest and file.name not in used:
            file.unlink(missing_ok=True)
