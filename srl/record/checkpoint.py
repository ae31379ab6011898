"""Checkpoints of a run: a file of arrays for each version, with a few JSON values as metadata.

A thread writes them while training goes on. Each is complete or absent, and a damaged one is
noticed, as `array_file` does it. A replay lies in files of blocks next to them, each of which is
written before the first checkpoint that needs it and removed with the last: see `block_files`.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import shutil
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from srl.core.errors import RunError, Unwritable, UserError, expect
from srl.core.lazy import jax
from srl.core.types import Tree
from srl.record import array_file, block_files
from srl.record.array_file import SUFFIX, Unreadable, copied_leaves, named_leaves
from srl.record.block_files import Files
from srl.record.files import UNFINISHED, is_count, parse_json, replacing, short_path
from srl.record.trust import cure

BEST = "best"
"""The name, in place of a number, of the version that did best when it was evaluated."""
LATER = "later"
"""The suffix of versions after the one that a run goes on from."""
_REPLAY = "replay"
"""The key of a replay's files in the metadata."""


class Damaged(RunError):
    """A checkpoint that cannot be read; an earlier one may be."""

    def __init__(
        self, version: int | str, what: str, hint: str, *, replay_only: bool = False
    ) -> None:
        super().__init__(f"{what}; {hint}")
        self.version, self.what, self.replay_only = version, what, replay_only


