"""A sweep on the terminal: a table while it goes on, and what its trials have come to."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.live import Live
from rich.table import Table

from srl.core.console.number_text import number_text
from srl.extras.sweep.space import settings_text, short_names
from srl.extras.sweep.sweep import Sweep
from srl.extras.sweep.trials import STEPS, Objective, Trial
from srl.record.files import short_path
from srl.run.metrics import plain

_PAUSE_SECONDS = 1.0  # between two drawings of the table
_GOING, _BEST = 20, 5  # rows of the table while the sweep goes on
_WIDTH = 200  # of a table in a file or a pipe


class Progress:
    """Shows how far trials are, on standard error: a table, or lines where that is no terminal."""

    def __init__(self, sweep: Sweep, trains: Callable[[Trial], bool]) -> None:
        """Shows nothing yet; `trains` tells if a trial is trained now, rather than waiting."""
        self._sweep, self._trains = sweep, trains
        console = Console(stderr=True, highlight=False)
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._next = 0.0

    def __enter__(self) -> Progress:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.update("", refresh=True)
            self._live.stop()

    def say(self, text: str) -> None:
        """Shows a line."""
        if self._live:
            self._live.console.print(text, markup=False)
        else:
            sys.stderr.write(f"{text}\n")
            sys.stderr.flush()

    def ended(self, trial: Trial) -> None:
        """Reports that a trial has ended."""
        value = trial.value(self._sweep.objective)
        what = {
            "done": f"{number_text(value)} at {trial.progress():.0%}",
            "pruned": f"after {100 * (trial.pruned or 0) // STEPS} % of its first run",
            "failed": trial.failure,
        }
        state = state_of(trial)
        settings = settings_text(trial.settings)
        self.say(f"trial {trial.number} ({settings}): {state}, {what.get(state, '')}")

    def update(self) -> None:
        """Draws the table again, if that was not just done."""
        if self._live and time.monotonic() >= self._next:
            self._next = time.monotonic() + _PAUSE_SECONDS
            self._live.update(self._table(), refresh=True)

    def _table(self) -> Table:
        """The trials that are being trained, and the best of those that have ended."""
        trials = self._sweep.trials
        going = [trial for trial in trials if trial.open and self._trains(trial)]
        over = [trial for trial in trials if not trial.open]
        states = Counter("running" if t in going else state_of(t) for t in trials)
        title = ", ".join(f"{count} {state}" for state, count in states.items())
        best = ranked(over, self._sweep.objective)[:_BEST]
        return trials_table([*going[:_GOING], *best], self._sweep, title)


def state_of(trial: Trial) -> str:
    """Gives the state of a trial, in a word or two."""
    if trial.failure:
        return "failed"
    if trial.pruned is not None:
        return "pruned"
    return "done" if not trial.open and trial.finished() else "to do"


def ranked(trials: Sequence[Trial], objective: Objective) -> list[Trial]:
    """The trials, the best first; those that are not finished come last."""

    def rank(trial: Trial) -> tuple[bool, float]:
        return state_of(trial) == "done", objective.score(trial.value(objective))

    return sorted(trials, key=rank, reverse=True)


def trials_table(trials: Sequence[Trial], sweep: Sweep, title: str | None = None) -> Table:
    """A row for each trial: its settings, and what it has come to."""
    flags = [each.flag for each in sweep.searched]
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column("trial", justify="right")
    for name in short_names(flags):
        table.add_column(name, justify="right")
    for name in ("trained", sweep.objective.key):
        table.add_column(name, justify="right")
    table.add_column("")
    for trial in trials:
        table.add_row(
            str(trial.number),
            *(trial.settings[flag] for flag in flags),
            f"{trial.progress():.0%}",
            number_text(trial.value(sweep.objective)),
            state_of(trial),
        )
    return table


def print_table(trials: Sequence[Trial], sweep: Sweep) -> None:
    """Prints the table of all trials."""
    console = Console(file=sys.stdout, highlight=False)
    if not console.is_terminal:
        console = Console(file=sys.stdout, highlight=False, width=_WIDTH)
    table = trials_table(trials, sweep)
    with console.capture() as text:
        console.print(table)
    sys.stdout.write("\n".join(line.rstrip() for line in text.get().splitlines()) + "\n")


def json_of(trial: Trial, sweep: Sweep) -> str:
    """A trial as one line of JSON."""
    values = [sweep.objective.last(run.newest_first()) for run in trial.runs]
    row = {
        "trial": trial.number,
        "state": state_of(trial),
        "settings": trial.settings,
        "objective": sweep.objective.key,
        "value": plain(trial.value(sweep.objective)),
        "values": [plain(value) for value in values],
        "progress": round(trial.progress(), 4),
        "reason": trial.failure,
        "runs": [short_path(run.path) for run in trial.runs],
        "command": trial.command(),
    }
    return json.dumps(row)
