"""An experiment: everything that a training run is, as one value.

    experiment = Experiment(name="cartpole", env="CartPole-v1", num_envs=64, env_steps=300_000)

A file holds it at module level and `srl run FILE` trains it. Workers import the same file and
apply the same overrides, so nothing is pickled; importing one loads neither jax nor flax.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Annotated, Any

import gymnasium

from srl.algorithms import PPO, Algorithm
from srl.algorithms.imitation import Imitating
from srl.config.atari import with_atari_settings
from srl.config.curriculum import Lesson, expect_curriculum
from srl.config.evaluation import Evaluation
from srl.config.fixed import Fixed, expect_policies
from srl.config.overrides import override, split
from srl.config.plan_checks import expect_plan
from srl.config.self_play import SelfPlay
from srl.config.sources import expect_sources, expect_teacher, pinned, sources_of
from srl.config.tracking import Tracker, Tracking, expect_texts
from srl.core.backends import id_of
from srl.core.config_values import import_folders
from srl.core.declared import expect_declared
from srl.core.errors import PlanError, UserError, expect
from srl.core.settings import AtLeastOne, Count, NotNegative, Range, Seed, Settings, expect_settings
from srl.dataflow.graph import Graph
from srl.dataflow.plan import Plan, num_groups
from srl.dataflow.plans import resolve
from srl.dataflow.trace import trace
from srl.pools import EnvConfig
from srl.pools.config import with_options
from srl.pools.make import expect_source
from srl.pools.python.make import LONGEST_SECONDS, MOST
from srl.record.experiment_file import import_file
from srl.record.files import short_path
from srl.system.search_path import add_folder

_MOST_STEPS = 2**53  # a float64 does not hold more exactly
_SECONDS = Range(1e-3, LONGEST_SECONDS)


@dataclass(frozen=True)
class Experiment(Settings):
    """The settings of a training run."""

    name: str
    """Name of the folder of its runs."""
    env: str | Callable[[], gymnasium.Env] | EnvConfig
    """An id such as CartPole-v1, native:CartPole-v1, module:Name-v0 or pettingzoo:module, a
    callable that makes a Gymnasium environment, or an environment's configuration. Options of an id
    are --env.OPTION VALUE, or NamedEnv(id, options) in a file."""
    num_envs: Annotated[int, Range(1, MOST)] = 64
    """Environments stepped together."""
    algorithm: Algorithm = field(default_factory=PPO)
    """The learning algorithm of the policies, with its settings."""
    policies: Mapping[str, str | Fixed] = field(default_factory=lambda: {"*": "policy"})
    """Policies by pattern of agents' names: the name of a trained policy, or a fixed policy of
    another run."""
    team_reward: Mapping[str, str] = field(default_factory=dict)
    """Teams by pattern of agents' names: sum or mean, which each agent of the team learns from in
    place of its reward. Reported returns are of the agents' rewards."""
    teacher: str | Fixed | tuple[str | Fixed, ...] = ()
    """A run of which the policies are imitated: RUN_DIR[:V], where V is a version or best. Several
    are chosen by `teacher_key`."""
    teacher_key: str = ""
    """The key of an integer in a Dict observation: the number of the teacher, from 0."""
    init_from: str | Fixed | None = None
    """A run of which parameters that fit are the first ones: RUN_DIR[:V]."""
    self_play: SelfPlay | None = None
    """Matches with past versions of the policies, and ratings of them; by default none."""
    curriculum: tuple[Lesson, ...] = ()
    """Lessons before training on `env` as it is: each changes options of it until a condition on
    metrics holds."""
    evaluation: Evaluation | None = None
    """Whole episodes of the policies' versions, played in the background; by default none."""
    plan: Plan | str | None = None
    """The division of the training loop into workers: a plan, the name of one, or auto, which
    measures a few. The kind of environment and `max_staleness` decide the default."""
    max_staleness: Annotated[int | None, Range(0, 1000)] = 0
    """Largest age, in updates, of the parameters that act. 0 is synchronous and reproducible. None
    never waits for parameters: unrolls begin up to 8 updates ahead of the learner."""
    groups: Annotated[int, Range(0, MOST)] = 0
    """Number of groups of environments with common steps and decisions; 0 leaves it to the plan."""
    env_steps: Annotated[int, Range(1, _MOST_STEPS)] = 1_000_000
    """Number of environment steps to train for."""
    updates: Annotated[int | None, Range(1, MOST)] = None  # a version is int32
    """Number of updates to train for, in place of environment steps."""
    pause_at: Annotated[int | None, Range(1, _MOST_STEPS)] = None
    """Environment steps after which the run pauses; `srl resume --env-steps` continues it.
    Schedules, such as a falling learning rate, follow env_steps or updates."""
    minutes: Annotated[float | None, _SECONDS] = None
    """Minutes after which the run pauses, compilation included, with a checkpoint. `srl resume`
    continues it for as many minutes again."""
    seed: Seed = 0
    """The seed of the environments, the networks and the sampling."""
    threads: Annotated[int, Range(0, MOST)] = 0
    """Threads of the environment pool; 0 takes every core."""
    workers: Annotated[int | None, Range(0, MOST)] = None
    """Processes that step each pool of Python environments; by default the trainer steps these one
    after the other. Those with a process each may step as they get ready (docs/tuning.md)."""
    step_timeout: Annotated[float | None, _SECONDS] = None
    """Longest seconds of a step or reset in one of these processes; 60 by default."""
    heartbeat_seconds: Annotated[float, Range(0.1, LONGEST_SECONDS)] = 60.0
    """Seconds without a message or progress after which a worker process counts as hung, and is
    killed and restarted, at least 3 of silence. Before its main loop begins, at least 300 seconds
    without progress are allowed. In a single-process run a hang is only reported."""
    report_every: Count = 0
    """Updates between report lines; 0 chooses about 50 lines a run, at most 100 updates apart, and
    another after the first update."""
    checkpoint_minutes: NotNegative = 5.0
    """Most minutes between checkpoints. Intervals start small and double up to this. The first
    checkpoint follows the first update, and the last comes at the end."""
    keep_checkpoints: AtLeastOne = 5
    """The number of newest checkpoints to keep."""
    tags: tuple[str, ...] = ()
    """Labels of the run, in config.json and for trackers."""
    trackers: tuple[Tracker, ...] = ()
    """Further destinations of metrics and films: wandb, mlflow, prometheus. The run's folder always
    gets them, with TensorBoard events."""
    tracking: Tracking = field(default_factory=Tracking)
    """Settings of the trackers."""
    on_report: Callable[[Any], Any] | None = None
    """A function of an `srl.Event`, called at each report; it may stop the run or change
    settings."""
    on_checkpoint: Callable[[Any], Any] | None = None
    """Likewise, after each checkpoint."""
    on_evaluation: Callable[[Any], Any] | None = None
    """Likewise, at the first report after a version was evaluated."""

    @cached_property
    def settled_plan(self) -> Plan:
        """The plan that the run follows: the given one, the named one, or the usual one.

        Raises:
            PlanError: If it is still to be chosen by measuring.
        """
        plan = resolve(self.plan, self)
        if plan == "auto":
            raise PlanError("the plan auto has to be measured first; name one")
        return plan

    @cached_property
    def settled_algorithm(self) -> Algorithm:
        """The algorithm, with numbers for the settings that are left to it."""
        algorithm = self.algorithm.settled(self.num_envs)
        if self.teacher and isinstance(algorithm, Imitating):
            algorithm = algorithm.with_teacher()
        return with_atari_settings(algorithm, self.env)

    @property
    def env_id(self) -> str:
        """The id of the environment; empty of a callable."""
        return id_of(self.env)

    @cached_property
    def graph(self) -> Graph:
        """The algorithm's loop, without the shapes of its values.

        Raises:
            PlanError: If the loop is none that can be run.
        """
        return trace(self.settled_algorithm)

    @property
    def lesson_envs(self) -> list[Any]:
        """The environments of the curriculum's lessons, the last of which is `env`."""
        lessons = enumerate(self.curriculum)
        changed = [with_options(f"curriculum[{k}]", self.env, x.options) for k, x in lessons]
        return [*changed, self.env]

    @property
    def environments(self) -> list[Any]:
        """The environments of lessons, of training and of evaluation.

        Raises:
            UserError: If these give options that there are not.
        """
        expect_curriculum(self.curriculum)
        if not isinstance(self.evaluation, Evaluation):
            return self.lesson_envs
        self.evaluation.validate()
        return [*self.lesson_envs, self.evaluation.environment(self.env)]

    @property
    def action_repeat(self) -> int:
        """Steps that an environment takes with each action: frame skip."""
        return self.graph.action_repeat

    @property
    def taught(self) -> bool:
        """True if the loop has a teacher, which adds its advice to decisions."""
        return "teach" in self.graph.nodes

    @property
    def num_groups(self) -> int:
        """Groups of environments that are stepped and acted for together."""
        return num_groups(self.settled_plan, self)

    @property
    def steps_per_update(self) -> float:
        """Steps of all environments for each call of `learn`."""
        return self.num_envs * self.graph.steps / self.graph.learns

    @property
    def expected_updates(self) -> int:
        """Calls of `learn` until the budget is used up."""
        return self.updates or math.ceil(self.env_steps / self.steps_per_update)

    def validate(self) -> None:
        """Raises UserError, which names the field, where a value is not what is expected."""
        expect_declared("experiment", self)
        good = isinstance(self.name, str) and re.fullmatch(r"\w[\w.-]*", self.name)
        expect(good, "name", self.name, "letters, digits, '-', '_', '.'")
        good = isinstance(self.algorithm, Algorithm)
        expect(good, "algorithm", self.algorithm, "an algorithm such as PPO()")
        self.algorithm.validate()
        expect_settings("", self)
        self._validate_parts()

    def _validate_parts(self) -> None:
        expect_source("env", self.env)
        most = int(MOST * self.steps_per_update)
        expect(
            self.updates is not None or self.env_steps <= most,
            "env_steps",
            self.env_steps,
            f"at most {most}, which is {MOST} updates",
        )
        expect_policies(self.policies)
        good = all(
            isinstance(pattern, str) and how in ("sum", "mean")
            for pattern, how in self.team_reward.items()
        )
        expect(good, "team_reward", self.team_reward, 'sum or mean by pattern, {"hider*": "sum"}')
        expect_sources(self.sources)
        expect_teacher(self.teacher, self.teacher_key, self.algorithm, asked=self.taught)
        if self.self_play is not None:
            self.self_play.validate()
        expect_curriculum(self.curriculum)
        if self.evaluation is not None:
            self.evaluation.validate()
            self.evaluation.environment(self.env)
        elif self.on_evaluation is not None:
            raise UserError(
                "on_evaluation would never be called: the experiment has no evaluation; give it "
                "evaluation=Evaluation(), or leave out the hook"
            )
        expect_texts("tags", self.tags)
        self.tracking.validate()
        for hook, given in ((name, getattr(self, name)) for name in HOOKS.values()):
            expect(given is None or callable(given), hook, given, "a function of an srl.Event")
        expect_plan(self)

    @property
    def fixed(self) -> dict[str, Fixed]:
        """The policies that are not trained, by the pattern of those agents' names that follow."""
        return {pattern: p for pattern, p in self.policies.items() if isinstance(p, Fixed)}

    @property
    def sources(self) -> dict[str, Fixed]:
        """All policies of other runs, by the names of their copies in the run's folder."""
        return sources_of(self.policies, self.teacher, self.init_from)

    @property
    def without_hooks(self) -> Experiment:
        """The experiment without the functions that only the process which leads the run needs."""
        return replace(self, **dict.fromkeys(HOOKS.values()))