class Checkpoints:
    """The checkpoints of one folder; a version is the number of updates done.

    A file may also have a name, such as BEST: it holds what acting needs and can be read, but not
    be gone on from. It is none of the versions.
    """

    def __init__(self, folder: Path, keep: int = 5) -> None:
        """Opens nothing; the first save makes `folder`. The newest `keep` versions stay."""
        self.folder = folder.absolute()
        self.replay_folder = self.folder / "replay"
        self._keep = keep
        self._thread = ThreadPoolExecutor(1, "checkpoints")
        self._saving: list[Future[Any]] = []

    def versions(self) -> list[int]:
        """The versions of the complete checkpoints, oldest first.

        Raises:
            UserError: If the folder is none, cannot be read, or is of another format.
        """
        try:
            names = os.listdir(self.folder)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise UserError(
                f"cannot read the checkpoints in {self.folder}: {error.strerror}"
            ) from error
        if old := next((name for name in names if _is_number(name)), None):
            raise UserError(
                f"{self.folder / old} is a checkpoint in the format of an earlier srl, before "
                f"checkpoints were {SUFFIX} files; use the srl that wrote it"
            )
        versions = (name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX))
        return sorted(int(name) for name in versions if _is_number(name))

    def latest(self) -> int | None:
        """The newest complete checkpoint."""
        return max(self.versions(), default=None)

    def expect_room(self, tree: Tree, more_bytes: int = 0) -> str:
        """Checks that the disk has room for checkpoints of a state.

        Args:
            tree: The state, or the part of it that is known.
            more_bytes: Of replays, all of which may be new in each checkpoint.

        Returns:
            A warning where there is room for some, but not for all that are to be kept and for one
            more, which is written before the oldest goes; else nothing.

        Raises:
            UserError: If there is no room for one.
        """
        least = array_file.file_bytes(named_leaves(tree))
        size = least + more_bytes
        folder = self.folder if self.folder.is_dir() else self.folder.parent
        free = shutil.disk_usage(folder).free
        room = free // size
        wanted = self._keep + 1 - len(self.versions())
        sizes = f"of at least {size / 1e6:,.1f} MB"
        if free < least:
            raise UserError(
                f"the disk of {folder} has no room for a checkpoint {sizes}; make some, or choose "
                "another disk with --run-dir"
            )
        if room >= wanted:
            return ""
        checkpoints = "1 checkpoint" if room == 1 else f"{room} checkpoints"
        return (
            f"the disk of {folder} has room for {checkpoints} {sizes}, and the run needs "
            f"{wanted}: it ends when the disk is full; make room, or choose a lower "
            "--keep-checkpoints"
        )

    def save(
        self,
        updates: int,
        tree: Tree,
        metadata: Mapping[str, Any],
        *,
        replay_files: Files | None = None,
        wait: bool = False,
    ) -> None:
        """Starts to save `tree`, whose arrays may change as soon as this returns.

        Args:
            updates: The version.
            tree: What `restore` is to give.
            metadata: Values that JSON can hold.
            replay_files: Files in `replay_folder` that the version needs, with their checksums.
            wait: Whether to return when it is saved.

        Raises:
            Unwritable: When this save, or an earlier one that went on in the background, failed.
        """
        self.wait()
        try:
            if updates in self.versions():
                return
        except UserError as error:  # it was a folder when the run began
            raise Unwritable(f"cannot save a checkpoint in {self.folder}: {error}") from error
        values = {**metadata, **({_REPLAY: dict(replay_files)} if replay_files else {})}
        texts = {name: json.dumps(value) for name, value in values.items()}
        self._saving.append(self._thread.submit(self._write, updates, copied_leaves(tree), texts))
        if wait:
            self.wait()

    def save_best(self, arrays: dict[str, np.ndarray], metadata: Mapping[str, Any]) -> None:
        """Starts to save what acting needs of a version as BEST, in the place of the one before.

        Args:
            arrays: By the names that they have in a checkpoint; they must not change any more.
            metadata: Values that JSON can hold.
        """
        texts = {name: json.dumps(value) for name, value in metadata.items()}
        self._saving.append(self._thread.submit(self._write_best, arrays, texts))

    def check(self) -> None:
        """Raises Unwritable if a save in the background has failed by now."""
        self._expect_saved([saving for saving in self._saving if saving.done()])

    def wait(self) -> None:
        """Returns when everything is saved; raises Unwritable if it could not be."""
        self._expect_saved(self._saving)

    def _expect_saved(self, ended: list[Future[Any]]) -> None:
        self._saving = [saving for saving in self._saving if saving not in ended]
        for saving in ended:
            try:
                saving.result()
            except Exception as error:
                raise self._failure(error) from None

    def close(self) -> None:
        """Waits until everything is saved; nothing can be saved after that."""
        try:
            self.wait()
        finally:
            self._thread.shutdown()

    def metadata(self, version: int | str | None = None) -> dict[str, Any]:
        """The JSON values saved with a version; the newest by default."""
        version = self._existing(version)
        try:
            return _parsed(array_file.read_header(self._file(version))[0])
        except (Unreadable, ValueError) as error:
            raise self._damaged(version, error) from None

    def restore(
        self, version: int | str | None = None, like: Tree = None, *, partial: bool = False
    ) -> tuple[Tree, dict[str, Any]]:
        """The tree and the metadata of a version; the newest by default.

        Args:
            version: Number of updates, or the name of a file.
            like: A tree of the same structure, shapes and types, whose form the result takes.
                Without it the result is nested dicts; every array is NumPy's.
            partial: Whether the version may hold arrays that `like` does not have.

        Raises:
            UserError: No such version, or its arrays are not those of `like`.
            Damaged: It cannot be read.
        """
        version = self._existing(version)
        arrays, texts = self._read(version)
        try:
            metadata = _parsed(texts)
            if like is None:
                return _nest(arrays), metadata
        except ValueError as error:
            raise self._damaged(version, error) from None
        leaves = named_leaves(like)
        if partial:
            arrays = {name: array for name, array in arrays.items() if name in leaves}
        self._compare(version, arrays, leaves)
        return jax.tree.structure(like).unflatten([arrays[n] for n in leaves]), metadata

    def _read(self, version: int | str) -> tuple[dict[str, Any], dict[str, str]]:
        """The arrays and the texts of a version that exists; Damaged if it cannot be read."""
        try:
            return array_file.read(self._file(version))
        except Unreadable as error:
            raise self._damaged(version, error) from None

    def restore_newest(
        self, like: Tree = None, alive: Callable[[], None] = lambda: None
    ) -> tuple[Tree, list[Damaged]]:
        """The tree of the newest version that is not damaged, and what is wrong with later ones.

        Args:
            like: See `restore`.
            alive: Called now and then: the files of a replay are read through, too.

        Raises:
            UserError: There is no version, or one is not like `like`, or all lack blocks of their
                replays.
            Damaged: No version can be read.
        """
        return self._newest(lambda version: self.restore(version, like)[0], alive)

    def _newest(
        self, read: Callable[[int], Any], alive: Callable[[], None] = lambda: None
    ) -> tuple[Any, list[Damaged]]:
        """The result of `read` for the newest whole version; see `restore_newest`."""
        later: list[Damaged] = []
        for version in reversed(self.versions()):
            try:
                found = read(version)
                self.check_replay(version, alive)
                return found, later
            except Damaged as error:
                later.append(error)
        if lacking := next((error for error in later if error.replay_only), None):
            raise UserError(str(lacking))
        raise later[0] if later else UserError(f"there is no checkpoint in {self.folder}")

    def replay_files(self, version: int | str | None = None) -> dict[str, str]:
        """The files in `replay_folder` that a version needs, with their checksums.

        Raises:
            UserError: There is no such version.
            Damaged: It cannot be read.
        """
        version = self._existing(version)
        listed = self.metadata(version).get(_REPLAY, {})
        try:
            return block_files.expect_files(listed)
        except ValueError as error:
            raise self._damaged(version, error) from None

    def check_replay(self, version: int, alive: Callable[[], None] = lambda: None) -> None:
        """Raises Damaged if a block of a readable version's replay is not as it was written."""
        files = self.replay_files(version)
        damaged = block_files.damaged(self.replay_folder, files, alive)
        if damaged:
            several = "" if len(damaged) == 1 else f", and {len(damaged) - 1} others"
            raise Damaged(
                version,
                f"checkpoint {self._file(version)} lacks a part of its replay "
                f"({next(iter(damaged.values()))}{several})",
                f"`srl resume {short_path(self.folder.parent)} --partial-replay` (in Python "
                f"partial_replay=True) goes on without {len(damaged)} of the replay's "
                f"{len(files)} files",
                replay_only=True,
            )

    def leave_out_damaged_blocks(self) -> str:
        """Has the newest version that can be read list no damaged blocks of its replay any more.

        Gives a text about the files that are left out, which is empty if there are none.

        Raises:
            Unwritable: If the checkpoint cannot be written.
        """
        for version in reversed(self.versions()):
            try:
                files = self.replay_files(version)
                arrays, texts = self._read(version)
            except Damaged:
                continue
            damaged = block_files.damaged(self.replay_folder, files, lambda: None)
            if not damaged:
                return ""
            texts[_REPLAY] = json.dumps({n: x for n, x in files.items() if n not in damaged})
            try:
                array_file.write(self._file(version), arrays, texts)
            except OSError as error:
                raise self._failure(error) from None
            return (
                f"checkpoint {version} goes on without {len(damaged)} of the {len(files)} files of "
                f"its replay, which are damaged: {', '.join(damaged)}"
            )
        return ""

    def newest_counts(self) -> dict[str, int] | None:
        """`env_steps` and `updates` of the newest version of which they can be read, if any."""
        for version in reversed(self.versions()):
            with contextlib.suppress(Damaged):
                return self._counts(version, self.metadata(version))
        return None

    def learners(
        self, version: int | str | None = None, like: dict[str, Tree] | None = None
    ) -> tuple[dict[str, Any], dict[str, int]]:
        """The state of each policy's learner, and `env_steps` and `updates`; see `restore`.

        With `like`, the states hold what it holds of each policy, in its form.
        """
        version = self._existing(version)
        tree, metadata = self.restore(version, like and {"learners": like}, partial=True)
        learners = tree.get("learners")
        if not isinstance(learners, dict) or not learners:
            raise self._damaged(version, "it holds no policies")
        return learners, self._counts(version, metadata)

    def set_aside(self, version: int | str, why: str) -> Path:
        """Renames a version, so that it counts no more and is not lost; gives its path.

        The files of its replay are kept no longer: later ones may have their names. RunError is
        raised if it cannot be renamed.
        """
        names = itertools.chain([why], (f"{why}-{number}" for number in itertools.count(2)))
        paths = (self.folder / f"{version}.{name}" for name in names)
        path = next(path for path in paths if not os.path.lexists(path))
        try:
            return self._file(version).rename(path)
        except OSError as error:
            raise RunError(f"cannot rename {self._file(version)}: {error.strerror}") from error

    def adopt(self, other: Checkpoints, without: str) -> None:
        """Makes the newest version of another folder that can be read the newest here.

        It may be repeated if it was cut short. Later versions here are set aside, and the value
        `without` is left out of the metadata.

        Raises:
            UserError: The other folder has no checkpoint.
            Damaged: None of them can be read.
            Unwritable: It cannot be written here.
        """
        (version, arrays, texts), _ = other._newest(lambda number: (number, *other._read(number)))
        files = other.replay_files(version)
        texts.pop(without, None)
        for later in self.versions():
            if later > version:
                self.set_aside(later, LATER)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if files:
                self.replay_folder.mkdir(exist_ok=True)
            for name in files:
                with replacing(self.replay_folder / name, durable=True) as unfinished:
                    shutil.copyfile(other.replay_folder / name, unfinished)
            array_file.write(self._file(version), arrays, texts)
        except OSError as error:
            raise self._failure(error) from None

    def _counts(self, version: int | str, metadata: dict[str, Any]) -> dict[str, int]:
        env_steps, updates = metadata.get("env_steps"), metadata.get("updates")
        if not is_count(env_steps) or not is_count(updates):
            raise self._damaged(version, "its metadata lack counts of env steps and updates")
        return {"env_steps": env_steps, "updates": updates}

    def _existing(self, version: int | str | None) -> int | str:
        if isinstance(version, str):
            if self._file(version).exists():
                return version
            raise UserError(
                f"there is no version {version} in {self.folder}; a run whose experiment has an "
                "evaluation keeps its best"
            )
        good = version is None or is_count(version)
        expect(good, "version", version, "best, or a number of updates")
        versions = self.versions()
        if not versions:
            raise UserError(f"there is no checkpoint in {self.folder}")
        if version is not None and version not in versions:
            listed = ", ".join(map(str, versions))
            raise UserError(f"there is no version {version} in {self.folder}; it has {listed}")
        return versions[-1] if version is None else version

    def _compare(
        self, version: int | str, saved: dict[str, np.ndarray], like: dict[str, Any]
    ) -> None:
        """Raises UserError at the first array that is not the same in both."""
        here, there = _specs(like), _specs(saved)
        for name in [*here, *there]:
            if here.get(name) != there.get(name):
                raise UserError(
                    f"checkpoint {version} in {self.folder} is of another network: {name} is "
                    f"{there.get(name, 'absent')} in it and {here.get(name, 'absent')} here; "
                    f"{cure(self.folder.parent / 'config.json')}"
                )

    def _write(self, updates: int, arrays: dict[str, np.ndarray], texts: dict[str, str]) -> None:
        """Writes a version, and removes those that are too many, and what killed processes left."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for rest in self.folder.glob(f"{UNFINISHED}*"):
            rest.unlink(missing_ok=True)
        if shutil.disk_usage(self.folder).free < array_file.file_bytes(arrays):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        array_file.write(self._file(updates), arrays, texts)
        for version in self.versions()[: -self._keep]:
            self._file(version).unlink()
        if self.replay_folder.is_dir():
            used: set[str] = set()
            for version in self.versions():
                try:
                    used |= self.replay_files(version).keys()
                except Damaged:  # perhaps only now, as on a file server: nothing is removed
                    return
            block_files.remove_unused(self.replay_folder, used, updates)

    def _write_best(self, arrays: dict[str, np.ndarray], texts: dict[str, str]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        array_file.write(self._file(BEST), arrays, texts)

    def _failure(self, error: Exception) -> Unwritable:
        """The error of a save that failed; it lists the checkpoints that there are."""
        listed = ""
        with contextlib.suppress(UserError):  # there is no folder any more
            listed = ", ".join(map(str, self.versions()))
        kept = f"the earlier checkpoints ({listed}) are intact" if listed else "there is no other"
        reason = getattr(error, "strerror", None) or error
        return Unwritable(f"cannot save a checkpoint in {self.folder}: {reason}; {kept}")

    def _file(self, version: int | str) -> Path:
        return self.folder / f"{version}{SUFFIX}"

    def _damaged(self, version: int | str, reason: object) -> Damaged:
        others = ", ".join(str(v) for v in self.versions() if v != version)
        hint = f"--version takes another one: {others}" if others else "there is no other"
        return Damaged(version, f"checkpoint {self._file(version)} is damaged ({reason})", hint)


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdecimal()


def _parsed(texts: dict[str, str]) -> dict[str, Any]:
    """The values of a checkpoint's metadata; raises ValueError where a text is no JSON."""
    return {name: parse_json(text) for name, text in texts.items()}


def _nest(arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Gives nested dicts; raises ValueError where an array is within another."""
    tree: dict[str, Any] = {}
    for name, array in arrays.items():
        inner, (*path, last) = tree, name.split("/")
        for part in path:
            inner = inner.setdefault(part, {}) if isinstance(inner, dict) else inner
        if not isinstance(inner, dict) or last in inner:
            raise ValueError(f"array {name} is within another, or holds one")
        inner[last] = array
    return tree


def _specs(arrays: Mapping[str, Any]) -> dict[str, str]:
    """The type and shape of each array; bytes, such as a simulator's state, vary in length."""
    specs: dict[str, str] = {}
    for name, value in arrays.items():
        array = value if hasattr(value, "dtype") else np.asarray(value)
        dtype, shape = np.dtype(array.dtype).name, list(array.shape)
        specs[name] = "bytes" if dtype == "uint8" and len(shape) == 1 else f"{dtype}{shape}"
    return specs
