"""Replays in files: what was remembered since the last checkpoint is written, and read again."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from srl.algorithms.replay import Replay
from srl.core.errors import RunError, Unwritable, UserError
from srl.core.lazy import jax
from srl.core.types import Array, Tree
from srl.loop.devices import local_devices
from srl.record import array_file, block_files
from srl.record.array_file import Unreadable, named_leaves
from srl.record.block_files import Blocks, Files
from srl.record.files import parse_json
from srl.system.shared_memory import available_bytes, memory_bytes, size_text

logger = logging.getLogger(__name__)

_FILE_BYTES = 1 << 28
"""The size of a file, at most about: it is in memory once more while it is written or read."""


class Saved(NamedTuple):
    """A worker's report of the replays that it has written."""

    files: dict[str, str]
    error: str = ""
    """Why they could not be written."""

    def to_bytes(self) -> np.ndarray:
        """The state as it crosses between workers: uint8 [size]."""
        return np.frombuffer(json.dumps(self).encode(), np.uint8)

    @staticmethod
    def from_bytes(body: bytes | np.ndarray) -> Saved:
        """Parses another worker's report.

        Raises:
            ValueError: If it is something else.
        """
        match parse_json(bytes(body)):
            case [dict() as files, str() as error]:
                return Saved(block_files.expect_files(files), error)
        raise ValueError("no list of a replay's files")

    @staticmethod
    def whole(parts: Sequence[Saved]) -> dict[str, str]:
        """The files of all workers.

        Raises:
            Unwritable: If one of them could not write.
        """
        for part in parts:
            if part.error:
                raise Unwritable(part.error)
        return {name: checksum for part in parts for name, checksum in part.files.items()}