_NONE: Mapping[str, Any] = MappingProxyType({})
HOOKS = {"report": "on_report", "checkpoint": "on_checkpoint", "evaluation": "on_evaluation"}
"""The fields that hold hooks, by the events that these are called at."""


@dataclass(frozen=True)
class Resolved:
    """An experiment, with everything that another process needs to make it again."""

    experiment: Experiment
    target: str
    """FILE[:NAME] or an environment id, as given; empty for an experiment that is a value of a
    program. Another process then makes it from its recorded values."""
    overrides: tuple[str, ...]
    """Command-line arguments applied to the target."""
    source: Path | None
    """The experiment file, or None."""
    directory: Path
    """The folder for the target's imports: on `sys.path`, behind installed packages."""


def load_experiment(
    target: str,
    overrides: Sequence[str] = (),
    *,
    source: Path | None = None,
    directory: Path | None = None,
    fixed: Mapping[str, Any] = _NONE,
    plan: Plan | None = None,
    here: bool = True,
    flags: Sequence[str] = (),
) -> Resolved:
    """The experiment that `target` names, with `overrides` applied.

    Args:
        target: FILE[:NAME] or an environment id.
        overrides: Arguments such as `--num-envs 32 --algorithm.learning-rate 3e-4`.
        source: Read in place of the target's file (a run's own copy of it).
        directory: For imports, in place of the target's own.
        fixed: The `sources` of a run that has begun: it goes on with the same.
        plan: The plan of a run that has begun, whatever names one: processes and machines that go
            on with it may have other devices and cores.
        here: Whether this machine runs it; see `srl.dataflow.plans.resolve`.
        flags: Options of the command that takes the overrides, for hints at a wrong one.

    Raises:
        UserError: When the target or an override is wrong.
    """
    path, name = file_of(target)
    if path is None:
        directory = (directory or Path.cwd()).resolve()
        experiment = Experiment(name=default_name(target), env=target)
        add_folder(directory)
    else:
        source = (source or path).resolve()
        directory = (directory or source.parent).resolve()
        experiment = _named(import_file(source, directory), name, path)
    expect_declared("experiment", experiment)  # or an override of such a setting were unknown
    applied = overrides
    if plan is not None:
        experiment = replace(experiment, plan=plan)
        applied = split(overrides, lambda flag: f"{flag}.".startswith("--plan."))[1]
    experiment = _settled(override(experiment, applied, flags, here=here), fixed)
    return Resolved(experiment, target, tuple(overrides), source, directory)


