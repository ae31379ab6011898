"""The pool of opponents: past versions of a run's policies, a file each in its folder.

The files are those of `srl.record.array_file`; `srl.config.self_play` decides which there are.
Only learners write here. Others may read, and find that a version has left meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np

from srl.core.errors import RunError, Unwritable
from srl.core.lazy import jax
from srl.core.types import Policy
from srl.record import array_file
from srl.record.array_file import SUFFIX, Unreadable, copied_leaves, named_leaves
from srl.record.files import writing

FOLDER = "opponents"
"""The folder of a run where the pool is."""
_POLICIES = "policies"  # in the metadata of an exploiter's file: the names of those that it has


class OpponentPool:
    """The pool of one run; a version is the number of updates done, or below 0 an exploiter."""

    def __init__(self, run: Path) -> None:
        self.folder = run / FOLDER

    def versions(self) -> list[int]:
        """Gives the versions that there are, oldest first."""
        names = (path.name.removesuffix(SUFFIX) for path in self.folder.glob(f"*{SUFFIX}"))
        return sorted(int(name) for name in names if name.isascii() and name.isdecimal())

    def write(self, version: int, policies: Mapping[str, Policy]) -> None:
        """Writes a version, over another of the same number.

        Raises:
            RunError: If it cannot be written; what was there stays.
        """
        path = self._path(version)
        with writing(path, Unwritable):
            self.folder.mkdir(parents=True, exist_ok=True)
            # Only an exploiter may lack some of the run's policies.
            texts = {_POLICIES: " ".join(policies)} if version < 0 else {}
            array_file.write(path, copied_leaves(dict(policies)), texts)

    def read(
        self, version: int, like: Mapping[str, Policy], patience: float = 0.0
    ) -> dict[str, Policy]:
        """Gives a version's policies, as arrays of NumPy's; of an exploiter those that it has.

        Args:
            version: Number of updates.
            like: Policies of the same structure, shapes and types.
            patience: Seconds to wait for a file that another host has written.

        Raises:
            RunError: If it is not there, damaged, or of other networks.
        """
        path = self._path(version)
        deadline = time.monotonic() + patience
        while not path.exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        try:
            arrays, texts = array_file.read(path)
        except Unreadable as error:
            state = f"is damaged ({error})" if path.exists() else "is missing"
            raise RunError(f"opponent {path} {state}") from error
        if _POLICIES in texts:
            own = texts[_POLICIES].split()
            like = {name: policy for name, policy in like.items() if name in own}
        leaves = named_leaves(like)
        forms = {name: (np.dtype(x.dtype), tuple(x.shape)) for name, x in leaves.items()}
        if forms != {name: (x.dtype, x.shape) for name, x in arrays.items()}:
            raise RunError(f"opponent {path} is of other networks than the run's")
        return jax.tree.structure(like).unflatten([arrays[name] for name in leaves])

    def drop(self, versions: Collection[int]) -> None:
        """Removes versions; what is no file stays, as srl did not write it."""
        for version in versions:
            with suppress(FileNotFoundError, IsADirectoryError, PermissionError):
                self._path(version).unlink()

    def identity(self, version: int) -> str:
        """Gives a hash that differs from that of another version of the same number.

        A resumed run may have made such a version.

        Raises:
            RunError: If it is not there, or cannot be read.
        """
        try:
            return array_file.read_header(self._path(version))[1]
        except Unreadable as error:
            raise RunError(f"cannot read opponent {self._path(version)}: {error}") from error

    def readable(self, version: int) -> bool:
        """Tells if a version is there, with a readable header."""
        try:
            return bool(self.identity(version))
        except RunError:
            return False

    def _path(self, version: int) -> Path:
        name = str(version) if version >= 0 else f"exploiter_{-version}"
        return self.folder / f"{name}{SUFFIX}"
