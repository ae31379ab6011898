"""Policies of other runs, which learn no more: they play agents, teach, or give first parameters.

    experiment = Experiment(..., policies={"seeker*": Fixed("runs/seekers"), "hider*": "hiders"})

What an experiment file gives, and the file in the other run's folder that it stands for. A run that
begins copies what it needs of the other, and reads its copy from then on. Importing this loads no
JAX: experiment files do.
"""

from __future__ import annotations

import itertools
import json
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, ClassVar, Self

from srl.core.errors import UserError, expect
from srl.core.field_types import FromText
from srl.core.settings import Settings
from srl.record.array_file import SUFFIX, Unreadable, read_header
from srl.record.checkpoint import BEST, Checkpoints
from srl.record.files import UNFINISHED, is_count, parse_json, write_atomically
from srl.record.run_record import RunFolder, find_run, read_config, recorded_algorithm
from srl.record.trust import is_own, signed, unsigned

LATEST = "latest"
"""The version that stands for the newest checkpoint."""
CHECKPOINTS, OPPONENTS = "checkpoints", "opponents"
"""The folders of a run in which versions lie: checkpoints, and past versions in self-play."""
_NEEDED, _IF_THERE = ("config.json", "specs.json"), ("experiment.py",)


@dataclass(frozen=True)
class Fixed(FromText, Settings):
    """A policy of another run, which does not learn."""

    metavar: ClassVar[str] = "RUN_DIR[:V]"
    expected: ClassVar[str] = "the folder of a run, perhaps with a version, such as runs/large:best"

    run: str | Path
    """The folder of the other run, or a folder of runs, for the newest with a checkpoint."""
    version: int | str = LATEST
    """The version that plays: latest, best, or the number of a checkpoint or of a past version
    in its pool of opponents. A run records the number when it begins."""
    weights: str = ""
    """The checksum of the version's file; a run records it when it begins, and accepts no other."""
    trust: bool = False
    """Permission to run code from the other run's folder although another user made it. Needed if
    srl does not ship the run's algorithm or networks."""
    copy: Path | None = field(default=None, init=False, repr=False, compare=False)
    """The folder of a run's copy of the other run's files, once it has begun."""

    @classmethod
    def read(cls, text: str) -> Self:
        """Gives the policy of RUN_DIR[:V]; V is a number, latest or best."""
        before, _, version = text.rpartition(":")
        if not before or Path(text).is_dir():
            return cls(text)
        if version in (LATEST, BEST):
            return cls(before, version)
        return cls(before, int(version)) if version.isdecimal() else cls(text)

    def __str__(self) -> str:
        return f"{self.run}:{self.version}"

    def validate(self, name: str) -> None:
        """Raises UserError where a setting is not what is expected; messages begin with `name`."""
        good = isinstance(self.run, str | Path) and str(self.run)
        expect(good, f"{name}.run", self.run, "the folder of a run")
        good = self.version in (LATEST, BEST) or is_count(self.version)
        expect(good, f"{name}.version", self.version, "latest, best or a number of updates")
        expect(isinstance(self.trust, bool), f"{name}.trust", self.trust, "True or False")

    def pinned(self, name: str, recorded: Any = None) -> Fixed:
        """Gives the same with its whole path, its version's number and its weights' checksum.

        Args:
            name: Of the setting that holds this, for messages.
            recorded: What this gave when the run began, if it has begun; it is given again unless
                this stands for another run or version.

        Raises:
            UserError: If there is no such run or version, or it has other weights than recorded.
        """
        self.validate(name)
        given = self
        if isinstance(recorded, Fixed) and self.may_be(recorded):
            given = recorded
        elif isinstance(recorded, Fixed) and self.weights == recorded.weights:
            given = replace(self, weights="")  # those of the version that it had before
        path = find_run(given.folder, trained=True).path
        if not (path / "config.json").is_file():
            runs = sorted(file.parent.name for file in path.glob("*/config.json"))
            hint = f"give one of its runs: {', '.join(runs)}" if runs else "such as runs/NAME/TIME"
            raise UserError(
                f"{name}: {path} is not the folder of a run (no config.json), nor of several that "
                f"have a checkpoint; {hint}"
            )
        if given.copy is None:
            _expect_loadable(name, RunFolder(path), self.trust)
        version, weights = given._found(name, path)
        run = str(path if given.copy is None else given.run)
        return replace(given, run=run, version=version, weights=weights)._read_from(given.copy)

    @property
    def folder(self) -> Path:
        """The folder to read: the run's copy, or the other run's folder before there is one."""
        return self.copy or Path(self.run)

    @property
    def file(self) -> Path:
        """The version's file, of one that is pinned.

        Raises:
            UserError: If it is not there any more.
        """
        if (file := self._file) is None:
            raise UserError(
                f"version {self.version} of {self.folder} is not there any more, or has other "
                "weights than this run began with; bring it back"
            )
        return file

    def read_in(self, copy: Path) -> Fixed:
        """Gives the same, read from a folder that `copied` has made, if that is there."""
        return self._read_from(copy) if (copy / "config.json").is_file() else self

    def copied(self, copy: Path) -> Fixed:
        """Copies what is needed of the other run, and gives the same, read from the copy.

        Args:
            copy: The folder for it. One that holds the version stays as it is; another is replaced.

        Raises:
            UserError: If the other run cannot be read, or the copy cannot be written.
        """
        there = self._read_from(copy)
        if there._file is not None:
            return there
        file, unfinished = self.file, copy.with_name(f"{UNFINISHED}{copy.name}")
        there_too = [name for name in _IF_THERE if (self.folder / name).exists()]
        try:
            shutil.rmtree(unfinished, ignore_errors=True)
            for name in (*_NEEDED, *there_too, str(file.relative_to(self.folder))):
                (unfinished / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(self.folder / name, unfinished / name)
            config = parse_json((unfinished / "config.json").read_bytes())
            # This user has chosen the policy: what it names may be loaded from the copy.
            text = json.dumps(signed(unsigned(config)), indent=2) + "\n"
            write_atomically(unfinished / "config.json", text.encode())
            shutil.rmtree(copy, ignore_errors=True)
            unfinished.rename(copy)
        except OSError as error:
            raise UserError(
                f"cannot copy {error.filename or self.folder}, of the fixed policy of "
                f"{self.folder}, to {copy}: {error.strerror}"
            ) from error
        there.file  # noqa: B018  (raises if it was replaced just before)
        return there

    @property
    def _file(self) -> Path | None:
        """The version's file; None where it is not there with the weights that were recorded."""
        files = _files(self.folder, self.version)
        return next((file for file, _, weights in files if weights == self.weights), None)

    def _read_from(self, copy: Path | None) -> Fixed:
        given = replace(self)
        object.__setattr__(given, "copy", copy)
        return given

    def may_be(self, recorded: Fixed) -> bool:
        """Tells if this could have given the recorded value.

        That run may be one of several in this folder. Where a path leads to no run, as it may from
        another folder or host, or when the other run has been moved, its last name has to be the
        same.
        """
        path, others = Path(self.run).absolute(), (Path(recorded.run), Path(recorded.run).parent)
        runs = itertools.chain(path.glob("config.json"), path.glob("*/config.json"))
        elsewhere = path.name in (other.name for other in others) and not any(runs)
        same_version = self.version in (LATEST, BEST, recorded.version)
        return (path in others or elsewhere) and same_version

    def _found(self, name: str, path: Path) -> tuple[int, str]:
        found = [(version, weights) for _, version, weights in _files(path, self.version)]
        matching = [each for each in found if self.weights in ("", each[1])]
        if matching:
            return matching[0]
        if found:
            raise UserError(
                f"{name}: version {self.version} of {path} has other weights than this run began "
                f"with (checksum {found[0][1]}, and it was {self.weights}); bring the former file "
                "back, or begin a new run"
            )
        folders = (Checkpoints(path / folder) for folder in (CHECKPOINTS, OPPONENTS))
        numbers = sorted({number for folder in folders for number in folder.versions()})
        there = f"there are {', '.join(map(str, numbers))}" if numbers else "it has none at all"
        if self.version == "best":
            there += "; a run whose experiment has an evaluation keeps its best"
        raise UserError(f"{name}: {path} has no version {self.version} that can be read; {there}")


def _expect_loadable(name: str, folder: RunFolder, trust: bool) -> None:
    """Raises UserError where loading a run would import what its user has not agreed to."""
    config = read_config(folder)
    if not (trust or is_own(config)):
        try:
            recorded_algorithm(folder, config, trusted=False)
        except UserError as error:
            raise UserError(f"{name}: {error}") from None


def _files(run: Path, version: int | str) -> Iterator[tuple[Path, int, str]]:
    """The readable files that hold a version, with its number and their checksums."""
    best, number = run / CHECKPOINTS / f"{BEST}{SUFFIX}", version
    if version == LATEST:
        number = Checkpoints(run / CHECKPOINTS).latest()
    of_number = [run / folder / f"{number}{SUFFIX}" for folder in (CHECKPOINTS, OPPONENTS)]
    for file in [best] if version == BEST else [of_number[0], best, of_number[1]]:
        try:
            texts, weights = read_header(file)
        except Unreadable:
            continue
        written = int(texts.get("updates", -1)) if file == best else number
        if written == number or version == BEST:
            yield file, written, weights  # pyright: ignore[reportReturnType]


def expect_policies(policies: Any) -> None:
    """Raises UserError unless these are an experiment's policies, and one of them is trained."""
    good = isinstance(policies, Mapping) and bool(policies)
    expect(good, "policies", policies, 'names by pattern, such as {"*": "policy"}')
    for pattern, policy in policies.items():
        good = isinstance(pattern, str) and pattern
        expect(good, "policies: a pattern", pattern, "a text such as * or hider*")
        name = f"policies[{pattern!r}]"
        if isinstance(policy, Fixed):  # checked with other sources
            continue
        good = isinstance(policy, str) and re.fullmatch(r"\w[\w-]*", policy)
        expect(good, name, policy, "letters, digits, '-', '_', or Fixed(RUN_DIR)")
    if all(isinstance(policy, Fixed) for policy in policies.values()):
        raise UserError(
            f"policies: those of {', '.join(policies)} are fixed, so that none is left to train; "
            'name one that learns, such as {"hider*": "hiders"}'
        )


def first_fitting(patterns: Mapping[str, Any], agent: str) -> str | None:
    """Gives the first pattern that fits an agent's name; None where none does."""
    return next((pattern for pattern in patterns if fnmatchcase(agent, pattern)), None)