def resolved_value(experiment: Experiment, fixed: Mapping[str, Any] = _NONE) -> Resolved:
    """An experiment that a program has made, with its plan and its algorithm settled.

    Raises:
        UserError: If a value is not what is expected.
    """
    experiment = _settled(experiment, fixed)
    folders = import_folders(experiment)
    directory = folders.pop() if len(folders) == 1 else Path.cwd()
    return Resolved(experiment, "", (), None, directory.resolve())


def _settled(experiment: Experiment, fixed: Mapping[str, Any]) -> Experiment:
    """The experiment, once it is validated, with all settled but a plan that is auto."""
    experiment.validate()
    plan = "auto" if experiment.plan == "auto" else experiment.settled_plan
    algorithm = experiment.settled_algorithm
    return pinned(replace(experiment, plan=plan, algorithm=algorithm), fixed)


def with_overrides(resolved: Resolved, overrides: Sequence[str]) -> Resolved:
    """The same experiment with other overrides than it was loaded with."""
    fixed = resolved.experiment.sources
    if resolved.target:
        places = {"source": resolved.source, "directory": resolved.directory}
        return load_experiment(resolved.target, overrides, fixed=fixed, **places)
    experiment = override(resolved.experiment, overrides)
    return replace(resolved_value(experiment, fixed), overrides=tuple(overrides))


