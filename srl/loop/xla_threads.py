"""The number of XLA's threads on CPUs: one, where a worker's programs are too small for several."""

from __future__ import annotations

import math
import os
from typing import Any

from srl.config.experiment import Experiment
from srl.core.lazy import jax
from srl.core.spaces import space_tree
from srl.core.tree import leaves_of
from srl.core.types import Specs
from srl.dataflow.plans import programs_need_cpu
from srl.loop.policy_set import PolicySet
from srl.system.background.priority import keep_to_threads
from srl.system.cores import cores_to_fill
from srl.system.gpus import jax_gpus

SMALL = 9_000_000
"""Parameters times samples up to which a gradient step is faster on one thread than on two, as
measured (docs/tuning.md): to wake another thread takes longer than its work."""
SMALL_ACT = 5_000_000
"""The same of a call of `act`: a slot takes two operations a parameter of the policy."""


def choose_for_learning(experiment: Experiment, policy_set: PolicySet, num_envs: int) -> None:
    """Gives XLA one thread if gradient steps are small; else all cores.

    For workers that call one program at a time. It has no effect where XLA has started already.
    """
    if _may_choose(experiment):
        algorithm = experiment.settled_algorithm
        length = max(unrolled.length for unrolled in experiment.graph.unrolls)

        def samples(slots: int) -> int:
            """The steps of slots in a gradient step, by the settings that algorithms share."""
            if drawn := getattr(algorithm, "batch_size", 0):
                return drawn * (length if algorithm.network.memory else 1)
            return slots * length // (getattr(algorithm, "minibatches", 1) or 1)

        slots = {name: num_envs * len(agents) for name, agents in policy_set.members.items()}
        states = jax.eval_shape(lambda: policy_set.init(jax.random.key(0)))
        sizes = {name: state.params for name, state in states.items()}
        _keep_small(sizes, {name: samples(number) for name, number in slots.items()}, SMALL)


def choose_for_acting(experiment: Experiment, policy_set: PolicySet, num_envs: int) -> None:
    """The same for a worker that does not learn, for `num_envs` environments a call of `act`."""
    if _may_choose(experiment) and not _shares_weights(policy_set.specs):
        members = policy_set.members
        policies = jax.eval_shape(lambda: policy_set.policies(policy_set.init(jax.random.key(0))))
        sizes = {name: policies[name].params for name in members}
        slots = {name: num_envs * len(members[name]) for name in members}
        _keep_small(sizes, slots, SMALL_ACT)


def _shares_weights(specs: Specs) -> bool:
    """Tells if a network uses a parameter at many places, as convolutions and attention do."""
    return any(len(leaf.shape or ()) > 1 for leaf in leaves_of(space_tree(specs.observation)))


def act_in_calling_thread() -> None:
    """Lets programs on CPUs run in the thread that calls them, in workers that do not learn.

    To hand `act` to a thread of XLA's and to wait takes longer than a small network. Learning would
    be slower so, as XLA's threads take its products. It has no effect where XLA has started before.
    """
    jax.config.update("jax_cpu_enable_async_dispatch", False)


def _may_choose(experiment: Experiment) -> bool:
    """Tells if the number is to be chosen.

    A number that the user has chosen stays. Where fixed policies play, XLA has started to read
    them. Where a GPU computes, the threads compile for it.
    """
    program = experiment.settled_plan.is_one_program and programs_need_cpu(experiment.env)
    if jax_gpus() and not program:
        return False
    chosen = "NPROC" in os.environ or len(os.sched_getaffinity(0)) == 1
    return not chosen and not experiment.fixed


def _keep_small(params: dict[str, Any], samples: dict[str, int], limit: int) -> None:
    """Keeps XLA to one thread for few parameters times samples; else to its share of the cores."""
    work = sum(
        number * sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(params[name]))
        for name, number in samples.items()
    )
    count = 1 if work <= limit else cores_to_fill()
    if count < len(os.sched_getaffinity(0)):
        keep_to_threads(count)
