"""The terminal's display of a run: its settings, its progress, its metrics."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from srl.config.experiment import Experiment
from srl.core.config_values import config_values
from srl.core.console.number_text import number_text
from srl.core.console.stages import Stages
from srl.dataflow.plan import steps_as_ready
from srl.dataflow.plans import turns_text
from srl.loop.stage import Stage
from srl.pools import NamedEnv
from srl.record.run_record import RunFolder
from srl.run.status import note_stage
from srl.run.train_loop import report_interval

_REFRESH_SECONDS = 0.25
_NOTE_SECONDS = 1.0  # between two records of the stage for `srl top`
_LINE_SECONDS = 1.0  # between two lines of reports, so that the log of a long run stays small
_KNOWN_SECONDS = 1.0  # after which the time that is left can be estimated

_STAGES = {
    Stage.STARTING: ("starting", ""),
    Stage.COMPILING: ("compiling", "before the first update, for a minute or so"),
    Stage.RESETTING: ("resetting", "the environments"),
    Stage.STEPPING: ("first steps", ""),
}
"""The label of each stage before the first report, and a remark on it."""


class Display:
    """A progress bar on a terminal; elsewhere a line for a report, at most one a second."""

    def __init__(
        self,
        experiment: Experiment,
        console: Console | None = None,
        stopping: Callable[[], bool] = lambda: False,
        *,
        quiet: bool = False,
    ) -> None:
        """Shows nothing yet.

        Args:
            experiment: What is run.
            console: Where it is shown; standard output by default.
            stopping: Whether the run is to end; from then on no stage is shown.
            quiet: Whether to show nothing at all.
        """
        self.updates = 0
        """The updates made so far, which are shown until there is a report."""
        self.folder_shown = False
        """True once the run's folder is shown; it then stays, however the run ends."""
        # In a notebook lines are shown, for which rich needs no widgets.
        self._console = console or Console(
            highlight=False, soft_wrap=True, force_jupyter=False, quiet=quiet
        )
        self._experiment, self._stopping = experiment, stopping
        self._progress: _Bar | None = None
        self._stages = Stages(self._console)
        self._awaits_report = True
        self._next_refresh = self._next_line = 0.0
        self._newest = ""  # report, where its line is not shown yet
        self._begin: tuple[float, int] | None = None  # the time and the progress, as it starts
        self._folder: RunFolder | None = None
        self._noted: tuple[Stage | None, str] = (None, "")
        self._next_note = 0.0

    def header(self, folder: RunFolder) -> None:
        """Shows the settings of the run that begins; its folder once it can run with them."""
        self._folder, experiment = folder, self._experiment
        env = _short_name(experiment.env)
        self._line("experiment", experiment.name)
        self._line("environment", f"{env}, {experiment.num_envs} at a time")
        as_ready = steps_as_ready(plan := experiment.settled_plan, experiment)
        pools = plan.fragment("step").replicas if as_ready else experiment.num_groups
        if (experiment.workers or 0) > (each := experiment.num_envs // pools):
            group = " of a group" if pools > 1 else ""
            self._line(
                "workers", f"{each:,} of {experiment.workers:,}, one for each environment{group}"
            )
        self._line("algorithm", type(experiment.algorithm).__name__)
        pace = "; each environment steps as it gets ready" if as_ready else ""
        self._line("plan", f"{plan.name}: {turns_text(plan, experiment.max_staleness)}{pace}")
        for name, source in experiment.sources.items():
            head, of = ("fixed", f"{name}: ") if name in experiment.fixed else (name, "")
            self._line(head, f"{of}version {source.version} of {source.run}")
        self._line("budget", f"{_budget(experiment)}, seed {experiment.seed}")
        warm_up = getattr(experiment.algorithm, "warm_up", 0)
        if experiment.updates is None and experiment.env_steps <= warm_up:
            counted = f"{warm_up:,} steps of all agents"
            self._line("warm-up", f"{counted}: with one, nothing is learned: give a smaller one")

    def _show_folder(self) -> None:
        if self._folder is not None and not self.folder_shown:
            self.folder_shown = True
            self._line("run folder", str(self._folder.path))

    def stage(self, stage: Stage, details: str = "") -> None:
        """Shows the stage that a run is in before its first report; cheap."""
        if not self._awaits_report or stage not in _STAGES:
            return
        if stage in (Stage.RESETTING, Stage.STEPPING):
            self._show_folder()
        if self._stopping():
            self._awaits_report = False
            self._stages.end()
            return self._note(Stage.SAVING, "")
        name, known = _STAGES[stage]
        if stage == Stage.STEPPING and self.updates:
            every = report_interval(self._experiment)
            details = f"{self.updates:,} updates; a report every {every:,}"
        if self._progress is None:
            self._stages.show(name, details or known)
        self._note(stage, details)

    def _note(self, stage: Stage, details: str) -> None:
        """Records the stage for `srl top`; its details only now and then."""
        now = time.monotonic()
        new, due = stage != self._noted[0], now >= self._next_note
        if self._folder is not None and (new or due) and (stage, details) != self._noted:
            self._noted, self._next_note = (stage, details), now + _NOTE_SECONDS
            note_stage(self._folder.path, stage, details)

    def start(self, learner: Any) -> None:
        """Shows the policies of a learner in this process, and the bar."""
        self._show_folder()
        for policy, count in learner.parameters.items():
            agents = learner.agents[policy]
            names = f" ({', '.join(agents)})" if len(agents) > 1 else ""
            self._line("policy", f"{policy}{names}: {count:,} parameters")
        self._show_bar(self._done(learner.progress.env_steps, learner.progress.updates))

    @property
    def started(self) -> bool:
        """True once the bar is shown, or a report in its place."""
        return self._begin is not None

    def _show_bar(self, done: int) -> None:
        self._begin = (time.monotonic(), done)
        if self._console.is_terminal:
            self._stages.end()
            texts = TextColumn("{task.completed:,.0f}/{task.total:,.0f} {task.description}")
            columns = (BarColumn(), texts, TimeRemainingColumn(compact=True))
            self._progress = _Bar(*columns, console=self._console, auto_refresh=False)
            total = self._experiment.updates or self._experiment.env_steps
            self._progress.add_task(self._unit, total=total, completed=done)
            self._progress.start()

    def tick(self, counts: Any, now: float) -> None:
        """Moves the bar, a few times a second; shows updates until there is a report."""
        self.updates = counts.updates
        self.stage(Stage.STEPPING)
        self._show_if_due()
        if self._progress is not None and now >= self._next_refresh:
            self._next_refresh = now + _REFRESH_SECONDS
            task = self._progress.task_ids[0]
            done = self._done(counts.env_steps, counts.updates)
            self._progress.update(task, completed=done, refresh=True)

    def report(self, report: Mapping[str, Any]) -> None:
        """Shows a report; before the first one the bar, if that is still to be shown."""
        self._awaits_report = False
        self._stages.end()
        done = self._done(report["env_steps"], report["updates"])
        if self._begin is None:
            self._show_folder()
            self._show_bar(done)
        if self._progress is not None:
            task = self._progress.task_ids[0]
            text = f"{self._unit}  {self._numbers(report)}"
            below = [_statistics(report), report.get("bottleneck", ""), *_activities(report)]
            self._progress.below = below
            self._progress.update(task, description=text, completed=done)
            return
        total = self._experiment.updates or self._experiment.env_steps
        assert self._begin is not None
        began, first = self._begin
        so_far, left = time.monotonic() - began, ""
        if so_far >= _KNOWN_SECONDS:
            left = f"  left {_duration(so_far / max(done - first, 1) * max(total - done, 0))}"
        share = min(100 * done // total, 100)
        numbers = "  ".join(filter(None, [self._numbers(report), _statistics(report)]))
        how = f"{numbers}{left}  {report.get('bottleneck', '')}"
        self._newest = f"{self._unit} {done:,}/{total:,} ({share}%)  {how}".rstrip()
        self._show_if_due()

    def _show_if_due(self) -> None:
        if time.monotonic() >= self._next_line:
            self._show_newest()

    def _show_newest(self) -> None:
        newest, self._newest = self._newest, ""  # before it is shown: another thread may show it
        if newest:
            self._next_line = time.monotonic() + _LINE_SECONDS
            self._console.print(newest, markup=False)

    def summary(self, report: Mapping[str, Any]) -> str:
        """The most important values of a report, in a line."""
        parts = self._numbers(report), _statistics(report), report.get("bottleneck", "")
        return "  ".join(filter(None, parts))

    def _numbers(self, report: Mapping[str, Any]) -> str:
        fps, length = number_text(report.get("fps")), number_text(report.get("episode_length"))
        lesson = f"lesson {report['lesson']}  " if "lesson" in report else ""
        return f"fps {fps}  {lesson}return {_returns(report)}  length {length}{_ratings(report)}"

    def say(self, text: str) -> None:
        """Shows a line of text, after the newest report."""
        self._show_newest()
        self._console.print(text, markup=False)

    def close(self) -> None:
        """Leaves the bar as it is and gives the terminal back; shows the newest report."""
        self._stages.end()
        self._show_newest()
        if self._progress is not None:
            self._progress.refresh()
            self._progress.stop()
            self._progress = None

    @property
    def _unit(self) -> str:
        return "env steps" if self._experiment.updates is None else "updates"

    def _done(self, env_steps: int, updates: int) -> int:
        return env_steps if self._experiment.updates is None else updates

    def _line(self, name: str, text: str) -> None:
        self.say(f"{name:<12} {text}")


class _Bar(Progress):
    """A progress bar with lines of text below it."""

    below: Sequence[str] = ()

    def get_renderables(self) -> Iterable[RenderableType]:
        """The bar, and then the lines."""
        yield from super().get_renderables()
        for line in self.below:
            if line:
                yield Text(line, "dim", no_wrap=True, overflow="ellipsis")


def _activities(report: Mapping[str, Any]) -> list[str]:
    """The shares of its time that each kind of worker spends, a line each, the largest first."""
    kinds: dict[str, dict[str, float]] = {}
    for name, share in report.items():
        first, _, rest = name.partition("/")
        if first == "time" and share is not None:
            kind, _, activity = rest.partition("/")
            kinds.setdefault(kind, {})[activity] = share
    lines = []
    for kind, shares in kinds.items():
        most = sorted((item for item in shares.items() if item[1] >= 0.005), key=lambda i: -i[1])
        lines.append(f"{kind:<12} " + "  ".join(f"{name} {share:.0%}" for name, share in most))
    return lines


def _short_name(env: Any) -> str:
    """An environment's id, or its class and what of its configuration is not the default."""
    values = config_values(env)
    if isinstance(env, NamedEnv):
        return str(env)
    if not is_dataclass(env) or isinstance(env, type):
        return str(values)

    def default(field: Field) -> Any:
        factory = field.default_factory
        return field.default if factory is MISSING else factory()

    changed = [f.name for f in fields(env) if getattr(env, f.name) != default(f)]
    settings = ", ".join(f"{name}={values[name]}" for name in changed)
    return f"{type(env).__name__}({settings})"


def _budget(experiment: Experiment) -> str:
    minutes, updates = experiment.minutes, experiment.updates
    most = "" if minutes is None else f", at most {minutes:g} minutes"
    steps = f"{experiment.env_steps:,} env steps" if updates is None else f"{updates:,} updates"
    return f"{steps}{most}"


def _returns(report: Mapping[str, Any]) -> str:
    """The mean return; of each policy or kind of agent, where there are several."""
    prefix = "episode_return/"
    parts = {k.removeprefix(prefix): v for k, v in report.items() if k.startswith(prefix)}
    if not parts:
        return number_text(report.get("episode_return"))
    return ", ".join(f"{name} {number_text(value)}" for name, value in parts.items())


def _ratings(report: Mapping[str, Any]) -> str:
    """The newest version's Elo by side, where versions are rated."""
    own = {k.removeprefix("elo/"): v for k, v in report.items() if k.startswith("elo/")}
    errors = {k.removeprefix("elo_error/"): v for k, v in report.items() if "elo_error/" in k}
    sides = [
        f"{k} {v:+.0f}" + (f" ± {errors[k]:.0f}" if errors.get(k) is not None else "")
        for k, v in own.items()
        if k not in ("version", "games") and v is not None
    ]
    return f"  elo {', '.join(sides)}" if sides else ""


_MOST_STATISTICS = 3
_SUCCESS = "env/is_success"


def _statistics(report: Mapping[str, Any]) -> str:
    """The first few statistics of the environment's episodes, is_success before others."""
    names = [name for name in report if name.startswith("env/")]
    names.sort(key=lambda name: name != _SUCCESS)
    shown = [f"{n.removeprefix('env/')} {number_text(report[n])}" for n in names[:_MOST_STATISTICS]]
    return ", ".join(shown)


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
