"""Checkpoints of a run: arrays and a few JSON values, complete or absent.

Orbax writes them, in a thread of ours, and makes each visible by one rename. Arrays are stored
flat, by names such as `learners/policy/params/policy/Dense_0/kernel`, with a checksum each, so that
a checkpoint can be read without the code that made it and a damaged one is noticed.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import shutil
import zlib
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from srl.errors import RunError, Unwritable, UserError
from srl.inputs import is_count, parse_json
from srl.lazy import jax
from srl.types import Tree

logger = logging.getLogger(__name__)

_OVERHEAD = 200_000  # bytes of a checkpoint beside its arrays
_TEMPORARY = "*.orbax-checkpoint-tmp*"


class Damaged(RunError):
    """A checkpoint that cannot be read; an earlier one may be."""

    def __init__(self, version: int, what: str, hint: str) -> None:
        """Says which version it is, what is damaged, and what to do."""
        super().__init__(f"{what}; {hint}")
        self.version, self.what = version, what


class Checkpoints:
    """The checkpoints of one folder; a version is the number of updates done."""

    def __init__(self, folder: Path, keep: int = 5) -> None:
        """Looks at `folder`, which the first save makes; the newest `keep` stay."""
        self.folder = folder.absolute()
        self._keep = keep
        self._manager: Any = None
        self._thread = ThreadPoolExecutor(1, "checkpoints")
        self._saving: Future[None] | None = None

    def versions(self) -> list[int]:
        """The complete checkpoints there are, oldest first.

        Raises:
            UserError: If the folder is none, or cannot be read.
        """
        try:
            names = os.listdir(self.folder)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise UserError(
                f"cannot read the checkpoints in {self.folder}: {error.strerror}"
            ) from error
        return sorted(int(name) for name in names if name.isascii() and name.isdecimal())

    def latest(self) -> int | None:
        """The newest complete checkpoint."""
        return max(self.versions(), default=None)

    def expect_room(self, tree: Tree) -> str:
        """Looks whether the disk has room for checkpoints of a state.

        Args:
            tree: The state, or the part of it that is known.

        Returns:
            A warning where there is room for some, but not for all that are to be kept and for one
            more, which is written before the oldest goes; else nothing.

        Raises:
            UserError: If there is no room for one.
        """
        leaves = named_leaves(tree).values()
        arrays = (leaf if hasattr(leaf, "nbytes") else np.asarray(leaf) for leaf in leaves)
        size = sum(array.nbytes for array in arrays) + _OVERHEAD
        place = self.folder if self.folder.is_dir() else self.folder.parent
        room = shutil.disk_usage(place).free // size
        wanted = self._keep + 1 - len(self.versions())
        sizes = f"of at least {size / 1e6:,.1f} MB"
        if room == 0:
            raise UserError(
                f"the disk of {place} has no room for a checkpoint {sizes}; make some, or choose "
                "another disk with --run-dir"
            )
        if room >= wanted:
            return ""
        checkpoints = "1 checkpoint" if room == 1 else f"{room} checkpoints"
        return (
            f"the disk of {place} has room for {checkpoints} {sizes}, and the run needs "
            f"{wanted}: it ends when the disk is full; make room, or choose a lower "
            "--keep-checkpoints"
        )

    def save(
        self, updates: int, tree: Tree, metadata: Mapping[str, Any], *, wait: bool = False
    ) -> None:
        """Starts to save `tree`; its arrays may change as soon as this returns.

        Raises:
            Unwritable: When this save, or an earlier one that went on in the background, failed.
        """
        self.wait()
        try:
            if updates in self.versions():
                return
        except UserError as error:  # it was a folder when the run began
            raise Unwritable(f"cannot save a checkpoint in {self.folder}: {error}") from error
        arrays = {n: np.array(leaf) for n, leaf in named_leaves(jax.device_get(tree)).items()}
        self._saving = self._thread.submit(self._write, updates, arrays, dict(metadata))
        if wait:
            self.wait()

    def check(self) -> None:
        """Raises Unwritable if a save in the background has failed by now."""
        if self._saving is not None and self._saving.done():
            self.wait()

    def wait(self) -> None:
        """Returns when everything is saved; raises Unwritable if it could not be."""
        saving, self._saving = self._saving, None
        if saving is not None:
            try:
                saving.result()
            except Exception as error:
                raise self._failure(error) from None

    def close(self) -> None:
        """Waits, then lets go of the folder."""
        try:
            self.wait()
        finally:
            self._thread.shutdown()

    def metadata(self, version: int | None = None) -> dict[str, Any]:
        """The JSON values saved with a version; the newest by default."""
        return self._description(self._existing(version))["metadata"]

    def restore(self, version: int | None = None, like: Tree = None) -> tuple[Tree, dict[str, Any]]:
        """The tree and the metadata of a version; the newest by default.

        Args:
            version: Number of updates.
            like: A tree of the same structure, shapes and types, whose form the result takes.
                Without it the result is nested dicts; every array is NumPy's.

        Raises:
            UserError: No such version, or its arrays are not those of `like`.
            Damaged: It cannot be read.
        """
        version = self._existing(version)
        description = self._description(version)
        leaves: dict[str, list[Any]] = description["leaves"]
        if like is not None:
            self._compare(version, leaves, named_leaves(like))
        arrays = self._read(version, leaves)
        if like is None:
            return _nest(arrays), description["metadata"]
        names, structure = list(named_leaves(like)), jax.tree.structure(like)
        return structure.unflatten([arrays[name] for name in names]), description["metadata"]

    def restore_newest(self, like: Tree = None) -> tuple[Tree, list[Damaged]]:
        """The tree of the newest version that is not damaged, and what is wrong with later ones.

        Raises:
            UserError: There is no version, or one is not like `like`.
            Damaged: No version can be read.
        """
        later: list[Damaged] = []
        for version in reversed(self.versions()):
            try:
                return self.restore(version, like)[0], later
            except Damaged as error:
                later.append(error)
        raise later[0] if later else UserError(f"there is no checkpoint in {self.folder}")

    def newest_counts(self) -> dict[str, int] | None:
        """`env_steps` and `updates` of the newest version of which they can be read, if any."""
        for version in reversed(self.versions()):
            with contextlib.suppress(Damaged):
                return self._counts(version, self.metadata(version))
        return None

    def learners(self, version: int | None = None) -> tuple[dict[str, Any], dict[str, int]]:
        """The state of each policy's learner, and `env_steps` and `updates`; as `restore`."""
        version = self._existing(version)
        tree, metadata = self.restore(version)
        learners = tree.get("learners")
        if not isinstance(learners, dict) or not learners:
            raise self._damaged(version, "it holds no policies")
        return learners, self._counts(version, metadata)

    def set_aside(self, version: int, why: str) -> Path:
        """Renames a version, so that it counts no more and nothing of it is lost; gives its path.

        Raises:
            RunError: If it cannot be renamed.
        """
        names = itertools.chain([why], (f"{why}-{number}" for number in itertools.count(2)))
        paths = (self.folder / f"{version}.{name}" for name in names)
        path = next(path for path in paths if not os.path.lexists(path))
        try:
            self._manager = None  # it remembers which there are
            return (self.folder / str(version)).rename(path)
        except OSError as error:
            raise RunError(
                f"cannot rename {self.folder / str(version)}: {error.strerror}"
            ) from error

    def _counts(self, version: int, metadata: dict[str, Any]) -> dict[str, int]:
        env_steps, updates = metadata.get("env_steps"), metadata.get("updates")
        if not is_count(env_steps) or not is_count(updates):
            raise self._damaged(version, "its metadata lack counts of env steps and updates")
        return {"env_steps": env_steps, "updates": updates}

    def _existing(self, version: int | None) -> int:
        there = self.versions()
        if not there:
            raise UserError(f"there is no checkpoint in {self.folder}")
        if version is not None and version not in there:
            listed = ", ".join(map(str, there))
            raise UserError(f"there is no version {version} in {self.folder}; it has {listed}")
        return there[-1] if version is None else version

    def _description(self, version: int) -> dict[str, Any]:
        try:
            text = (self.folder / str(version) / "metadata/metadata").read_bytes()
            description = parse_json(text)
        except (OSError, ValueError) as error:
            raise self._damaged(version, error) from None
        if not _is_description(description):
            raise self._damaged(version, "its metadata are not those of a checkpoint")
        return description

    def _read(self, version: int, leaves: dict[str, list[Any]]) -> dict[str, np.ndarray]:
        import tensorstore

        # Orbax's format, without Orbax: that reads in many coroutines, and of damaged arrays all
        # but the first print a traceback. An array without elements is not in the files.
        store = {"driver": "ocdbt", "base": (self.folder / str(version) / "state").as_uri()}
        arrays: dict[str, np.ndarray] = {}
        try:
            opened = {
                name: tensorstore.open(
                    {"driver": "zarr", "kvstore": {**store, "path": f"{name}/"}},
                    open=True,
                    read=True,
                )
                for name, (_, shape, _) in leaves.items()
                if 0 not in shape
            }
            for name, (dtype, shape, _) in leaves.items():
                if name in opened:
                    arrays[name] = np.asarray(opened[name].result().read().result())
                else:
                    arrays[name] = np.empty(shape, dtype)
        except (ValueError, TypeError, OSError) as error:
            raise self._damaged(version, error) from None
        for name, (dtype, shape, expected) in leaves.items():
            array = arrays[name]
            if array.dtype.name != dtype or list(array.shape) != shape:
                raise self._damaged(version, f"{name} is not what was saved")
            if checksum(array) != expected:
                raise self._damaged(version, f"the checksum of {name} does not match")
        return arrays

    def _compare(self, version: int, leaves: dict[str, list[Any]], like: dict[str, Any]) -> None:
        """Raises UserError at the first array that is not the same in both."""
        arrays = {
            name: leaf if hasattr(leaf, "dtype") else np.asarray(leaf)
            for name, leaf in like.items()
        }
        here = {name: _form(np.dtype(a.dtype).name, list(a.shape)) for name, a in arrays.items()}
        saved = {name: _form(dtype, shape) for name, (dtype, shape, _) in leaves.items()}
        for name in [*here, *saved]:
            if here.get(name) != saved.get(name):
                raise UserError(
                    f"checkpoint {version} in {self.folder} is of another network: {name} is "
                    f"{saved.get(name, 'absent')} in it and {here.get(name, 'absent')} here; "
                    "run it with the experiment it was made with"
                )

    def _write(self, updates: int, arrays: dict[str, np.ndarray], metadata: dict[str, Any]) -> None:
        import orbax.checkpoint as ocp

        logging.getLogger("absl").setLevel(logging.CRITICAL + 1)  # what Orbax logs it also raises
        self.folder.mkdir(parents=True, exist_ok=True)
        needed = sum(a.nbytes for a in arrays.values()) + _OVERHEAD
        if shutil.disk_usage(self.folder).free < needed:
            raise OSError(f"No space left on device for {needed / 1e6:.1f} MB")
        leaves = {n: [a.dtype.name, list(a.shape), checksum(a)] for n, a in arrays.items()}
        full = {n: a if a.size else np.zeros(1) for n, a in arrays.items()}  # Orbax wants a size
        items = ocp.args.Composite(
            state=ocp.args.PyTreeSave(full),
            metadata=ocp.args.JsonSave({"metadata": metadata, "leaves": leaves}),
        )
        if self._manager is None:
            options = ocp.CheckpointManagerOptions(
                max_to_keep=self._keep,
                create=False,
                multiprocessing_options=_alone(),
                cleanup_tmp_directories=True,
                enable_async_checkpointing=False,
            )
            self._manager = ocp.CheckpointManager(self.folder, options=options)
        self._manager.save(updates, args=items, force=True)

    def _failure(self, error: Exception) -> Unwritable:
        """Gives the failed save's space back and says what is still there."""
        logger.info("Orbax could not save", exc_info=error)
        self._manager = None
        for rest in self.folder.glob(_TEMPORARY):
            shutil.rmtree(rest, ignore_errors=True)
        try:
            listed = ", ".join(map(str, self.versions()))
        except UserError:  # there is no folder any more
            listed = ""
        kept = f"the earlier checkpoints ({listed}) are intact" if listed else "there is no other"
        return Unwritable(f"cannot save a checkpoint in {self.folder}: {_reason(error)}; {kept}")

    def _damaged(self, version: int, reason: object) -> Damaged:
        others = ", ".join(str(v) for v in self.versions() if v != version)
        hint = f"--version takes another one: {others}" if others else "there is no other"
        folder = self.folder / str(version)
        return Damaged(version, f"checkpoint {folder} is damaged ({_reason(reason)})", hint)


