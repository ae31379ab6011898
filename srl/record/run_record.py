"""The records in a run's folder, read without making its experiment again."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib
import itertools
import json
import logging
import os
import re
import shutil
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import quote

from srl.algorithms import Algorithm
from srl.core.config_values import Import, made_from, renamed
from srl.core.errors import RunError, Unwritable, UserError, expect
from srl.core.optional_packages import installed_version
from srl.core.types import Specs
from srl.record.checkpoint import Checkpoints
from srl.record.experiment_file import import_file
from srl.record.files import UNFINISHED, parse_json, write_atomically, writing
from srl.record.specs_json import specs_from_json, specs_to_json
from srl.record.trust import CHANGED, is_changed, is_signed, only_settings
from srl.system.search_path import add_folder

logger = logging.getLogger(__name__)

SCHEMA = 1
TIME = "%Y-%m-%d_%H-%M-%S"
"""The form of a run's folder's name, where none is given."""
_LONGEST_NAME, _LONGEST_PATH = 255, 4096 - 256  # bytes, with room for a file's name in a folder
_LOCK_SECONDS = 0.2  # for others' looks at the lock, which take it for a moment
_ID_SECONDS = 1.0  # for the id of a process that has just taken the lock
_TIME_PATTERN = r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d"


def _locked(file: Path) -> int | None:
    """Locks a file for this process alone; gives its descriptor, None where another one has it."""
    with writing(file):
        lock = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
    deadline = time.monotonic() + _LOCK_SECONDS
    while time.monotonic() < deadline:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        except BlockingIOError:
            time.sleep(0.01)
        except OSError as error:  # as of a Lustre that is mounted without locks
            os.close(lock)
            raise UserError(
                f"cannot lock {file}: {error.strerror}; a run needs a file system with locks"
            ) from error
    os.close(lock)
    return None


@dataclass(frozen=True)
class RunFolder:
    """The paths of the parts of one run."""

    path: Path
    made: tuple[Path, ...] = field(default=(), compare=False)
    """The folders that were made for the run, the innermost first."""

    @property
    def config(self) -> Path:
        """All resolved values, and what they came from."""
        return self.path / "config.json"

    @property
    def source(self) -> Path:
        """The experiment file as it was when the run began."""
        return self.path / "experiment.py"

    @property
    def specs(self) -> Path:
        """The file of the environments' spaces and agents, as JSON."""
        return self.path / "specs.json"

    @property
    def checkpoints(self) -> Path:
        """One folder for each version."""
        return self.path / "checkpoints"

    @property
    def videos(self) -> Path:
        """Recorded episodes, once there are any."""
        return self.path / "videos"

    @property
    def fixed(self) -> Path:
        """Copies of what is needed of other runs, once there are any."""
        return self.path / "fixed"

    def fixed_copy(self, pattern: str) -> Path:
        """The copy of a policy of another run, by its name in `sources`; a run's folder, too."""
        return self.fixed / quote(pattern, safe="").replace(".", "%2E")

    @property
    def prior(self) -> Path:
        """The prior data that a replay begins with, if any."""
        return self.path / "prior"

    def film(self, env_steps: int) -> Path:
        """The film of the version of so many env steps, made while the run trains."""
        return self.videos / f"env_steps_{env_steps:012d}.mp4"

    def log(self, worker: str) -> Path:
        """The log of one worker."""
        return self.path / "logs" / f"{worker}.log"

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps a second process from training the same run, on another machine too.

        Raises:
            UserError: If there is one, or the folder cannot be locked.
        """
        lock = _locked(self.path / "lock")  # NFS locks no folders
        if lock is None:
            raise UserError(
                f"another process is training {self.path}; stop it first: `srl stop {self.path}` "
                "ends it after a checkpoint"
            )
        try:
            with contextlib.suppress(OSError):  # on a full disk; then only `srl stop` lacks it
                os.ftruncate(lock, 0)
                os.pwrite(lock, f"{os.getpid()} {socket.gethostname()}\n".encode(), 0)
            yield
        finally:
            with contextlib.suppress(OSError):
                os.ftruncate(lock, 0)  # the next process has the lock before its id is there
            os.close(lock)

    def trained_by(self) -> tuple[int, str] | None:
        """The process that trains the run, and its host; None where none has it locked.

        Raises:
            UserError: If one has, and its id is not in the lock.
        """
        try:
            lock = os.open(self.path / "lock", os.O_RDONLY)
        except OSError:
            return None
        deadline = time.monotonic() + _ID_SECONDS
        try:
            while time.monotonic() < deadline:
                try:
                    fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
                    return None
                except BlockingIOError:
                    pass
                except OSError:  # the file system has no locks, and so no process has one
                    return None
                text = os.pread(lock, 1000, 0).decode(errors="replace")
                pid, _, host = text.strip().partition(" ")
                if pid.isdigit() and text.endswith("\n"):
                    return int(pid), host
                time.sleep(0.01)
        finally:
            os.close(lock)
        raise UserError(f"a process has locked {self.path}/lock, and its id is not written there")

    def discard(self) -> None:
        """Removes a run that never began to train, and the folders that were made for it."""
        with contextlib.suppress(OSError):  # other runs stay
            for part in self.path.iterdir():
                if part.is_dir() and not part.is_symlink():
                    shutil.rmtree(part, ignore_errors=True)
                else:
                    part.unlink()
            for folder in self.made:
                folder.rmdir()


def find_run(run_dir: Path | str, *, trained: bool = False) -> RunFolder:
    """The run in this folder, or the newest of several runs in it, such as `runs/<name>`.

    Args:
        run_dir: The folder.
        trained: Whether a run without any checkpoint is passed over for an older one that has one.

    Raises:
        UserError: If it is not the name of a folder, or the folder cannot be read.
    """
    expect(isinstance(run_dir, str | os.PathLike), "the run", run_dir, "a folder")
    folder = RunFolder(Path(run_dir).absolute())
    if _written(folder) is not None:
        return folder
    runs = sorted(_runs_in(folder.path), key=lambda run: _written(run) or 0, reverse=True)
    newest = found = runs[0] if runs else folder
    if trained:
        found = next((run for run in runs if _has_checkpoint(run)), newest)
    if found is not newest:
        logger.warning(
            "%s has no checkpoint yet; %s is the newest that has", newest.path, found.path
        )
    elif runs:
        newest = "using %s, the newest of the runs (%d) in %s"
        logger.warning(newest, found.path, len(runs), run_dir)
    return found


def _has_checkpoint(run: RunFolder) -> bool:
    """Tells if a run has a checkpoint; False for a folder that cannot be read."""
    try:
        return bool(Checkpoints(run.checkpoints).versions())
    except UserError as error:
        logger.warning("%s", error)
        return False


def _runs_in(folder: Path) -> list[RunFolder]:
    """The runs of a folder of runs: of one whose folders are all runs, or have the time as name."""
    with contextlib.suppress(OSError):
        inner = [path for path in folder.iterdir() if path.is_dir() and path.name[0] != "."]
        runs = [path for path in inner if (path / "config.json").is_file()]
        if len(runs) < len(inner):
            runs = [path for path in runs if re.match(_TIME_PATTERN, path.name)]
        return [RunFolder(path) for path in runs]
    return []


def _written(run: RunFolder) -> int | None:
    """When a run's configuration was written; None where there is none."""
    try:
        return run.config.stat().st_mtime_ns
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UserError(f"cannot read {run.path}: {error.strerror}") from error


