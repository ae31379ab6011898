"""Population-based training (Jaderberg et al., 2017, https://arxiv.org/abs/1711.09846).

All members are trained for an interval. Then each of the worst quarter goes on from a checkpoint of
one of the best quarter, with that one's settings changed: each is drawn anew with probability 0.25,
else a little larger or smaller. Settings live in the run's configuration, never in a checkpoint.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

import numpy as np

from srl.config.experiment import Experiment, load_experiment
from srl.config.overrides import setting_type
from srl.core.errors import RunError, UserError
from srl.core.field_types import text_types
from srl.extras.sweep.folder import JOURNAL
from srl.extras.sweep.space import Searched, Settings, settings_text
from srl.extras.sweep.sweep import Sweep, drawn
from srl.extras.sweep.trials import Trial
from srl.record.checkpoint import Checkpoints
from srl.record.files import writing
from srl.record.run_record import RunFolder
from srl.run.folder import create_run
from srl.run.train_loop import CHANGED_SETTINGS

_ATTRIBUTE = "population"  # of the study
RESAMPLED = 0.25
"""The probability with which a setting is drawn anew rather than perturbed."""


@dataclass
class Exploit:
    """A member of a population that went on from another's checkpoint."""

    interval: int
    """The interval after which this was, from 1."""
    member: int
    source: int
    settings: dict[str, str]
    """The settings after the exchange."""


@dataclass
class Population:
    """The record of a population."""

    members: list[dict[str, str]] = field(default_factory=list)
    """The settings of each member now, by flag."""
    interval: int = 1
    """The interval that members are trained to the end of."""
    exploits: list[Exploit] = field(default_factory=list)
    pending: int = 0
    """The number of the last ones that may not have been carried out yet."""


class PopulationSearch:
    """See `Search`: members take their turns in intervals, which all end before the next begins."""

    def __init__(self, sweep: Sweep, experiment: Experiment, population: int, every: int) -> None:
        """Records the members that are not there yet; an interval has `every` env steps."""
        self._sweep, self._experiment, self._every = sweep, experiment, every
        self._intervals = math.ceil(experiment.env_steps / every)
        self._begun = False
        kept = sweep.study.user_attrs.get(_ATTRIBUTE, {})
        kept_exploits = [Exploit(**each) for each in kept.get("exploits", ())]
        self._record = Population(**{**kept, "exploits": kept_exploits})
        for number in range(len(self._record.members), population):
            self._record.members.append(dict(sweep.drawn(number, shuffled=True)))
        self._save()
        self._make_members()

    def wanted(self, waiting: bool) -> list[Trial]:
        """Implements `Search.wanted`: all members, whenever they have ended an interval."""
        if waiting:
            return []
        record = self._record
        if self._begun and record.interval == self._intervals:
            return []
        if self._begun:
            self._end_interval()
        self._begun = True
        self._carry_out()
        members = [trial for trial in self._sweep.trials if not trial.finished()]
        for member in members:
            (run,) = member.runs
            if run.begun:
                run.change()
        return members or self.wanted(waiting=False)  # a command was ended between two intervals

    def pruned(self, trial: Trial) -> bool:
        """Implements `Search.pruned`: never."""
        return False

    def schedule(self, member: int) -> list[Settings]:
        """The settings that have led to what a member is now, interval by interval."""
        record, found = self._record, []
        for interval in range(record.interval, 0, -1):
            own = [each for each in record.exploits if each.member == member]
            before = [each for each in own if each.interval < interval]
            settings = before[-1].settings if before else None
            found.insert(0, settings or self._sweep.drawn(member, shuffled=True))
            if before and before[-1].interval == interval - 1:
                member = before[-1].source
        return found

    def _end_interval(self) -> None:
        """Decides which member goes on from which checkpoint, and records it."""
        sweep, record = self._sweep, self._record
        scores = [
            -math.inf if trial.failure else sweep.objective.score(trial.value(sweep.objective))
            for trial in sweep.trials
        ]
        if max(scores) == -math.inf:
            why = next((trial.failure for trial in sweep.trials if trial.failure), "")
            what = f"all have failed: {why}" if why else "none has reported the objective"
            raise RunError(f"no member of the population can be gone on from: {what}")
        settings = [trial.settings for trial in sweep.trials]
        new = exploits(scores, settings, sweep.searched, record.interval, sweep.seed)
        record.exploits += new
        record.interval, record.pending = record.interval + 1, len(new)
        for exploit in new:
            record.members[exploit.member] = exploit.settings
            text = settings_text(exploit.settings)
            sweep.notes.append(
                f"trial {exploit.member} goes on from trial {exploit.source} with {text}"
            )
        self._make_members()
        self._save()

    def _carry_out(self) -> None:
        """Copies the checkpoints; no run goes on before that is done."""
        record, trials = self._record, self._sweep.trials
        for exploit in record.exploits[len(record.exploits) - record.pending :]:
            (run,), (source,) = trials[exploit.member].runs, trials[exploit.source].runs
            if not run.begun:  # it failed before
                target, *overrides = run.arguments
                create_run(load_experiment(target, overrides), run.path)
            folder = RunFolder(run.path)
            with folder.locked():
                others = Checkpoints(RunFolder(source.path).checkpoints)
                # Its own settings count, not those that a hook gave the other one.
                Checkpoints(folder.checkpoints).adopt(others, without=CHANGED_SETTINGS)
        record.pending = 0
        self._save()

    def _save(self) -> None:
        with writing(self._sweep.folder / JOURNAL):
            self._sweep.study.set_user_attr(_ATTRIBUTE, asdict(self._record))

    def _make_members(self) -> None:
        """Makes the trials anew, with the settings and the end of the present interval."""
        self._sweep.trials = [
            self._member(number, settings) for number, settings in enumerate(self._record.members)
        ]

    def _member(self, number: int, settings: Settings) -> Trial:
        interval = self._record.interval
        pause = ("--pause-at", str(interval * self._every)) if interval < self._intervals else ()
        seed = ("--seed", str((self._experiment.seed + number) % 2**32))
        return Trial(
            number,
            settings,
            [self._sweep.managed_run(f"member-{number:03}", settings, *seed, *pause)],
        )


