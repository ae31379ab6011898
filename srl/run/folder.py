"""The folder of a run: everything needed to look at it, to go on with it, to make it again."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from srl.config.evaluation import Evaluation
from srl.config.experiment import HOOKS, Experiment, Resolved, load_experiment
from srl.config.sources import pinned, plays, sources_of, with_sources
from srl.core.config_values import (
    Import,
    config_values,
    flat_values,
    imported,
    made_from,
    unreachable,
)
from srl.core.errors import UserError
from srl.core.optional_packages import installed_version
from srl.core.settings import expect_settings
from srl.dataflow.plan import Plan
from srl.pools.outside import outside_module
from srl.record.files import write_atomically, writing
from srl.record.run_record import (
    SCHEMA,
    TIME,
    RunFolder,
    expect_learning_state,
    expect_source,
    find_run,
    read_config,
    recorded_algorithm,
    refused,
    settings_importer,
)
from srl.record.trust import CHANGED, OPTION, is_changed, is_own, outside, signed
from srl.run.prior import copy_prior
from srl.system.search_path import add_folder

logger = logging.getLogger(__name__)


def create_run(resolved: Resolved, run_dir: Path | None = None) -> RunFolder:
    """Makes the folder of a new run.

    Args:
        resolved: What is going to run.
        run_dir: A folder that is new or empty; `runs/<name>/<timestamp>` by default. A new one is
            for its user alone, one that exists keeps its mode.

    Raises:
        UserError: When it cannot be written, or holds a run or anything else already, or another
            run's policy cannot be copied.
    """
    path = run_dir or Path("runs") / resolved.experiment.name / time.strftime(TIME)
    if run_dir is not None and RunFolder(path).config.exists():
        raise UserError(f"{path} already holds a run; `srl resume {path}` goes on, or remove it")
    source = resolved.source.read_bytes() if resolved.source else None
    absent = [part for part in path.absolute().parents if not part.exists()]
    kept = run_dir is not None and path.exists()
    try:
        if run_dir is None:
            path = _new_folder(path)
        else:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = path.absolute()
        folder = RunFolder(path, () if kept else (path, *absent))
        if any(folder.path.iterdir()):
            raise UserError(f"{path} is not empty; give --run-dir a new or an empty folder")
        try:
            for part in (folder.log("trainer").parent, folder.checkpoints):
                part.mkdir(exist_ok=True)
            if source is not None:
                folder.source.write_bytes(source)
            copy_fixed(folder, resolved)
            copy_prior(folder, resolved.experiment)
            _write_config(folder, resolved, hashlib.sha256(source).hexdigest() if source else None)
        except BaseException:
            folder.discard()
            raise
    except OSError as error:
        raise UserError(
            f"cannot write the run folder {path}: {error.strerror}; choose one with --run-dir"
        ) from error
    return folder


def _new_folder(path: Path) -> Path:
    """Makes a folder, with a number behind its name if there is one already."""
    numbered = (path.with_name(f"{path.name}-{number}") for number in itertools.count(2))
    for each in itertools.chain([path], numbered):
        with suppress(FileExistsError):  # perhaps since a moment
            each.mkdir(mode=0o700, parents=True)  # only its user can read it
            return each
    raise AssertionError


def open_run(
    run_dir: Path | str, *, to_train: bool = False, trained: bool = False, trust: bool = False
) -> tuple[RunFolder, Resolved]:
    """A run's folder and its experiment, made again from the folder's copy of the source.

    The experiment of a folder that is not this user's own is made of its recorded values, and
    nothing is imported or executed but what srl ships.

    Args:
        run_dir: The folder, or one of several runs, whose newest is meant.
        to_train: Refuse where the code it imports now gives other values than the run began
            with; otherwise they are reported as warnings.
        trained: As for `find_run`.
        trust: Whether all may be imported and executed that a folder of others names.

    Raises:
        UserError: When it is no run folder, or does not fit the code any more, or needs trust.
    """
    folder = find_run(run_dir, trained=trained)
    config = read_config(folder)
    expect_source(folder, config)
    if to_train:
        expect_own(folder, config, trust)
    elif not (trust or _is_own(folder, config)):
        return folder, _recorded_by_strangers(folder, config)
    resolved = recorded(folder, config)
    values = json.loads(json.dumps(config_values(resolved.experiment)))
    _compare(folder, config["experiment"], values, refuse=to_train)
    return folder, resolved


def _is_own(folder: RunFolder, config: Mapping[str, Any]) -> bool:
    """Tells if srl wrote a run's configuration, and those of its fixed policies, for this user."""
    copies = folder.path.glob("fixed/*/config.json")
    return is_own(config) and all(is_own(read_config(RunFolder(file.parent))) for file in copies)


