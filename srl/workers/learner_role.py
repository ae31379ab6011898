"""Workers that learn."""

from __future__ import annotations

from typing import Any

from srl.core.backends import backend_of
from srl.core.types import Specs
from srl.loop.devices import expect_devices
from srl.loop.learning.replicas import join, meeting_place
from srl.loop.stepping.remote import RemoteEnvironments
from srl.loop.training import Training, local_training
from srl.run.metrics import plain
from srl.run.train_loop import Run
from srl.workers.worker import WorkerContext


def run_learner(context: WorkerContext) -> None:
    """Learns from other workers' unrolls, until the budget is used up or it is to stop."""
    endpoints = context.endpoints()
    listeners = endpoints.listen()
    addresses = {stream: listener.address for stream, listener in listeners.items()}
    specs = _register(context, addresses)
    assert specs is not None
    environments = RemoteEnvironments(endpoints, listeners, specs, context.ledger)
    _run(context, Training(endpoints.experiment, environments))


def run_whole_loop(context: WorkerContext) -> None:
    """Runs the plain loop over a share of the environments, beside other replicas."""
    training = local_training(context.experiment, context.replica)
    # Replicas meet before JAX starts, and environments that are written in JAX start it.
    in_jax = backend_of(context.experiment.env).language == "JAX"
    specs = None if in_jax else training.environments.make()
    _register(context, {}, specs)
    _run(context, training)


def _register(
    context: WorkerContext, addresses: dict[str, str], specs: Specs | None = None
) -> Specs | None:
    """Registers, and meets the other replicas of the learner, if there are any.

    Returns:
        The environments' specs; None where no worker has made them yet.
    """
    replicas = context.plan.fragments[context.fragment].replicas
    if replicas > 1 and context.replica == 0:
        addresses = {**addresses, "replicas": meeting_place(context.interface)}
    start = context.register(addresses, specs)
    if replicas > 1:
        meeting = start.peers[context.fragment][0]["replicas"]
        silent_seconds = context.experiment.heartbeat_seconds
        join(meeting, context.replica, replicas, context.interface, silent_seconds)
    expect_devices()
    return start.specs


def _run(context: WorkerContext, training: Training) -> None:
    """Runs to the end. Of several replicas, which all compute the same, the first saves it."""
    stop = context.stopping.is_set
    kept = context.replica == 0
    show = _ControllerShow(context)
    training.neighbours = context.neighbours
    agree, hooks = training.agree, context.hooks()
    with Run(
        context.experiment, context.folder, training, show, stop, agree, hooks, kept=kept
    ) as run:
        run.start(resume=context.resume)
        run.loop()


class _ControllerShow:
    """Shows the run in the controller's terminal."""

    def __init__(self, context: WorkerContext) -> None:
        self._context = context
        self.say, self.stage, self.alive = context.say, context.stage, context.progress

    def start(self, trainer: Training) -> None:
        self._context.on_seconds(trainer.add_seconds)
        self._context.progress(updates=trainer.learner.progress.updates)

    def tick(self, trainer: Training, now: float) -> None:
        self._context.progress(updates=trainer.learner.progress.updates)

    def report(self, report: dict[str, Any]) -> None:
        self._context.report({name: plain(value) for name, value in report.items()})
