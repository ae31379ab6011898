"""The processes that work beside a run, as its experiment asks for them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from srl.beside.process import BesideProcess
from srl.evaluating.versions import Versions
from srl.experiment import Experiment

_NICE = 14
"""The nice value of what evaluates: 4 % of a core that the run would take; with 19 a start could
take minutes."""


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
        if experiment.self_play is not None and experiment.self_play.evaluate > 0:
            stack.enter_context(rater(run, show))
        if experiment.evaluation is not None and evaluates:
            nice = _NICE if experiment.evaluation.share < 1 else 0
            stack.enter_context(evaluator(run, show, nice))
        yield


def rater(run: Path, show: Callable[[str], None]) -> BesideProcess:
    """The process that lets past versions play each other."""
    without = "versions are not rated"
    return BesideProcess("rater", "srl.self_play.rater", run, show, without=without)


def evaluator(run: Path, show: Callable[[str], None], nice: int = _NICE) -> BesideProcess:
    """The process that evaluates versions.

    Args:
        run: The run's folder.
        show: Shows a line of text.
        nice: How low its priority is, until the run waits for its last version.
    """
    versions = Versions(run)
    versions.begin()
    return BesideProcess(
        "evaluator",
        "srl.evaluating.evaluator",
        run,
        show,
        without="versions are not evaluated",
        nice=nice,
        urgent=lambda: versions.urgent,
        on_given_up=versions.give_up,
    )
