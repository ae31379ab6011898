"""Workers that learn from what others collect."""

from __future__ import annotations

from typing import Any

from srl.metrics import plain
from srl.workers.gathering import Gathering
from srl.workers.run import Run, TrainerLike
from srl.workers.worker import Context


def run_learner(context: Context) -> None:
    """Trains until the budget is used up or it is told to stop; writes what a run leaves."""
    site = context.site()
    listeners = site.listen()
    addresses = {stream: listener.address for stream, listener in listeners.items()}
    specs = context.register(addresses).specs
    training = Gathering(site, listeners, specs, context.ledger)
    show = _Show(context)
    with Run(site.experiment, context.folder, training, show, context.stopping.is_set) as run:
        run.start(resume=context.resume)
        run.loop()
        training.finish()


class _Show:
    """Shows the run in the controller's terminal."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.say = context.say

    def start(self, trainer: TrainerLike) -> None:
        return None

    def tick(self, trainer: TrainerLike, now: float) -> None:
        self._context.progress(updates=trainer.updates)

    def report(self, trainer: TrainerLike, report: dict[str, Any]) -> None:
        self._context.report({name: plain(value) for name, value in report.items()})