class ReplayFiles:
    """The files that hold the replays of a part of the run's slots."""

    def __init__(self, part: int = 0, parts: int = 1) -> None:
        """Is for this part of the slots, of equal ones; knows no file yet."""
        self._part, self._parts = part, parts
        self._files: dict[str, str] = {}
        self._saves = 0

    def rewind(self, n: int) -> None:
        """Forgets what is newer than version n: learning has gone back to it."""
        self._files = {name: x for name, x in self._files.items() if _blocks(name).end <= n}

    def save(self, folder: Path, replays: Tree, n: int, alive: Callable[[], None]) -> Saved:
        """Writes what is new.

        Args:
            folder: For the files; it is made if it is absent.
            replays: Of each policy, for the slots of this part, on one device.
            n: Updates done.
            alive: Called before each file is written.
        """
        leaves = named_leaves(replays)
        if not leaves:
            return Saved({})
        self.rewind(n)
        oldest = _oldest(replays, n)
        files = {name: x for name, x in self._files.items() if _blocks(name).end > oldest}
        files = self._intact(folder, files, alive)
        rings = _rings(replays)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for first, end in _lacking(files, oldest, n, _blocks_each(leaves, rings)):
                alive()
                arrays = {name: _taken(leaves[name], first, end, n) for name in rings}
                if end == n:  # what changes is written whole, with the newest blocks
                    others = {name: x for name, x in leaves.items() if name not in rings}
                    arrays |= {name: np.array(x, order="C") for name, x in others.items()}
                name = Blocks(first, end, self._part, self._parts).name
                files[name] = array_file.write(folder / name, arrays, {})
                block_files.read(folder, name, files[name])  # as the disk gives it back
        except OSError as error:
            return Saved({}, f"cannot save the replay in {folder}: {error.strerror or error}")
        except Unreadable as error:
            return Saved({}, f"cannot save the replay in {folder}: {error}")
        self._files = files
        return Saved(files)

    def _intact(self, folder: Path, files: Files, alive: Callable[[], None]) -> dict[str, str]:
        """Gives the files that are as they were written; the rest is still in memory.

        Of most only the header is looked at. One file is read through, another one each time.
        """
        whole = sorted(files)[self._saves % len(files)] if files else ""
        self._saves += 1
        intact: dict[str, str] = {}
        for name, checksum in files.items():
            alive()
            check = block_files.read if name == whole else block_files.expect_header
            try:
                check(folder, name, checksum)
                intact[name] = checksum
            except Unreadable as error:
                logger.warning("%s; it is written again", error)
        return intact

    def load(
        self, folder: Path, files: Files, replays: Tree, n: int, alive: Callable[[], None]
    ) -> Tree:
        """Gives the replays as they were saved after n updates.

        Slots of which a checkpoint holds no replay, since their worker was away when it was made,
        begin with an empty one; a warning reports it.

        Args:
            folder: Of the files.
            files: What a checkpoint lists, of whichever division of the slots.
            replays: Empty ones, on one device; their memory is taken.
            n: The checkpoint's updates.
            alive: Called before each file is read.

        Raises:
            UserError: If they are of another form.
            RunError: If a file cannot be read.
        """
        leaves, structure = named_leaves(replays), jax.tree.structure(replays)
        rings, known = _rings(replays), set[int]()
        for name, checksum in files.items():
            blocks = _blocks(name)
            if not blocks.meets(self._part, self._parts):
                continue
            alive()
            try:
                arrays = block_files.read(folder, name, checksum)
            except Unreadable as error:
                raise RunError(f"cannot go on from checkpoint {n}: {error}") from error
            for leaf, x in leaves.items():
                ring = leaf in rings
                if ring or blocks.end == n:
                    array, column = self._columns(leaf, x, arrays, blocks, ring=ring)
                    if blocks.end == n:
                        known.update(range(column, column + array.shape[2]))
                    place = blocks.end if ring else len(x)
                    leaves[leaf] = _with_blocks(x, array, column, place, n if ring else place)
        own = (name for name in files if _blocks(name).meets(self._part, self._parts))
        self._files = {name: files[name] for name in own}
        slots = next((x.shape[2] for x in leaves.values()), 0)
        if len(known) < slots:
            lost = f"{slots - len(known)} of the {slots} slots here, whose learner was away"
            logger.warning("checkpoint %d holds no replay of %s: it begins empty", n, lost)
        return structure.unflatten(leaves.values())

    def _columns(
        self,
        name: str,
        x: Array,
        arrays: Mapping[str, np.ndarray],
        blocks: Blocks,
        *,
        ring: bool,
    ) -> tuple[np.ndarray, int]:
        """The slots of a file that are in x as well, and which column of x they begin at."""
        array = arrays.get(name, np.zeros(0))
        width, own = array.shape[2] if array.ndim > 2 else 0, x.shape[2]
        form = array.dtype, width * blocks.parts, array.shape[1:2], array.shape[3:]
        expected = x.dtype, own * self._parts, x.shape[1:2], x.shape[3:]
        if form != expected or not (ring or len(array) == len(x)):
            raise UserError(
                f"the checkpoint's replay is of another form: {name} is {array.dtype}"
                f"{list(array.shape)} in {blocks.name} and {x.dtype}{list(x.shape)} here, in part "
                f"{self._part} of {self._parts}; restore the settings that it was made with"
            )
        there, here = blocks.part * width, self._part * own
        low, high = max(there, here), min(there + width, here + own)
        return array[:, :, low - there : high - there], low - here


def expect_room(replays: Tree, neighbours: int = 1) -> None:
    """Checks that memory would hold replays, before any of it is allocated.

    Args:
        replays: Their shapes, of the slots here.
        neighbours: Workers with as large ones that share the memory, this one among them.

    Raises:
        UserError: With their size, and what makes them smaller.
    """
    size, devices = tree_bytes(replays), local_devices()
    if devices[0].platform == "cpu":
        free, whole = available_bytes(), memory_bytes()
    else:
        known = [device.memory_stats() or {} for device in devices]
        whole = sum(stats.get("bytes_limit", size * neighbours) for stats in known)
        free = whole - sum(stats.get("bytes_in_use", 0) for stats in known)
    if size > free or size * neighbours > whole:
        each = f", of each of {neighbours} learners here" if neighbours > 1 else ""
        raise UserError(
            f"the replay would take {size_text(size)} of memory{each}; {size_text(free)} of "
            f"{size_text(whole)} are free; give a smaller algorithm.replay, or a plan with "
            "learners on more hosts"
        )