def films(folder: RunFolder) -> dict[Path, int]:
    """The films that `RunFolder.film` names, the earliest first, with their env steps."""
    found = {file: file.stem.rpartition("_")[2] for file in folder.videos.glob("env_steps_*.mp4")}
    return {file: int(steps) for file, steps in sorted(found.items()) if steps.isdecimal()}


def revert_films(folder: RunFolder, env_steps: int) -> None:
    """Moves the films after `env_steps` aside: the run has returned to there."""
    aside = folder.videos / "reverted"
    for film, steps in films(folder).items():
        if steps > env_steps:
            aside.mkdir(exist_ok=True)
            names = (f"{film.stem}{(n and f'-{n}') or ''}{film.suffix}" for n in itertools.count())
            film.rename(next(aside / name for name in names if not (aside / name).exists()))


def remove_unfinished_films(folder: RunFolder) -> None:
    """Removes what a process that was killed has left of such films."""
    for file in folder.videos.glob(f"{UNFINISHED}env_steps_*.mp4"):
        file.unlink(missing_ok=True)


_TYPES: dict[str, type | tuple[type, ...]] = {
    "schema": int,
    "target": str,
    "overrides": list,
    "source": (str, type(None)),
    "sha256": (str, type(None)),
    "directory": str,
    "experiment": dict,
}


