"""Training from a script, a notebook or a test, as `srl run` and `srl resume` do it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from srl.config.effects import expect_effect
from srl.config.experiment import Experiment, Resolved, load_experiment, resolved_value
from srl.core.errors import RunError, UserError, explained
from srl.dataflow.plan import Plan
from srl.evaluation.evaluate import Results, evaluate
from srl.launch.auto import settled
from srl.launch.local import train as train_here
from srl.launch.start import begin
from srl.launch.submit import comes_back, refuse_running
from srl.policies.agent import Agent, load
from srl.pools.python.sources import made_already
from srl.record.run_record import RunFolder, find_run, read_config
from srl.run.folder import continue_run, expect_own, open_run, recorded_fixed
from srl.run.hooks import Event
from srl.run.metrics import FILE, is_evaluation, read_metrics
from srl.run.resume import choose_start, made_ready
from srl.run.terminal import INTERRUPTED, failed

Hook = Callable[[Event], Any]
"""A function that is called as a run goes."""


def train(
    experiment: Experiment | str | Path,
    run_dir: Path | str | None = None,
    *,
    plan: Plan | str | None = None,
    overrides: Sequence[str] = (),
    resume: bool = False,
    partial_replay: bool = False,
    anew: bool = False,
    trust: bool = False,
    quiet: bool = False,
    on_report: Hook | None = None,
    on_checkpoint: Hook | None = None,
    on_evaluation: Hook | None = None,
) -> Run:
    """Trains an experiment to its end.

    Worker processes import the functions and classes that an experiment names. Under a plan of one
    process it may hold anything, such as a lambda that makes the environment.

    Args:
        experiment: The experiment, its file or an environment's id, as for `srl run`.
        run_dir: A new or empty folder; `runs/<name>/<timestamp>` by default.
        plan: The plan or its name, in place of the experiment's.
        overrides: Options for an experiment by file or id, such as ["--num-envs", "8"].
        resume: True continues the run of this experiment in `run_dir`; the budget may be larger.
        partial_replay: As for `Run.resume`.
        anew: As for `Run.resume`.
        trust: True continues a run that others have made, and runs code of its folder.
        quiet: True shows nothing.
        on_report: A hook in place of the experiment's, called at each report.
        on_checkpoint: Likewise, after each checkpoint.
        on_evaluation: Likewise, at the first report after a version was evaluated.

    Returns:
        The run, which has ended: its budget is used up, or a hook has stopped it.

    Raises:
        UserError: If the experiment cannot run as it is.
        RunError: If training fails; the text names the worker's log.
        KeyboardInterrupt: If it was interrupted (Ctrl-C, or a notebook's stop button), after a
            checkpoint from which `Run(run_dir).resume()` goes on.
    """
    folder = find_run(run_dir) if resume and run_dir is not None else None
    fixed = {}
    if folder is not None:
        config = read_config(folder)
        expect_own(folder, config, trust)
        fixed = recorded_fixed(folder, config)
    resolved = _resolved(experiment, plan, overrides, fixed)
    hooks = dict(on_report=on_report, on_checkpoint=on_checkpoint, on_evaluation=on_evaluation)
    given = {name: hook for name, hook in hooks.items() if hook is not None}
    resolved = replace(resolved, experiment=replace(resolved.experiment, **given))
    resolved.experiment.validate()
    say = _silent if quiet else print_line
    if not resume:
        expect_effect(resolved.experiment)
        folder, resolved = begin(resolved, None if run_dir is None else Path(run_dir), say)
        return _train(folder, resolved, resume=False, quiet=quiet)
    if folder is None:
        raise UserError("resume=True goes on with a run: give its folder as run_dir")
    refuse_running(folder)
    choose_start(folder, say, partial_replay=partial_replay, anew=anew)
    resolved = settled(folder, continue_run(folder, resolved), say)
    return _train(folder, resolved, resume=True, quiet=quiet)


class Run:
    """A training run, by its folder."""

    def __init__(self, run_dir: Path | str) -> None:
        """Finds a run, or the newest of several in a folder.

        Raises:
            UserError: If there is none.
        """
        self._folder = find_run(run_dir)
        read_config(self._folder)
        self._resolved: Resolved | None = None  # as given, where it was trained here

    @property
    def path(self) -> Path:
        """Its folder."""
        return self._folder.path

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The reports so far, as metrics.jsonl has them: names to numbers."""
        return read_metrics(self.path) if (self.path / FILE).exists() else []

    @property
    def last(self) -> Mapping[str, Any]:
        """The newest report of training; empty if there is none."""
        reports = (report for report in reversed(self.metrics) if not is_evaluation(report))
        return next(reports, {})

    def columns(self) -> dict[str, list[Any]]:
        """The reports as a list for each name, with None where one has no such number."""
        rows = self.metrics
        names = dict.fromkeys(name for row in rows for name in row)
        return {name: [row.get(name) for row in rows] for name in names}

    def resume(
        self,
        *,
        env_steps: int | None = None,
        updates: int | None = None,
        minutes: float | None = None,
        version: int | None = None,
        partial_replay: bool = False,
        anew: bool = False,
        quiet: bool = False,
        trust: bool = False,
    ) -> Run:
        """Continues the run as `srl resume` does, with the errors of `train`.

        Args:
            env_steps: The budget of environment steps in all, in place of the experiment's.
            updates: The same, in updates.
            minutes: The longest time to train, in place of the experiment's; `math.inf` for none.
            version: The updates of the checkpoint to continue from; the newest by default.
            partial_replay: True leaves out damaged blocks of the replay.
            anew: True trains from the beginning if there is no checkpoint.
            quiet: True shows nothing.
            trust: Whether to go on with a run that others have made.
        """
        folder, resolved = self._folder, self._resolved
        if resolved is None:
            folder, resolved = open_run(self.path, to_train=True, trust=trust)
        refuse_running(folder)
        say = _silent if quiet else print_line
        resolved = made_ready(
            folder,
            resolved,
            say,
            env_steps=env_steps,
            updates=updates,
            minutes=minutes,
            version=version,
            partial_replay=partial_replay,
            anew=anew,
        )
        resolved = settled(folder, resolved, say)
        if self._resolved is not None:
            self._resolved = resolved  # also if it is interrupted
        return _train(folder, resolved, resume=True, quiet=quiet)

    def load(
        self, version: int | str | None = None, *, seed: int = 0, trust: bool = False
    ) -> Agent:
        """The policies of a checkpoint, to act with; see `srl.load`."""
        return load(self.path, version, seed=seed, trust=trust)

    def evaluate(self, version: int | Literal["best"] | None = None, **settings: Any) -> Results:
        """Plays whole episodes; see `srl.evaluate`."""
        experiment = None if self._resolved is None else self._resolved.experiment
        return evaluate(self.path, version, experiment=experiment, **settings)

    def __fspath__(self) -> str:
        """Lets a run stand for its folder, as in `srl.load(run)`."""
        return str(self.path)

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"


def _resolved(
    experiment: Experiment | str | Path,
    plan: Plan | str | None,
    overrides: Sequence[str],
    fixed: Mapping[str, Any],
) -> Resolved:
    if isinstance(overrides, str):
        raise UserError(
            f"overrides is {overrides!r}; expected a list, such as {shlex.split(overrides)}"
        )
    if strange := [word for word in overrides if not isinstance(word, str)]:
        raise UserError(
            f"overrides has {strange[0]!r}; expected texts, as on a command line: '{strange[0]}'"
        )
    if isinstance(experiment, Experiment):
        if overrides:
            raise UserError(
                "overrides are for an experiment's file; of an Experiment, give "
                "dataclasses.replace(experiment, num_envs=8)"
            )
        chosen = experiment if plan is None else replace(experiment, plan=plan)
        return resolved_value(chosen, fixed)
    if not isinstance(experiment, str | Path):
        given = made_already(experiment) or repr(experiment)
        raise UserError(
            f"srl.train was given {given}; expected an Experiment, its file, or an environment's id"
        )
    if isinstance(plan, Plan):
        raise UserError(
            f"the plan of {experiment}, which workers read again, is given by its name, such as "
            'plan="inline"'
        )
    named = () if plan is None else ("--plan", plan)
    return load_experiment(str(experiment), (*named, *overrides), fixed=fixed)


def _train(folder: RunFolder, resolved: Resolved, *, resume: bool, quiet: bool) -> Run:
    if resume:
        comes_back(folder)
    code = train_here(
        resolved.experiment, folder, resume=resume, quiet=quiet, on_failure=_raise_failure
    )
    if code == INTERRUPTED:
        raise KeyboardInterrupt(
            f"stopped after a checkpoint; srl.Run({str(folder.path)!r}).resume() goes on"
        )
    run = Run(folder.path)
    run._resolved = resolved
    return run


def _raise_failure(error: BaseException, folder: RunFolder, worker: str, what: str = "") -> None:
    raise RunError(f"{explained(error)}\n{failed(folder, worker, what)}") from error


def print_line(text: str) -> None:
    """Shows a line of text on standard output."""
    print(text, flush=True)  # noqa: T201


def _silent(text: str) -> None:
    """Shows nothing."""