def tree_bytes(tree: Tree) -> int:
    """The size of all arrays of a tree, of which only shapes and types are looked at."""
    return sum(math.prod(x.shape) * x.dtype.itemsize for x in jax.tree.leaves(tree))


def _blocks(name: str) -> Blocks:
    blocks = Blocks.named(name)
    assert blocks is not None, name
    return blocks


def _rings(replays: Tree) -> set[str]:
    """The names of the arrays of which an update changes one block alone, that of its number."""

    def marked(node: Any) -> Any:
        ring = isinstance(node, Replay)
        return jax.tree.map(lambda _: ring, node)

    marks = jax.tree.map(marked, replays, is_leaf=lambda node: isinstance(node, Replay))
    return {name for name, ring in named_leaves(marks).items() if ring}


def _oldest(replays: Tree, n: int) -> int:
    """The first update of which anything is remembered; n where nothing is."""
    nodes = jax.tree.leaves(replays, is_leaf=lambda node: isinstance(node, Replay))
    known = [np.array(node.update) for node in nodes if isinstance(node, Replay)]
    return min((int(x[x >= 0].min()) for x in known if (x >= 0).any()), default=n)


def _blocks_each(leaves: Mapping[str, Array], rings: set[str]) -> int:
    """So many blocks make a file."""
    size = sum(leaves[name].nbytes // len(leaves[name]) for name in rings)
    return max(1, _FILE_BYTES // max(size, 1))


def _lacking(files: Files, oldest: int, n: int, most: int) -> list[tuple[int, int]]:
    """The ranges of updates from the oldest to n that no file holds, in parts of `most`.

    Without any file there is at least an empty one.
    """
    begin, ranges = oldest, list[tuple[int, int]]()
    held = sorted((_blocks(name).begin, _blocks(name).end) for name in files)
    for first, end in [*held, (n, n)]:
        ranges += [(k, min(k + most, first)) for k in range(begin, first, most)]
        begin = max(begin, end)
    return ranges or ([] if files else [(n, n)])


def _runs(begin: int, end: int, blocks: int) -> Iterator[tuple[int, int, int]]:
    """Gives the places of the blocks of updates in a ring: (place in the ring, offset, count).

    Counts are powers of two, so that few programs are compiled.
    """
    at = begin
    while at < end:
        place = at % blocks
        count = 1 << (min(end - at, blocks - place).bit_length() - 1)
        yield place, at - begin, count
        at += count


def _taken(x: Array, begin: int, end: int, n: int) -> np.ndarray:
    """The blocks of updates from a ring after n updates, as far as they are still in it."""
    begin = min(max(begin, n - len(x)), end)
    taken = np.empty((end - begin, *x.shape[1:]), x.dtype)
    for place, offset, count in _runs(begin, end, len(x)):
        taken[offset : offset + count] = _slice()(x, place, count)
    return taken


def _with_blocks(x: Array, array: np.ndarray, column: int, end: int, n: int) -> Array:
    """A ring after n updates with the blocks up to update `end`, from a column on."""
    begin = max(end - len(array), n - len(x))
    array = array[len(array) - max(end - begin, 0) :]
    for place, offset, count in _runs(begin, end, len(x)):
        x = _write()(x, array[offset : offset + count], place, column)
    return x


@cache
def _slice() -> Callable[[Array, int, int], Array]:
    return jax.jit(jax.lax.dynamic_slice_in_dim, static_argnums=2)


@cache
def _write() -> Callable[[Array, np.ndarray, int, int], Array]:
    """Writes [k, rows, b, ...] into x at a place of its first axis and of its third."""

    def write(x: Array, part: Array, place: Array, column: Array) -> Array:
        rest = [0] * (x.ndim - 3)
        return jax.lax.dynamic_update_slice(x, part, (place, 0, column, *rest))

    return jax.jit(write, donate_argnums=0)