def _is_description(value: Any) -> bool:
    """Whether a value is what `save` writes beside the arrays."""
    if not isinstance(value, dict) or not isinstance(value.get("metadata"), dict):
        return False
    leaves = value.get("leaves")
    return isinstance(leaves, dict) and all(map(_is_leaf, leaves.values()))


def _is_leaf(value: Any) -> bool:
    """Whether a value is a dtype's name, a shape and a checksum."""
    if not isinstance(value, list) or len(value) != 3:
        return False
    dtype, shape, _ = value
    return isinstance(dtype, str) and isinstance(shape, list) and all(map(is_count, shape))


def _alone() -> Any:
    """Options by which Orbax asks no other process: of several learners one saves for all."""
    from orbax.checkpoint.options import MultiprocessingOptions

    if jax.process_count() == 1:
        return MultiprocessingOptions()
    own = jax.process_index()
    return MultiprocessingOptions(
        primary_host=own, active_processes={own}, barrier_sync_key_prefix="srl"
    )


def _reason(error: object) -> str:
    text = " ".join(str(error).split())
    if "No space left on device" in text:
        return "no space left on device"
    text = text.split(" [")[0]  # what follows is TensorStore's own context
    return (text if len(text) < 300 else f"{text[:100]} ... {text[-190:]}") or repr(error)


def named_leaves(tree: Tree) -> dict[str, Any]:
    """The leaves of a tree by name, in its own order."""
    paths, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(p, simple=True, separator="/"): leaf for p, leaf in paths}


def _nest(arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for name, array in arrays.items():
        *path, last = name.split("/")
        inner = tree
        for part in path:
            inner = inner.setdefault(part, {})
        inner[last] = array
    return tree


def _form(dtype: str, shape: list[int]) -> str:
    """What must be equal in two checkpoints; bytes, such as a simulator's state, vary in length."""
    return "bytes" if dtype == "uint8" and len(shape) == 1 else f"{dtype}{shape}"


def checksum(array: np.ndarray) -> int:
    """CRC-32 of an array's bytes."""
    return zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
