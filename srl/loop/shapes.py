"""Shapes of all values of a run's loop, found without computing any of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from srl.algorithms.algorithm import Total
from srl.config.experiment import Experiment
from srl.core.lazy import jax, jnp
from srl.core.types import Decision, Specs, Timestep, Tree, Unroll
from srl.dataflow.graph import Field, Shapes
from srl.loop.binding import first_decision, unroll_of
from srl.loop.learning.replay_files import tree_bytes
from srl.loop.policy_set import PolicySet


def shapes_of(experiment: Experiment, specs: Specs, timestep: Timestep, groups: int = 1) -> Shapes:
    """Gives the shapes of all that flows in a run.

    Args:
        experiment: The run.
        specs: Of its environments.
        timestep: Of one environment; only the arrays' shapes and types are looked at.
        groups: Of environments that are stepped together.
    """
    lengths = [unrolled.length for unrolled in experiment.graph.unrolls]
    num_envs = experiment.num_envs
    policy_set = PolicySet.of_experiment(experiment, specs).with_opponents(experiment, groups)
    timestep = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct((len(x) * num_envs, *x.shape[1:]), x.dtype), timestep
    )

    def flow(timestep: Timestep) -> dict[str, Any]:
        states = policy_set.init(jax.random.key(0))
        decision = first_decision(policy_set, states, timestep)
        unrolls = {n: repeated_unroll(policy_set, timestep, decision, n, groups) for n in lengths}
        unroll = unrolls[lengths[0]]  # what else there is does not depend on the length
        own = unroll._replace(memory=policy_set.own(unroll.memory))
        replays = policy_set.empty_replays(own)
        sums = _sums_of_a_step(policy_set, policy_set.prepared(states, own))
        return {
            "decision": decision,
            "unrolls": unrolls,
            "policy": policy_set.acting(policy_set.policies(states)),
            "sums": sums,
            "held": (states, replays),
        }

    values = jax.eval_shape(flow, timestep)
    state_bytes, replay_bytes = map(tree_bytes, values["held"])
    return Shapes(
        timestep=tuple(_fields(timestep)),
        decision=tuple(_fields(values["decision"])),
        unrolls={n: tuple(_fields(unroll)) for n, unroll in values["unrolls"].items()},
        **{name: tuple(_totals(name, values[name])) for name in ("policy", "sums")},
        num_envs=num_envs,
        gradient_steps=max(instance.gradient_steps for instance in policy_set.instances.values()),
        state_bytes=state_bytes,
        replay_bytes=replay_bytes,
    )


def _sums_of_a_step(
    policy_set: PolicySet, prepared: Mapping[str, tuple[Any, Any]]
) -> dict[str, list[Tree]]:
    """Takes one gradient step; gives the sums of each policy that replicas would add up."""
    given: dict[str, list[Tree]] = {}
    for name, instance in policy_set.instances.items():
        sums = given.setdefault(name, [])
        total: Total = lambda x, sums=sums: sums.append(x) or x  # noqa: E731
        instance.gradient_step(*prepared[name], jnp.int32(0), total)
    return given


def repeated_unroll(
    policy_set: PolicySet, timestep: Timestep, decision: Decision, length: int, groups: int = 1
) -> Unroll:
    """An unroll of `length` steps of all slots that repeat one timestep and one decision."""

    def times(number: int, tree: Tree) -> Tree:
        return jax.tree.map(lambda x: jnp.broadcast_to(x, (number, *x.shape)), tree)

    memory = times(length // policy_set.chunk_of(length), decision.memory)
    version = jnp.zeros((length, groups, 2), jnp.int32)
    slot = jnp.arange(decision.log_prob.size, dtype=jnp.int32)
    decisions = times(length, decision._replace(memory=()))
    return unroll_of(times(length + 1, timestep), decisions, memory, version, slot)


def _fields(values: Tree) -> Iterator[Field]:
    """A field for each array, named by its path."""
    for path, x in jax.tree.leaves_with_path(values):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        yield Field(name, str(x.dtype), tuple(x.shape))


def _totals(value: str, trees: Mapping[str, Tree]) -> Iterator[Field]:
    """A field for each policy and type: how many numbers there are in all."""
    for name, tree in trees.items():
        sizes: dict[str, int] = {}
        for x in jax.tree.leaves(tree):
            sizes[str(x.dtype)] = sizes.get(str(x.dtype), 0) + math.prod(x.shape)
        yield from (Field(f"{value}/{name}", dtype, (size,)) for dtype, size in sizes.items())