def read_config(folder: RunFolder) -> dict[str, Any]:
    """The contents of `config.json`; raises UserError where it is missing or broken."""
    try:
        config = parse_json(folder.config.read_bytes())
    except OSError as error:
        raise UserError(
            f"{folder.path} is not a run folder: cannot read its config.json ({error.strerror})"
        ) from error
    except ValueError as error:
        raise UserError(f"{folder.config} is not JSON any more ({error})") from error
    given = config.get("schema") if isinstance(config, dict) else None
    if given == SCHEMA and (missing := _TYPES.keys() - config.keys()):
        raise UserError(
            f"{folder.config} is damaged: it lacks {', '.join(sorted(missing))}; restore the file, "
            "or start a new run"
        )
    if given != SCHEMA:
        raise UserError(
            f"{folder.config} has schema {given}; srl {installed_version()} reads schema {SCHEMA}"
        )
    for name, kind in _TYPES.items():
        value = config[name]
        texts = value if isinstance(value, list) else [value] if isinstance(value, str) else []
        good = isinstance(value, kind) and all(map(_is_text, texts))
        if not good or not (isinstance(value, list) or all(map(_is_path, texts))):
            raise UserError(
                f"{folder.config} is damaged: {name} is {str(value)[:60]!r}, which srl did not "
                "write; restore the file, or start a new run"
            )
    if not is_signed(config):  # by a version with other modules, perhaps
        config["experiment"] = renamed(config["experiment"])
    return config


def _is_text(value: Any) -> bool:
    """Tells if a value is a text that the operating system accepts."""
    try:
        return isinstance(value, str) and b"\0" not in os.fsencode(value)
    except UnicodeEncodeError:
        return False


def _is_path(text: str) -> bool:
    """Tells if a text is short enough to name a file."""
    path = os.fsencode(text)
    return len(path) < _LONGEST_PATH and max(map(len, path.split(b"/"))) <= _LONGEST_NAME


def expect_learning_state(folder: RunFolder, config: Mapping[str, Any]) -> None:
    """Raises UserError for a folder of `srl share`, which has only what acting needs."""
    if config["directory"] == ".":
        raise UserError(
            f"{folder.path} holds policies to publish, without what learning needs, and cannot be "
            f"resumed; `srl run ... --init-from {folder.path}` begins a run from them"
        )


def expect_source(folder: RunFolder, config: Mapping[str, Any]) -> None:
    """Raises UserError if the run's copy of its experiment file is not what it was."""
    if config["source"] and _sha256(folder.source) != config["sha256"]:
        raise UserError(
            f"{folder.source} was changed after the run began; restore it, or start a new run"
        )


def _sha256(path: Path) -> str | None:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error


def write_specs(folder: RunFolder, specs: Specs) -> None:
    """Writes the environments' specs, with which policies can act where there are none.

    Raises:
        Unwritable: If the folder cannot be written.
    """
    with writing(folder.specs, Unwritable):
        write_atomically(folder.specs, (json.dumps(specs_to_json(specs)) + "\n").encode())


def read_specs(folder: RunFolder) -> Specs:
    """The specs of a run's environments.

    Raises:
        UserError: If the folder has none, or they are damaged.
    """
    try:
        return specs_from_json(parse_json(folder.specs.read_bytes()))
    except FileNotFoundError:
        raise UserError(
            f"{folder.path} has no specs.json, which holds the spaces of its environments: it was "
            f"trained by an earlier srl; `srl resume {folder.path} --trust --env-steps N` adds it"
        ) from None
    except (OSError, ValueError, RunError) as error:
        raise UserError(f"{folder.specs} cannot be read ({error})") from error


def settings_importer(folder: RunFolder) -> Import:
    """Gives what imports settings that srl ships, and nothing else, for a stranger's folder."""

    def import_module(name: str) -> ModuleType:
        try:
            return only_settings(name)
        except UserError as error:
            raise refused(folder, error) from None

    return import_module


def refused(folder: RunFolder, error: UserError) -> UserError:
    """Gives the error for a run that is not known as the user's, and needs more than settings."""
    changed = f". Or {folder.config} {CHANGED}" if is_changed(read_config(folder)) else ""
    return UserError(f"{folder.path}: {error}{changed}")


def recorded_algorithm(folder: RunFolder, config: Mapping[str, Any], *, trusted: bool) -> Algorithm:
    """The algorithm that a run's configuration records.

    Args:
        folder: The run's.
        config: Its configuration.
        trusted: Whether any module may be imported, and the experiment's file be executed.

    Raises:
        UserError: If it cannot be imported, or may not be.
    """
    directory = Path(config["directory"])

    def import_module(name: str) -> ModuleType:
        if name == "experiment" and config["source"]:
            expect_source(folder, config)  # the algorithm is the experiment file's own
            return import_file(folder.source, directory)
        add_folder(directory)
        return importlib.import_module(name)

    chosen = import_module if trusted else settings_importer(folder)
    algorithm = made_from(config["experiment"].get("algorithm"), import_module=chosen)
    expect(isinstance(algorithm, Algorithm), f"{folder.config}: algorithm", algorithm, "one")
    return algorithm
