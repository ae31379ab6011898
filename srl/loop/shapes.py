"""What the values of a run's loop are made of, found without computing any of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from srl.algorithms.algorithm import State
from srl.dataflow.graph import Field, Shapes
from srl.experiment import Experiment
from srl.lazy import jax, jnp
from srl.loop.teams import Teams
from srl.types import Specs, Timestep, Tree, Unroll


def shapes_of(experiment: Experiment, specs: Specs, timestep: Timestep, groups: int = 1) -> Shapes:
    """Gives the shapes of all that flows in a run.

    Args:
        experiment: The run.
        specs: Of its environments.
        timestep: Of one environment; only the arrays' shapes and types are looked at.
        groups: Of environments that are stepped together.
    """
    length, num_envs = experiment.graph.unrolls[0].length, experiment.num_envs
    teams = Teams.of(
        *(experiment.settled_algorithm, experiment.policies, specs, None, num_envs),
        taught=experiment.taught,
    )
    teams = teams.with_opponents(experiment, groups)
    timestep = jax.tree.map(lambda x: _array((len(x) * num_envs, *x.shape[1:]), x.dtype), timestep)

    def flow(timestep: Timestep) -> dict[str, Any]:
        key = jax.random.key(0)
        states = teams.init(key)
        policies = teams.acting(teams.policies(states))
        slots = jnp.arange(len(timestep.reward), dtype=jnp.int32)
        decision = teams.act(
            policies,
            timestep.observation,
            timestep.terminated | timestep.truncated,
            teams.initial_memory(num_envs),
            key,
            jnp.uint32(0),
            slots,
        )
        rows = jax.tree.map(lambda x: _repeated(x, length + 1), timestep)
        unroll = Unroll(
            rows.observation,
            rows.reward,
            rows.terminated,
            rows.truncated,
            _repeated(decision.action, length),
            _repeated(decision.log_prob, length),
            jax.tree.map(lambda x: _repeated(x, length // teams.chunk_of(length)), decision.memory),
            jnp.zeros((length, groups, 2), jnp.int32),
            slots,
            jax.tree.map(lambda x: _repeated(x, length), decision.advice),
        )
        own = unroll._replace(memory=teams.own(unroll.memory))
        _, batches, _ = teams.look(states, teams.empty_replays(own), own)
        sums, _ = teams.gradient(states, batches, jnp.int32(0))
        return {
            "decision": decision,
            "unroll": unroll,
            "policy": policies,
            "state": {name: _needed(state) for name, state in states.items()},
            "sums": sums,
        }

    values = jax.eval_shape(flow, timestep)
    return Shapes(
        timestep=tuple(_fields(timestep)),
        decision=tuple(_fields(values["decision"]._replace(advice=()))),
        advice=tuple(_fields({"advice": values["decision"].advice})),
        unroll=tuple(_fields(values["unroll"])),
        **{name: tuple(_totals(name, values[name])) for name in ("policy", "state", "sums")},
        num_envs=num_envs,
        rounds=teams.rounds,
    )


def _needed(state: State) -> dict[str, Tree]:
    """What a gradient looks at: all but the optimizer's moments."""
    return {name: value for name, value in state._asdict().items() if name != "optimizer"}


def _array(shape: tuple[int, ...], dtype: Any) -> Any:
    return jax.ShapeDtypeStruct(shape, dtype)


def _repeated(x: Any, times: int) -> Any:
    return jnp.broadcast_to(x, (times, *x.shape))


def _fields(values: Tree) -> Iterator[Field]:
    """A field for each array, named by its path."""
    for path, x in jax.tree.leaves_with_path(values):
        yield Field("/".join(map(_word, path)), str(x.dtype), tuple(x.shape))


def _totals(value: str, trees: Mapping[str, Tree]) -> Iterator[Field]:
    """A field for each policy and type: how many numbers there are in all."""
    for name, tree in trees.items():
        sizes: dict[str, int] = {}
        for x in jax.tree.leaves(tree):
            sizes[str(x.dtype)] = sizes.get(str(x.dtype), 0) + math.prod(x.shape)
        yield from (Field(f"{value}/{name}", dtype, (size,)) for dtype, size in sizes.items())


def _word(key: Any) -> str:
    """A part of a path: a key of a dict, or a number in a tuple."""
    return str(getattr(key, "key", getattr(key, "name", getattr(key, "idx", key))))