def expect_own(folder: RunFolder, config: Mapping[str, Any], trust: bool) -> None:
    """Raises UserError unless a run may train: its workers execute and import what it names."""
    expect_learning_state(folder, config)
    if trust or _is_own(folder, config):
        return
    if is_changed(config):
        raise UserError(f"{folder.config} {CHANGED}; {OPTION} runs what it names now")
    raise UserError(
        f"srl does not know the run {folder.path} as yours, and to go on with it is to run its "
        f"code: look at it, and give {OPTION} if you trust it"
    )


def recorded(folder: RunFolder, config: Mapping[str, Any]) -> Resolved:
    """The experiment that a run's configuration records."""
    if not config["target"]:
        if lacking := config.get("unreachable"):
            raise UserError(
                f"the experiment of {folder.path} was made in a program, and {lacking}, which no "
                f"other can import: srl.train(experiment, run_dir={str(folder.path)!r}, resume=True"
                ") goes on with it; what is to be loaded has to be at the top level of a module"
            )
        directory = Path(config["directory"])
        experiment = _made(config["experiment"], directory, import_module)
        return _completed(experiment, directory, recorded_fixed(folder, config))
    plan = made_from(config["experiment"].get("plan"))  # a name where it is still to be measured
    return load_experiment(
        config["target"],
        config["overrides"],
        source=folder.source if config["source"] else None,
        directory=Path(config["directory"]),
        fixed=recorded_fixed(folder, config),
        plan=plan if isinstance(plan, Plan) else None,
    )


def _recorded_by_strangers(folder: RunFolder, config: Mapping[str, Any]) -> Resolved:
    """The experiment that a stranger's folder records, of nothing but what srl ships."""
    importer = settings_importer(folder)
    values, fixed = config["experiment"], recorded_fixed(folder, config)
    for policy in (policy for name, policy in fixed.items() if plays(name)):
        other = RunFolder(policy.folder)
        recorded_algorithm(other, read_config(other), trusted=False)
    experiment = _made(values, None, importer)
    if name := next(filter(None, map(outside_module, experiment.environments)), ""):
        raise refused(folder, outside(name))
    return _completed(experiment, None, fixed)


def _made(values: Any, directory: Path | None, import_module: Import) -> Experiment:
    """The experiment of its values; without a directory for imports it takes no hooks."""
    hooks = dict.fromkeys(HOOKS.values())
    if directory is not None:
        add_folder(directory)
        hooks = {name: _hook(values.get(name)) for name in hooks}
    made = made_from({**values, **dict.fromkeys(hooks)}, import_module=import_module)
    if not isinstance(made, Experiment):
        raise UserError(f"the values of an experiment make {made!r}")
    return dataclasses.replace(made, **hooks)


def _completed(
    experiment: Experiment, directory: Path | None, fixed: Mapping[str, Any]
) -> Resolved:
    """The validated experiment; a run that has begun goes on with the same `fixed` policies."""
    experiment.validate()
    experiment = pinned(experiment, fixed or experiment.sources)
    return Resolved(experiment, "", (), None, directory or Path.cwd())


def _hook(path: Any) -> Any:
    """The function of a hook; None where there is none to import, which workers do not need."""
    with suppress(UserError):
        return imported(path) if isinstance(path, str) else None


def recorded_fixed(folder: RunFolder, config: Mapping[str, Any]) -> dict[str, Any]:
    """The policies of other runs that a run's configuration records, read from its copies."""
    settings = [config["experiment"].get(name) for name in ("policies", "teacher", "init_from")]
    policies, *others = made_from(settings, import_module=settings_importer(folder))
    return {
        name: policy.read_in(folder.fixed_copy(name))
        for name, policy in sources_of(policies or {}, *others).items()
    }


def copy_fixed(folder: RunFolder, resolved: Resolved) -> Resolved:
    """Copies what is needed of other runs; gives the same with the copies read.

    Raises:
        UserError: As `Fixed.copied`.
    """
    experiment = resolved.experiment
    sources = experiment.sources
    if not sources:
        return resolved
    copies = {name: policy.copied(folder.fixed_copy(name)) for name, policy in sources.items()}
    return dataclasses.replace(resolved, experiment=with_sources(experiment, copies))


