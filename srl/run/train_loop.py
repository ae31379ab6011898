"""The course of a run: updates, reports and checkpoints, until the budget is used up."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from srl.algorithms.privileged import policy_specs
from srl.config.experiment import Experiment
from srl.config.sources import INIT_FROM
from srl.core.errors import Unwritable
from srl.loop.learning.progress import Progress
from srl.loop.stage import Stage
from srl.loop.training import Training
from srl.record.checkpoint import Checkpoints
from srl.record.json_shape import fits
from srl.record.run_record import RunFolder, read_config, revert_films, write_specs
from srl.run.evaluation import Evaluated, Evaluations, target_reached
from srl.run.hooks import NO_HOOKS, Asking, Happened
from srl.run.metrics import MetricsWriter, plain
from srl.run.terminal import DONE, FAILED, INTERRUPTED
from srl.tracking.trackers import Trackers

logger = logging.getLogger(__name__)

_LEAST_PAUSE_SECONDS = 10.0  # between two checkpoints of a young run
_LOOK_SECONDS = 0.05  # for the result of the last evaluation

CHANGED_SETTINGS = "settings"
"""The name, in a checkpoint's metadata, of the settings that hooks have changed."""


class Show(Protocol):
    """The display of a run."""

    def start(self, trainer: Training) -> None:
        """The run begins."""

    def stage(self, stage: Stage) -> None:
        """The next stage begins."""

    def alive(self) -> None:
        """There is progress towards the next update."""

    def tick(self, trainer: Training, now: float) -> None:
        """An update was done."""

    def report(self, report: dict[str, Any]) -> None:
        """A line of metrics was written."""

    def say(self, text: str) -> None:
        """Shows a line of text."""


