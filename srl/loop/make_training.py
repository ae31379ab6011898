"""The choice of the training for a plan in a single process."""

from __future__ import annotations

from srl.config.experiment import Experiment
from srl.loop.fused import Fused
from srl.loop.stepping.threads import ThreadEnvironments
from srl.loop.training import Training, local_training


def make_training(experiment: Experiment) -> Training:
    """Makes the training of an experiment in this process."""
    plan = experiment.settled_plan
    if plan.is_one_program:
        return Fused(experiment)
    if len(plan.fragments) > 1:
        return Training(experiment, ThreadEnvironments(experiment))
    return local_training(experiment)
