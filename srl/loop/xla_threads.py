"""The number of XLA's threads on CPUs: one, where a worker's programs are too small for several."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from srl.config.experiment import Experiment
from srl.core.lazy import jax
from srl.core.types import Decision, Specs, Timestep
from srl.dataflow.plans import programs_need_cpu
from srl.loop.learning.learner import bind_policy_set, decision_spec, first_decision
from srl.loop.policy_set import PolicySet
from srl.loop.shapes import repeated_unroll
from srl.pools.timestep_arrays import empty_timestep
from srl.record.files import write_atomically
from srl.record.run_record import srl_version
from srl.system.background.priority import keep_to_one_thread
from srl.system.gpus import jax_gpus

_SMALL_GRADIENT, _SMALL_ACT = 60_000_000, 10_000_000
"""FLOPs up to which a gradient step and a call of `act` are faster on one thread than on two, as
measured (docs/tuning.md): to wake another thread takes longer than what it would do."""


def choose_for_learning(experiment: Experiment, specs: Specs, num_envs: int) -> None:
    """Gives XLA one thread if the largest program is small, and that learns; else all cores.

    For workers that call one program at a time. It has no effect where XLA has started already.

    Args:
        experiment: What is trained.
        specs: Of its environments.
        num_envs: Environments that the worker learns from.
    """

    def count() -> int:
        return gradient_flops(bind_policy_set(experiment, specs), experiment, num_envs)

    _choose("learn", experiment, specs, num_envs, count, _SMALL_GRADIENT)


def choose_for_acting(experiment: Experiment, policy_set: PolicySet, num_envs: int) -> None:
    """The same for a worker that does not learn, for `num_envs` environments a call of `act`."""

    def count() -> int:
        return act_flops(policy_set, num_envs)

    _choose("act", experiment, policy_set.specs, num_envs, count, _SMALL_ACT)


def act_in_calling_thread() -> None:
    """Lets programs on CPUs run in the thread that calls them, in workers that do not learn.

    To hand `act` to a thread of XLA's and to wait takes longer than a small network. Learning would
    be slower so, as XLA's threads take its products. It has no effect where XLA has started before.
    """
    jax.config.update("jax_cpu_enable_async_dispatch", False)


def gradient_flops(policy_set: PolicySet, experiment: Experiment, num_envs: int) -> int:
    """Counts the FLOPs of a gradient step on the slots of `num_envs` environments."""
    length = max(unrolled.length for unrolled in experiment.graph.unrolls)

    def prepare(timestep: Timestep, decision: Decision) -> Any:
        states = policy_set.init(jax.random.key(0))
        unroll = repeated_unroll(policy_set, timestep, decision, length)
        return policy_set.prepared(states, unroll._replace(memory=policy_set.own(unroll.memory)))

    timestep = empty_timestep(policy_set.specs, num_envs)
    prepared = jax.eval_shape(prepare, timestep, decision_spec(policy_set, num_envs))
    return flops_of(jax.make_jaxpr(policy_set.totals)(prepared).jaxpr)


def act_flops(policy_set: PolicySet, num_envs: int) -> int:
    """Counts the FLOPs of a call of `act`."""
    decide = partial(first_decision, policy_set, num_envs)
    return flops_of(jax.make_jaxpr(decide)(empty_timestep(policy_set.specs, num_envs)).jaxpr)


def flops_of(jaxpr: Any) -> int:
    """Counts the FLOPs of the matrix products and convolutions of a traced function.

    A loop counts as often as it runs where that is known, of a branch each side counts.
    """
    total = 0
    for equation in jaxpr.eqns:
        name, (out, *_) = equation.primitive.name, equation.outvars or (None,)
        if name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            shape = equation.invars[0].aval.shape
            total += 2 * out.aval.size * math.prod(shape[axis] for axis in contracted)
        elif name == "conv_general_dilated":
            kernel = equation.invars[1].aval
            outputs = kernel.shape[equation.params["dimension_numbers"].rhs_spec[0]]
            total += 2 * out.aval.size * (kernel.size // outputs)
        else:
            inner = sum(map(flops_of, _inner(equation.params)))
            total += inner * int(equation.params.get("length", 1) if name == "scan" else 1)
    return total


def _inner(params: Mapping[str, Any]) -> Iterator[Any]:
    """The traced functions that an equation calls."""
    for value in params.values():
        for each in value if isinstance(value, tuple | list) else (value,):
            if hasattr(each, "jaxpr"):
                yield each.jaxpr
            elif hasattr(each, "eqns"):
                yield each


def _choose(
    node: str,
    experiment: Experiment,
    specs: Specs,
    num_envs: int,
    count: Callable[[], int],
    small: int,
) -> None:
    """Gives XLA one thread if a node takes at most `small` FLOPs, as `count` counts them.

    A number of threads that the user has chosen stays. Where fixed policies play, XLA has to run to
    read them, before anything can be counted. Where a GPU computes, the threads compile for it.
    """
    program = experiment.settled_plan.is_one_program and programs_need_cpu(experiment.env)
    if jax_gpus() and not program:
        return
    if "NPROC" in os.environ or len(os.sched_getaffinity(0)) == 1 or experiment.fixed:
        return
    # All that the FLOPs depend on, but for code outside srl.
    played = dict(experiment.policies), experiment.self_play
    parts = experiment.settled_algorithm, experiment.graph, played, specs, num_envs
    counted = repr((jax.__version__, srl_version(), node, *parts))
    with suppress(OverflowError):  # more than memory holds, which is refused later
        if _kept(counted, count) <= small:
            keep_to_one_thread()


def _kept(counted: str, count: Callable[[], int]) -> int:
    """Gives what `count` gives, which is kept beside JAX's compiled programs: tracing takes long.

    Args:
        counted: What the result depends on.
        count: Counts FLOPs.
    """
    folder = jax.config.values["jax_compilation_cache_dir"]
    if folder is None or " at 0x" in counted:  # an address, which the next start has not
        return count()
    file = Path(folder) / f"srl-flops-{hashlib.sha256(counted.encode()).hexdigest()}"
    with suppress(OSError, ValueError):
        return int(file.read_text())
    flops = count()
    with suppress(OSError):
        write_atomically(file, str(flops).encode())
    return flops
