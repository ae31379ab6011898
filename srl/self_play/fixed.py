"""Fixed policies: agents that the policy of another run plays, which learns no more.

    experiment = Experiment(..., policies={"seeker*": Fixed("runs/seekers"), "hider*": "hiders"})

What an experiment file gives, and the file in the other run's folder that it stands for. Importing
this loads no JAX: experiment files do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from srl.array_file import SUFFIX, Unreadable, read_header
from srl.checkpoint import BEST, Checkpoints
from srl.errors import UserError, expect
from srl.files import is_count

LATEST = "latest"
"""The version that stands for the newest checkpoint."""
CHECKPOINTS, OPPONENTS = "checkpoints", "opponents"
"""The folders of a run in which versions lie: checkpoints, and past versions in self-play."""


@dataclass(frozen=True)
class Fixed:
    """A policy that another run has trained, and that learns no more."""

    run: str | Path
    """The folder of the other run."""
    version: int | str = LATEST
    """Which of its versions plays: latest, best, or the number of a checkpoint or of a past version
    in its pool of opponents. A run records the number when it begins."""
    weights: str = ""
    """The checksum of the version's file; a run records it when it begins, and goes on with no
    other."""

    def validate(self, name: str) -> None:
        """Raises UserError where a setting is not what is expected.

        Args:
            name: Of the setting that holds this.
        """
        good = isinstance(self.run, str | Path) and str(self.run)
        expect(good, f"{name}.run", self.run, "the folder of a run")
        good = self.version in (LATEST, BEST) or is_count(self.version)
        expect(good, f"{name}.version", self.version, "latest, best or a number of updates")

    def pinned(self, name: str, recorded: Any = None) -> Fixed:
        """Gives the same with its whole path, its version's number and its weights' checksum.

        Args:
            name: Of the setting that holds this, for messages.
            recorded: What this gave when the run began, if it has begun.

        Raises:
            UserError: If there is no such run or version, or it has other weights than recorded.
        """
        self.validate(name)
        if isinstance(recorded, Fixed) and self._may_be(recorded):
            return recorded.pinned(name)
        path = Path(self.run).absolute()
        if not (path / "config.json").is_file():
            runs = sorted(file.parent.name for file in path.glob("*/config.json"))
            hint = (
                f"it holds the runs {', '.join(runs)}: give one of them"
                if runs
                else ("give the folder of a run, such as runs/NAME/TIME")
            )
            raise UserError(f"{name}: {path} is not the folder of a run (no config.json); {hint}")
        version, weights = self._found(name, path)
        return replace(self, run=str(path), version=version, weights=weights)

    @property
    def file(self) -> Path:
        """The version's file, of one that is pinned.

        Raises:
            UserError: If it is not there any more.
        """
        for file, _, weights in _files(Path(self.run), self.version):
            if weights == self.weights:
                return file
        raise UserError(
            f"version {self.version} of {self.run} is not there any more; bring it back"
        )

    def _may_be(self, recorded: Fixed) -> bool:
        """Whether this could have given what is recorded, in some folder."""
        same_run = Path(self.run).name == Path(recorded.run).name
        return same_run and self.version in (LATEST, BEST, recorded.version)

    def _found(self, name: str, path: Path) -> tuple[int, str]:
        """The number and the checksum of the version."""
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
        raise UserError(f"{name}: {path} has no version {self.version} that can be read; {there}")


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
            yield file, written, weights


def expect_policies(policies: Any) -> None:
    """Raises UserError unless these are an experiment's policies, and one of them is trained.

    Args:
        policies: By pattern of agents' names.
    """
    good = isinstance(policies, Mapping) and bool(policies)
    expect(good, "policies", policies, 'names by pattern, such as {"*": "policy"}')
    for pattern, policy in policies.items():
        name = f"policies[{pattern!r}]"
        if isinstance(policy, Fixed):
            policy.validate(name)
            continue
        good = isinstance(policy, str) and re.fullmatch(r"\w[\w-]*", policy)
        expect(good, name, policy, "letters, digits, '-', '_', or Fixed(RUN_DIR)")
    if all(isinstance(policy, Fixed) for policy in policies.values()):
        raise UserError(
            f"policies: those of {', '.join(policies)} are fixed, so that none is left to train; "
            'name one that learns, such as {"hider*": "hiders"}'
        )


def pinned_policies(
    policies: Mapping[str, str | Fixed], recorded: Mapping[str, Any]
) -> dict[str, str | Fixed]:
    """Gives an experiment's policies with each fixed one as `Fixed.pinned` gives it.

    Args:
        policies: By pattern of agents' names.
        recorded: The same, as they were when the run began; empty of a new one.

    Raises:
        UserError: As `Fixed.pinned`.
    """
    return {
        pattern: policy.pinned(f"policies[{pattern!r}]", recorded.get(pattern))
        if isinstance(policy, Fixed)
        else policy
        for pattern, policy in policies.items()
    }


def first_fitting(patterns: Mapping[str, Any], agent: str) -> str | None:
    """Gives the first pattern that fits an agent's name; None where none does."""
    return next((pattern for pattern in patterns if fnmatchcase(agent, pattern)), None)