def exploits(
    scores: Sequence[float],
    settings: Sequence[Settings],
    searched: Sequence[Searched],
    interval: int,
    seed: int,
) -> list[Exploit]:
    """Chooses the members that go on from others, and their settings.

    Args:
        scores: Of each member; minus infinity for those that have failed, all of which are to go on
            from another.
        settings: Of each member.
        searched: What may be changed.
        interval: After which this is.
        seed: Of all that is drawn.
    """
    order = sorted(range(len(scores)), key=scores.__getitem__)
    quarter = max(1, len(scores) // 4)
    best = [member for member in order[-quarter:] if scores[member] > -math.inf]
    failed = scores.count(-math.inf)
    found = []
    for member in order[: max(quarter, failed)]:
        rng = np.random.default_rng([seed, interval, member])
        source = best[rng.integers(len(best))]
        if scores[member] < scores[source]:
            changed = explored(settings[source], searched, rng)
            found.append(Exploit(interval, member, source, changed))
    return found


def explored(
    settings: Settings, searched: Sequence[Searched], rng: np.random.Generator
) -> dict[str, str]:
    """Settings near these."""
    fresh = drawn(searched, int(rng.integers(2**32)))
    return {
        each.flag: fresh[each.flag]
        if rng.random() < RESAMPLED
        else each.perturbed(settings[each.flag], rng)
        for each in searched
    }


def expect_exploitable(searched: Sequence[Searched], experiment: Experiment) -> None:
    """Raises UserError where no member could go on from another's checkpoint."""
    for each in searched:
        kinds = {way.metavar for way in text_types(setting_type(experiment, each.flag))}
        head, _, name = each.flag.rpartition(".")
        if head != "--algorithm" or not name or "FLOAT" not in kinds:
            raise UserError(
                f"{each.flag} does not change the loss and the optimizer alone, so no member could "
                "go on from another's checkpoint; --search pbt takes the algorithm's fractional "
                "settings, such as --algorithm.learning-rate"
            )
    if (experiment.updates, experiment.pause_at, experiment.minutes) != (None, None, None):
        raise UserError(
            "--search pbt counts env steps: give --env-steps, not --updates, --pause-at, --minutes"
        )
    if experiment.self_play is not None:
        raise UserError(
            "--search pbt cannot be used with self_play: a run's opponents are in its own folder, "
            "and do not go along with its checkpoints"
        )
