"""The processes that work beside a run, as its experiment asks for them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from srl.config.experiment import Experiment
from srl.record.run_record import RunFolder, remove_unfinished_films
from srl.record.versions import Versions
from srl.system.background.process import BackgroundProcess

_NICE = 14
"""The nice value of what evaluates: 4 % of a core that the run would take; with 19 a start could
take minutes."""


@dataclass(frozen=True)
class Beside:
    """A process beside a run: what it does, and what of which machine it takes."""

    task: str
    share: float
    """Share of the processors' time that it may take on the machine of the run."""
    own_core: bool
    """True if a cluster gives it a separate core; else it runs with the controller."""


def beside(experiment: Experiment) -> dict[str, Beside]:
    """The processes that an experiment asks for beside its plan's, by name."""
    there = {}
    playing, evaluation = experiment.self_play, experiment.evaluation
    if playing is not None and playing.evaluate > 0:
        task = "rates past versions by matches"
        there["rater"] = Beside(task, playing.evaluate, own_core=False)
    if evaluation is not None:
        task = f"evaluates versions by {evaluation.episodes} episodes each"
        there["evaluator"] = Beside(task, evaluation.share, own_core=True)
    return there


@contextlib.contextmanager
def processes_beside(
    experiment: Experiment, run: Path, show: Callable[[str], None], *, evaluates: bool = True
) -> Iterator[None]:
    """Keeps what rates versions and what evaluates them running for as long as this is entered.

    Args:
        experiment: The run's.
        run: The run's folder.
        show: Shows a line of text.
        evaluates: Whether versions are evaluated on this host; another may do so.
    """
    with contextlib.ExitStack() as stack:
        asked = beside(experiment)
        if "rater" in asked:
            without = "versions are not rated"
            module = "srl.evaluation.rater"
            stack.enter_context(BackgroundProcess("rater", module, run, show, without=without))
        if "evaluator" in asked and evaluates:
            nice = _NICE if asked["evaluator"].share < 1 else 0
            Versions(run).clear_urgent()
            stack.enter_context(evaluator(run, show, nice))
        yield


@contextlib.contextmanager
def evaluator(run: Path, show: Callable[[str], None], nice: int = _NICE) -> Iterator[None]:
    """Keeps the process that evaluates versions running for as long as this is entered.

    Args:
        run: The run's folder.
        show: Shows a line of text.
        nice: How low its priority is, until the run waits for its last version.
    """
    versions = Versions(run)
    versions.begin()
    process = BackgroundProcess(
        "evaluator",
        "srl.evaluation.online",
        run,
        show,
        without="versions are not evaluated",
        nice=nice,
        urgent=lambda: versions.urgent,
        on_given_up=versions.give_up,
    )
    try:
        with process:
            yield
    finally:
        remove_unfinished_films(RunFolder(run))
