"""The beginning of a run, from the command line as from Python."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from srl.config.experiment import Experiment, Resolved
from srl.core.config_values import unreachable
from srl.core.errors import UserError
from srl.launch.auto import settled
from srl.loop.policy_set import PolicySet, assign
from srl.pools.make import expect_environment
from srl.record.run_record import RunFolder
from srl.run.folder import copy_fixed, create_run


def begin(
    resolved: Resolved, run_dir: Path | None, say: Callable[[str], object]
) -> tuple[RunFolder, Resolved]:
    """Makes a run's folder, or the default one, and chooses its plan if that is to be measured.

    Raises:
        UserError: If the experiment cannot run as it is; no folder is left.
    """
    experiment = resolved.experiment
    if not resolved.target:
        _expect_reachable(experiment)
    expect_fit(experiment)
    folder = create_run(resolved, run_dir)
    try:
        return folder, settled(folder, copy_fixed(folder, resolved), say)
    except BaseException:
        folder.discard()
        raise


def expect_fit(experiment: Experiment) -> None:
    """Raises UserError if the environment cannot be made, or algorithm or metric do not suit it.

    One written in Python that this process steps itself is made, and looked at, when the run
    begins, before anything is compiled. That of evaluation with other options is made here.
    """
    steps_here = experiment.plan != "auto" and experiment.settled_plan.processes == 1
    limits = experiment.workers, experiment.step_timeout, experiment.action_repeat
    probe = bool(experiment.workers) or not steps_here
    specs = expect_environment(experiment.env, *limits, probe=probe)
    if specs is not None:
        PolicySet.of_experiment(experiment, specs)
    if (evaluation := experiment.evaluation) is None:
        return
    if evaluation.options:
        specs = expect_environment(evaluation.environment(experiment.env), *limits, probe=True)
    if specs is not None:
        policies = assign(experiment.policies, specs.agents).trained
        evaluation.expect_fit(specs, policies)


def _expect_reachable(experiment: Experiment) -> None:
    """Raises UserError if other processes of the run could not make the experiment again."""
    other = 'take a plan of one process, such as plan="threads"'
    if experiment.plan == "auto":
        use = "the plan auto is measured"
    elif experiment.settled_plan.processes > 1:
        use = f"the plan {experiment.settled_plan.name} has workers"
    elif experiment.self_play is not None:
        use, other = "self-play rates versions", "leave out self_play"
    elif experiment.evaluation is not None:
        use, other = "evaluation plays", "leave out evaluation"
    else:
        return
    if lacking := next(unreachable("", experiment.without_hooks), None):
        raise UserError(
            f"{lacking.removeprefix('.')}, which no other process can import, and {use} in other "
            "processes: put it at the top level of a module (a .py file) and import it from there, "
            f"or {other}"
        )