def recorded_experiment(folder: Path) -> Experiment:
    """The experiment of a run whose folder `open_run` would accept, for its other processes.

    Raises:
        UserError: When `config.json` is damaged, or the experiment file cannot be imported.
    """
    run = RunFolder(folder)
    return recorded(run, read_config(run)).experiment


def recorded_budget(folder: RunFolder) -> Experiment:
    """An experiment with a run's name, budget and target alone; nothing is imported for it.

    Raises:
        UserError: When `config.json` is damaged.
    """
    values = read_config(folder)["experiment"]
    names = ("name", "env_steps", "updates", "pause_at")
    known = {name: values[name] for name in names if name in values}
    if isinstance(evaluation := values.get("evaluation"), dict):
        chosen = {name: evaluation[name] for name in ("metric", "target") if name in evaluation}
        known["evaluation"] = Evaluation(**chosen)
    try:
        experiment = Experiment(env="", **known)
        expect_settings("", experiment)
    except UserError as error:
        raise UserError(f"{folder.config} is damaged: {error}") from None
    return experiment


def continue_run(folder: RunFolder, resolved: Resolved) -> Resolved:
    """A run's experiment as a program gives it again, perhaps with a larger budget.

    Raises:
        UserError: If it is another experiment, or its budget is used up already.
    """
    stored, budget = (
        read_config(folder)["experiment"],
        ("env_steps", "updates", "pause_at", "minutes"),
    )
    measured = made_from(stored.get("plan"))
    if resolved.experiment.plan == "auto" and isinstance(measured, Plan):
        resolved = dataclasses.replace(
            resolved, experiment=dataclasses.replace(resolved.experiment, plan=measured)
        )
    values = json.loads(json.dumps(config_values(resolved.experiment)))
    if [stored.get(name) for name in budget] != [values[name] for name in budget]:
        stored = {**stored, **{name: values[name] for name in budget}}
        with folder.locked():
            _compare(folder, stored, values, refuse=True)
            record(folder, resolved)
    _compare(folder, stored, values, refuse=True)
    return resolved


def record(folder: RunFolder, resolved: Resolved) -> None:
    """Records in `config.json` the experiment that the run has from now on."""
    copy_fixed(folder, resolved)
    with writing(folder.config):
        _write_config(folder, resolved, read_config(folder)["sha256"])


def _write_config(folder: RunFolder, resolved: Resolved, sha256: str | None) -> None:
    from srl.tracking.benchmark_keys import benchmark_keys  # knows environments, as acting does not

    values = config_values(resolved.experiment)
    config = {
        "schema": SCHEMA,
        "srl": installed_version(),
        "target": resolved.target,
        "overrides": list(resolved.overrides),
        "source": str(resolved.source) if resolved.source else None,
        "sha256": sha256,
        "directory": str(resolved.directory),
        **benchmark_keys(values),
        "experiment": values,
    }
    if not resolved.target:
        lacking = next(unreachable("", resolved.experiment.without_hooks), "")
        config["unreachable"] = lacking.removeprefix(".")
    write_atomically(folder.config, (json.dumps(signed(config), indent=2) + "\n").encode())


def file_metadata(
    config: Mapping[str, Any], counts: Mapping[str, int], policies: list[str]
) -> dict[str, str]:
    """Gives the metadata of a file with policies of a run: texts by name."""
    return {
        "config": json.dumps(config["experiment"]),
        "policies": json.dumps(policies),
        "version": str(counts["updates"]),
        "env_steps": str(counts["env_steps"]),
        "srl": str(config.get("srl")),
    }


def _compare(folder: RunFolder, stored: Any, current: Any, *, refuse: bool) -> None:
    """Reports each value that is not the one the run began with."""
    hooks = HOOKS.values()
    # Hooks may be others each time that a run goes on.
    stored, current = (
        {name: value for name, value in flat_values(values).items() if name not in hooks}
        for values in (stored, current)
    )
    for name, value in stored.items():
        own = current.get(name, value)
        if own != value and repr(own) != repr(value):  # NaN is not equal to itself
            text = (
                f"{folder.path} began with {name}={value!r}, but the code it imports now gives "
                f"{current[name]!r}"
            )
            if refuse and is_changed(read_config(folder)):
                raise UserError(
                    f"{folder.config} has {name}={value!r}, where the run began with "
                    f"{current[name]!r}: it {CHANGED}"
                )
            if refuse:
                raise UserError(f"{text}; restore that code, or start a new run")
            logger.warning("%s, which is what counts here", text)
    for name in stored.keys() ^ current.keys():
        logger.warning("%s is not in both the run's configuration and the present one", name)