class Run:
    """A trainer, with its checkpoints and metrics in the run's folder. `with` closes all of it."""

    def __init__(
        self,
        experiment: Experiment,
        folder: Path,
        trainer: Training,
        show: Show,
        stop: Callable[[], bool],
        agree: Callable[[bool, bool], tuple[bool, bool]] = lambda stop, save: (stop, save),
        hooks: Asking = NO_HOOKS,
        *,
        kept: bool = True,
    ) -> None:
        """Opens nothing yet.

        Args:
            experiment: The settings.
            folder: The run's folder.
            trainer: Trains the policies; it is closed at the end.
            show: Shows the run.
            stop: Whether the run is to end, after a checkpoint.
            agree: Gives which of stopping and saving to do, from which this one wants; several
                replicas must do the same after the same update.
            hooks: How to ask the hooks; all replicas get the same answer.
            kept: Whether reports and checkpoints are written; another replica may do so.
        """
        self._agree, self._hooks, self._kept = agree, hooks, kept
        self.stopped = False
        """True if a hook has ended the run."""
        self.experiment, self.folder, self.trainer = experiment, folder, trainer
        trainer.folder = folder
        trainer.on_stage, trainer.alive = show.stage, show.alive
        self.show, self.stop = show, stop
        self.checkpoints = Checkpoints(folder / "checkpoints", experiment.keep_checkpoints)
        self.trained = False
        self._evaluations: Evaluations | None = None
        self._remarks: set[str] = set()  # shown so far
        self._evaluated: list[Mapping[str, Any]] = []  # of which no hook knows yet
        self._failure: Unwritable | None = None  # that the run ends with, if it can after saving
        self._stack = contextlib.ExitStack()
        self._stack.enter_context(closing(self.checkpoints))
        self._stack.enter_context(closing(trainer))

    @property
    def progress(self) -> Progress:
        """The counters of steps and updates."""
        return self.trainer.learner.progress

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def start(self, *, resume: bool) -> None:
        """Makes the trainer ready, and goes on from the newest checkpoint if asked to.

        Raises:
            UserError: If the disk has no room for a checkpoint, or a tracker's library is missing.
        """
        trainer, experiment = self.trainer, self.experiment
        if self._kept:
            self._trackers = Trackers(experiment.trackers, experiment.tracking)
        trainer.start()
        state = trainer.state()  # of several replicas, by all together
        size = trainer.learner.replays.nbytes if experiment.algorithm.saves_replay else 0
        if self._kept and (warning := self.checkpoints.expect_room(state, size)):
            self.show.say(warning)
        if not (resume and self._restore()):
            self._begin()
        if self._kept:
            specs = trainer.learner.policy_set.specs
            write_specs(RunFolder(self.folder), specs)
            resumed_at = self.progress.env_steps if resume else None
            self._metrics = MetricsWriter(self.folder, resumed_at)
            if resumed_at is not None:
                with contextlib.suppress(OSError):  # films are no part of training
                    revert_films(RunFolder(self.folder), resumed_at)
            self._stack.enter_context(closing(self._metrics))
            if settings := self.experiment.evaluation:
                if not settings.options:  # others were looked at before the run
                    members = trainer.learner.policy_set.members
                    settings.expect_fit(specs, members)
                self._evaluations = Evaluations(settings, self.folder, self.checkpoints)
                self._stack.enter_context(closing(self._evaluations))
            self.show.start(trainer)
            seen = policy_specs(specs, experiment.algorithm.privileged).observation
            for remark in experiment.algorithm.network.remarks(seen):
                self.show.say(remark)
            config = read_config(RunFolder(self.folder))
            self._trackers.start(self.folder, config, resumed_at, self.show.say)
            self._stack.push(self._end_trackers)
        self.show.stage(Stage.STEPPING)

    def _end_trackers(self, kind: type[BaseException] | None, *_: Any) -> None:
        code = FAILED if kind else DONE if self.finished else INTERRUPTED
        self._trackers.end(code, self.progress.env_steps, lambda: self.trainer.alive())

    def _begin(self) -> None:
        """Takes the first parameters from another run, where the experiment names one."""
        source = self.experiment.sources.get(INIT_FROM)
        if source is not None:
            report = self.trainer.begin_from(source)
            for line in report if self._kept else ():
                self.show.say(line)

    def _restore(self) -> bool:
        """Goes on from the newest checkpoint; False if there is none."""
        if self.checkpoints.latest() is None:
            self.show.say("there is no checkpoint yet; the run starts from the beginning")
            return False
        trainer, checkpoints = self.trainer, self.checkpoints
        learner = trainer.learner
        tree, damaged = checkpoints.restore_newest(trainer.state(), lambda: trainer.alive())
        trainer.restore(tree)
        version, replays = self.progress.updates, learner.replays.nbytes > 0
        learner.settings.change(_settings_of(checkpoints.metadata(version), learner.settings.now))
        files = checkpoints.replay_files(version) if replays else {}
        if files:
            trainer.restore_replays(checkpoints.replay_folder, files)
        elif replays:
            self.show.say(
                "the checkpoint holds no replay: the run goes on with an empty one, which "
                "an algorithm with a warm-up fills before it learns again"
            )
        for later in damaged if self._kept else ():
            kept = self.checkpoints.set_aside(later.version, "damaged")
            self.show.say(
                f"{later.what}; it is kept as {kept.name}, and the run goes on without it"
            )
        self.show.say(f"goes on after {self.progress.env_steps:,} env steps")
        if self.progress.env_steps and not self.trainer.environments.resumes_exactly:
            self.show.say(
                "the environments cannot be restored: their episodes start anew, so the run will "
                "differ from one that was never stopped"
            )
        return True

    def loop(self) -> None:
        """Trains until the budget is used up or a stop is requested; then saves.

        Raises:
            Unwritable: If the folder could not be written; what could be saved is.
        """
        trainer = self.trainer
        every = report_interval(self.experiment)
        settings = self.experiment.evaluation
        evaluated_every = (settings.every if settings else 0) or every
        began, next_checkpoint = time.monotonic(), 0.0
        reported = True
        stop, _ = self._agree(self.stop(), False)
        while not stop and not self._budget_used:  # replicas agree on any other end
            before = self.progress.updates
            if not trainer.update():
                self.show.say(
                    "some environments were not there when the run was to end: their episodes "
                    "start anew on resume, so the run will differ from one that was never stopped"
                )
            now = time.monotonic()
            self._take_evaluation()
            wanted = self.stop() or self._failure is not None or bool(self._reached)
            stop, save = self._agree(wanted, now >= next_checkpoint)
            if self.progress.updates == before:
                continue
            self.trained = True
            first = before == 0 and not self.experiment.report_every
            reported = first or self.progress.updates // every > before // every
            if reported:
                self._report()
            if self.progress.updates // evaluated_every > before // evaluated_every:
                self._offer_version()
            if save:
                next_checkpoint = now + self._pause(now - began)
                self._save(wait=False)
            stop = stop or self.stopped
            self.show.tick(trainer, now)
        # A line between two of the grid is the last: a stopped run goes on without one.
        if not reported and self.finished:
            self._report()
        self._save_last()
        if self.finished and not self._reached:
            self._evaluate_last()
        if self.finished and self._evaluations and (text := self._evaluations.about_end()):
            self.show.say(text)
            logger.info("%s", text)
        if self._evaluated:
            self._call_hooks(("evaluation",), [("evaluation", it) for it in self._evaluated])
        if self._failure is not None:
            raise self._failure
        if self._reached:
            self.show.say(f"{self._reached}; the run ends")

    def _pause(self, trained_seconds: float) -> float:
        """Seconds until the next checkpoint: no more of a young run can be lost than half of it."""
        young = max(_LEAST_PAUSE_SECONDS, trained_seconds)
        return min(60 * self.experiment.checkpoint_minutes, young)

    @property
    def finished(self) -> bool:
        """True if the budget is used up, or the target of evaluation is reached."""
        return self._budget_used or bool(self._reached)

    @property
    def _budget_used(self) -> bool:
        return budget_used(self.experiment, self.progress.env_steps, self.progress.updates)

    @property
    def _reached(self) -> str:
        """A description of the version that has reached the target; empty before."""
        return self._evaluations.reached if self._evaluations else ""

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Notes that the folder cannot be written: then the run ends, with what can be saved."""
        try:
            yield
        except Unwritable as error:
            self._failure = self._failure or error

    def _report(self) -> None:
        report = self.trainer.report()
        if self._kept and self._failure is None:
            with self._writing():
                self._trackers.report(self._metrics.write(report))
                self._track_histograms()
                self.show.report(report)
                for remark in self.experiment.algorithm.remarks(report):
                    if remark not in self._remarks:
                        self._remarks.add(remark)
                        self.show.say(remark)
                self.checkpoints.check()
        # Those evaluated since the last report are known to one replica alone.
        happened = [*(("evaluation", found) for found in self._evaluated), ("report", report)]
        self._evaluated.clear()
        self._call_hooks(("evaluation", "report"), happened)

    def _call_hooks(self, kinds: Sequence[str], happened: Happened) -> None:
        """Does what the hooks want at events of these kinds; all replicas call it alike."""
        if not set(kinds) & set(self._hooks.kinds):
            return
        events = [
            (kind, {name: plain(value) for name, value in metrics.items()})
            for kind, metrics in (happened if self._failure is None else ())
        ]
        answer = self._hooks.ask(events, self.trainer.learner.settings.now)
        self.stopped = self.stopped or answer.stop
        if answer.settings:
            self.trainer.learner.settings.change(answer.settings)

    def _track_histograms(self) -> None:
        trainer, reports = self.trainer, self.experiment.tracking.histograms
        if reports and self.progress.updates // report_interval(self.experiment) % reports == 0:
            self._trackers.histograms(trainer.learner.histograms(), self.progress.env_steps)

    # ---- evaluation ----

    def _offer_version(self, *, urgent: bool = False) -> None:
        """Has the present version evaluated, unless another one is being."""
        if self._evaluations is not None and self._failure is None:
            self._evaluations.offer(self.trainer, urgent=urgent)

    def _take_evaluation(self) -> None:
        """Takes the result of an evaluation that has ended since the last call."""
        if self._evaluations is None or self._failure is not None:
            return
        with self._writing():
            if (evaluated := self._evaluations.result()) is not None:
                self._report_evaluation(evaluated)

    def _report_evaluation(self, evaluated: Evaluated) -> None:
        """Reports what the evaluation of a version has found; all results come here."""
        self._trackers.report(self._metrics.write(evaluated.report))
        self._evaluated.append(evaluated.report)
        self.show.say(evaluated.text)
        logger.info("%s", evaluated.text)

    def _evaluate_last(self) -> None:
        """Waits for the evaluation of the version that the run ends with, for some time."""
        settings, evaluations = self.experiment.evaluation, self._evaluations
        if evaluations is None or settings is None or not settings.last_seconds:
            return
        deadline = time.monotonic() + settings.last_seconds
        version = self.progress.updates
        if evaluations.newest == version or evaluations.given_up:
            return
        self.show.stage(Stage.EVALUATING)
        self.show.say(
            f"evaluating the last version, {version:,}, for at most {settings.last_seconds:g} s"
        )
        self._offer_version(urgent=True)
        while evaluations.newest != version and not self.stop() and self._failure is None:
            if time.monotonic() > deadline or evaluations.given_up:
                self.show.say(f"version {version:,} was not evaluated; `srl eval` can do so")
                return
            self.show.alive()
            time.sleep(_LOOK_SECONDS)
            self._take_evaluation()

    def _save_last(self) -> None:
        if self._kept:
            if self.stop():
                version = self.checkpoints.latest()
                back = f"after update {version}" if version else "from the beginning"
                self.show.say(
                    f"writing the checkpoint of update {self.progress.updates}; if the run is "
                    f"ended before that is whole, it goes on {back}"
                )
            with self._writing():  # an earlier one may have failed in the background
                self.checkpoints.wait()
        self._save(wait=True)

    def _save(self, *, wait: bool) -> None:
        trainer = self.trainer
        if self._kept:
            self.show.stage(Stage.SAVING)  # it may wait for the save before, in the background
        state, replay_files = trainer.state(), None
        with self._writing():
            self.checkpoints.wait()  # it removes files of replays that no checkpoint needs
            saved = self.experiment.algorithm.saves_replay
            replay_files = trainer.save_replays(self.checkpoints.replay_folder) if saved else {}
        if self._kept and (replay_files is not None or wait):
            # A hook may want to look at it.
            self._write(state, replay_files, wait=wait or "checkpoint" in self._hooks.kinds)
        self._call_hooks(("checkpoint",), [("checkpoint", self.progress.counts)])

    def _write(self, state: Any, replay_files: Mapping[str, str] | None, *, wait: bool) -> None:
        if replay_files is None:  # there may be room for the rest
            self.show.say("the last checkpoint holds no replay, which could not be written")
        self.progress.check()  # or it would push out checkpoints that are good
        metadata = {**self.progress.counts, "time": time.time()}
        if changed := self.trainer.learner.settings.changed:
            metadata[CHANGED_SETTINGS] = changed
        with self._writing():
            version = int(self.progress.updates)
            self.checkpoints.save(version, state, metadata, replay_files=replay_files, wait=wait)
            logger.info("checkpoint of update %d", version)
        if not wait:
            self.show.stage(Stage.STEPPING)


def _settings_of(metadata: Mapping[str, Any], known: Mapping[str, float]) -> dict[str, float]:
    """The settings that a checkpoint records as changed, of those that can change here."""
    changed: Any = metadata.get(CHANGED_SETTINGS)
    if not fits(changed, {str: float}):
        return {}
    return {name: value for name, value in changed.items() if name in known}


def report_interval(experiment: Experiment) -> int:
    """Updates between two report lines; the same however often a run is stopped."""
    if experiment.report_every:
        return experiment.report_every
    return max(1, min(experiment.expected_updates // 50, 100))


def budget_used(experiment: Experiment, env_steps: int, updates: int) -> bool:
    """Tells if the experiment ends here, for good or for now."""
    if experiment.pause_at is not None and env_steps >= experiment.pause_at:
        return True
    if experiment.updates is not None:
        return updates >= experiment.updates
    return env_steps >= experiment.env_steps


def finished(experiment: Experiment, checkpoints: Checkpoints) -> str:
    """Why a run is finished: its counts or its target, as text; empty if it is not finished."""
    counts = checkpoints.newest_counts()
    if counts is None:
        return ""
    if not budget_used(experiment, **counts):
        return target_reached(experiment.evaluation, checkpoints)
    return f"{counts['env_steps']:,} env steps, {counts['updates']:,} updates"


@contextlib.contextmanager
def closing(part: Any) -> Iterator[None]:
    """Closes a part at the end; what that raises does not hide an earlier error."""
    try:
        yield
    except BaseException:
        try:
            part.close()
        except (Exception, SystemExit) as error:
            logger.warning("%s", error)
        raise
    part.close()
