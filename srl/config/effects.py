"""Settings without effect, which new runs refuse; runs that have begun go on with them."""

from __future__ import annotations

from dataclasses import fields

from srl.config.experiment import Experiment
from srl.core.errors import PlanError, UserError, expect_number
from srl.dataflow.plan import Plan, steps_as_ready
from srl.networks import MLP, AutoNetwork, Network


def expect_effect(experiment: Experiment) -> None:
    """Raises UserError for a setting of a new run that would change nothing."""
    algorithm = experiment.algorithm
    network = algorithm.network
    parts: dict[str, Network] = {"network": network}
    if isinstance(network, AutoNetwork):
        parts["network.mlp"] = network.mlp
        for item in fields(Network):
            if getattr(network.mlp, item.name) != getattr(MLP(), item.name):
                raise UserError(
                    f"network.mlp.{item.name} belongs to the whole network: give "
                    f"network.{item.name}"
                )
    for where, part in parts.items() if not algorithm.values_see_more else ():
        for name in ("value_widths", "value_activation"):
            if getattr(part, name, ""):
                raise UserError(
                    f"{where}.{name}: {type(algorithm).__name__} has no network of values beside "
                    f"the one that acts; give {name.removeprefix('value_')}"
                )
    if experiment.plan != "auto":
        _expect_batch_counts(experiment, experiment.settled_plan)


def _expect_batch_counts(experiment: Experiment, plan: Plan) -> None:
    actors, where = plan.fragment("step"), f"plan.{plan.home('step')}.batch"
    if not actors.batch:
        return
    if not steps_as_ready(plan, experiment):
        raise PlanError(
            f"{where} is {actors.batch}, and no environment steps as it gets ready; leave it out, "
            "or give max_staleness above 0 and a worker for each environment (docs/tuning.md)"
        )
    expect_number(where, actors.batch, 1, experiment.num_envs // actors.replicas)