def default_name(env: str) -> str:
    """The name of an experiment that is given as the id of an environment alone."""
    return re.sub(r"[^\w.-]+", "-", env).strip("-.") or "experiment"


def file_of(target: str) -> tuple[Path | None, str]:
    """The file and the experiment's name in it; no file for an environment id."""
    match = re.fullmatch(r"(.+\.py)(?::(\w+))?", target)
    if match:
        return Path(match[1]), match[2] or "experiment"
    if Path(target).is_file():
        return Path(target), "experiment"
    if target.startswith("-") or not target:
        raise UserError(f"{target!r} is neither an experiment file nor an environment id")
    if Path(target).is_dir() and target not in gymnasium.registry:
        raise UserError(_not_a_folder(Path(target)))
    return None, ""


def _not_a_folder(folder: Path) -> str:
    """The error text for a folder that was given in place of an experiment."""
    for pattern, what in (
        ("config.json", "the folder of a run"),
        ("*/config.json", "a folder of runs"),
    ):
        if next(folder.glob(pattern), None):
            return (
                f"{folder} is {what}: `srl resume {folder}` goes on with it; a new run begins with "
                "an experiment file or an environment id"
            )
    files = sorted(file.name for file in folder.glob("*.py"))
    hint = f", such as {folder / files[0]}" if files else ""
    return f"{folder} is a folder; give an experiment file{hint}, or an environment id"


def _named(module: ModuleType, name: str, path: Path) -> Experiment:
    value = getattr(module, name, None)
    if isinstance(value, Experiment):
        return value
    if value is not None:
        raise UserError(f"`{name}` in {path} is {value!r}; expected an Experiment(...)")
    there = [k for k, v in vars(module).items() if isinstance(v, Experiment)]
    classes = _environment_classes(module)
    env = classes[0] if classes else "..."
    hint = f"add `experiment = Experiment(name=..., env={env})` to it"
    if there:
        hint = f"it has {', '.join(there)}: run {path}:{there[0]}"
    elif ids := _ids(path, classes):
        hint = f"`srl run {ids[0]}` trains on the environment in it; or {hint}"
    raise UserError(f"{path} has no `{name}`; {hint}")


def environment_ids(path: Path) -> list[str]:
    """The classes of environments that a Python file holds, as ids such as my_envs:MyEnv.

    Raises:
        UserError: If the file cannot be imported.
    """
    return _ids(path, _environment_classes(import_file(path.resolve(), path.resolve().parent)))


def _environment_classes(module: ModuleType) -> list[str]:
    """The names of the classes of environments that a module itself defines."""
    return [
        name
        for name, value in vars(module).items()
        if isinstance(value, type) and value.__module__ == module.__name__
        if issubclass(value, gymnasium.Env)
        or any(kind.__name__ == "ParallelEnv" for kind in value.__mro__)
    ]


def _ids(path: Path, classes: Sequence[str]) -> list[str]:
    """Ids for classes in a file; none where the file cannot be imported from the current folder."""
    parts = Path(short_path(path.resolve())).with_suffix("").parts
    good = all(part.isidentifier() for part in parts)
    return [f"{'.'.join(parts)}:{name}" for name in classes] if good else []
