"""Acting of fixed policies, which come from other runs and learn no more.

Each acts with its own network and algorithm, as the other run's folder records them, or the copy of
it that a run makes when it begins. Parameters are constants of the compiled programs of every
worker that acts, so none cross a stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from srl.algorithms.algorithm import Instance
from srl.algorithms.preprocessing import bound
from srl.algorithms.privileged import policy_specs
from srl.config.fixed import OPPONENTS, Fixed, first_fitting
from srl.core.errors import RunError, UserError
from srl.core.lazy import jax
from srl.core.spaces import Space, space_tree, spaces
from srl.core.tree import leaves_of, map_tree
from srl.core.types import Array, Decision, Policy, Specs, Tree
from srl.record.array_file import named_leaves
from srl.record.checkpoint import Checkpoints
from srl.record.run_record import RunFolder, read_config, read_specs, recorded_algorithm

ACTING_PARTS = ("params", "n", "observations")
"""The parts of a learner's state that its policy follows from."""


class FixedPart(NamedTuple):
    """Some agents that one policy of another run plays."""

    members: tuple[int, ...]
    """Their indices."""
    instance: Instance
    policy: Policy
    """Its arrays are NumPy's."""


@dataclass(frozen=True)
class FixedActing:
    """Acts for the slots of agents that fixed policies play; see `PastActing`."""

    specs: Specs
    """The specs of the environments that are played in."""
    members: Mapping[str, tuple[int, ...]]
    """Agent indices by pattern."""
    fixed: Mapping[str, Fixed]
    """Whose policy plays them, by pattern."""
    trained: Instance
    """A policy of this run, as which fixed ones have to count actions."""

    period = 1
    """The number of environments after which the slots of fixed policies repeat."""

    @cached_property
    def parts(self) -> tuple[FixedPart, ...]:
        """The agents with their policies, which are read when they are first asked for."""
        parts = tuple(part for pattern in self.members for part in self._parts_of(pattern))
        for part in parts:
            expect_actions("policies", self.specs, self.trained, part.instance)
        return parts

    def present_slots(self, members: tuple[int, ...]) -> tuple[int, ...]:
        """Gives the slots that these agents' trained policy plays: all."""
        return members

    def first(self, policies: Mapping[str, Policy]) -> tuple[()]:
        """Gives nothing: the parameters are constants."""
        del policies
        return ()

    def initial_memory(self, num_envs: int) -> Tree:
        """Gives the memory of each part's slots."""
        return tuple(
            part.instance.initial_memory(num_envs * len(part.members)) for part in self.parts
        )

    def act(
        self,
        past: Any,
        memory: Tree,
        ended: Array,
        rows: Callable[[tuple[int, ...]], tuple[Tree, Array, Array, Array]],
    ) -> tuple[list[tuple[tuple[int, ...], Decision]], Tree]:
        """Decides for the slots that fixed policies play; see `PastActing.act`."""
        del past, ended
        decisions: list[tuple[tuple[int, ...], Decision]] = []
        following: list[Tree] = []
        for part, remembered in zip(self.parts, memory, strict=True):
            observation, keys, slots, own_ended = rows(part.members)
            # Behind a barrier, the compiler computes nothing of them in advance, and so with other
            # rounding in one program than in another.
            policy = jax.lax.optimization_barrier(part.policy)
            decision = part.instance.act(policy, observation, remembered, keys, slots)
            following.append(part.instance.memory_after(decision.memory, own_ended))
            decisions.append((part.members, decision))
        return decisions, tuple(following)

    def _parts_of(self, pattern: str) -> Iterator[FixedPart]:
        """Reads what plays the agents of a pattern: perhaps several policies of the other run."""
        fixed, name = self.fixed[pattern], f"policies[{pattern!r}]"
        folder = RunFolder(fixed.folder)
        named = {"actions": "action", "observations": "observation"}
        algorithm = recorded_algorithm(folder, read_config(folder), trusted=True)  # as the run is
        specs = read_specs(folder), self.specs
        theirs, ours = (policy_specs(x, algorithm.privileged) for x in specs)
        differing = [
            word for word, part in named.items() if getattr(theirs, part) != getattr(ours, part)
        ]
        if differing:
            raise UserError(
                f"{name}: the policy of {fixed.run} cannot play here: its environment differs "
                f"from this run's in its {' and '.join(differing)}; choose a run on the same "
                "environment with the same options"
            )
        return parts_of(name, fixed, self.specs, self.members[pattern])


def parts_of(
    name: str, fixed: Fixed, specs: Specs, members: tuple[int, ...]
) -> Iterator[FixedPart]:
    """Reads the policies of another run that play some agents: perhaps several.

    Args:
        name: Of the setting that holds it.
        fixed: The version of the other run.
        specs: Of the environments that are played in, with the observations that the other run has.
        members: The agents' indices.

    Raises:
        UserError: If it has no policy of its own for one of them.
    """
    folder = RunFolder(fixed.folder)
    config = read_config(folder)
    patterns, num_envs = (config["experiment"][key] for key in ("policies", "num_envs"))
    algorithm = recorded_algorithm(folder, config, trusted=True)  # by who opened the run
    agents = read_specs(folder).agents
    there = replace(specs, agents=agents, agent_spaces=())
    playing = [patterns.get(first_fitting(patterns, agent)) for agent in agents]
    instances = {
        policy: bound(
            algorithm, there, 1, num_envs, [i for i, x in enumerate(playing) if x == policy]
        )
        for policy in patterns.values()
        if isinstance(policy, str)
    }
    of_policy: dict[str, list[int]] = {}
    for index in members:
        policy = _named(patterns, specs.agents[index], f"{name}: {fixed.run}")
        of_policy.setdefault(policy, []).append(index)
    for policy, own in of_policy.items():
        yield FixedPart(tuple(own), instances[policy], read_policy(fixed.file, policy, instances))


def expect_actions(name: str, specs: Specs, trained: Instance, other: Instance) -> None:
    """Raises UserError unless a policy of another run counts actions as the trained one does.

    Args:
        name: Of the setting that holds the other.
        specs: Of the environments that are played in.
        trained: A policy of this run; it is asked for the actions of all slots.
        other: The other.
    """

    def probes(leaf: Space) -> np.ndarray:
        numbers = np.zeros(5, np.int32)
        if isinstance(leaf, spaces.Box):
            numbers = np.linspace(-2.0, 2.0, 5, dtype=np.float32)
        return np.multiply.outer(numbers, np.ones(leaf.shape or (), numbers.dtype))

    probe = map_tree(probes, space_tree(specs.action))
    own, theirs = (leaves_of(i.env_action(probe)) for i in (trained, other))
    if not all(np.allclose(a, b, atol=1e-6) for a, b in zip(own, theirs, strict=True)):
        raise UserError(
            f"{name}: {type(other.config).__name__}, by which a fixed policy was trained, "
            f"counts actions otherwise than {type(trained.config).__name__}; train with the same "
            "algorithm"
        )


def _named(patterns: Mapping[str, Any], agent: str, run: str) -> str:
    """The policy of another run that plays an agent."""
    pattern = first_fitting(patterns, agent)
    if pattern is None:
        raise UserError(
            f"{run} has no policy for {agent!r}, only for {', '.join(patterns)}; choose another run"
        )
    policy = patterns[pattern]
    if not isinstance(policy, str):
        raise UserError(
            f"{run} did not train what plays {agent!r}: there, too, a fixed policy plays it, of "
            f"{policy.get('run')}; give that run"
        )
    return policy


def read_policy(file: Path, name: str, instances: Mapping[str, Instance]) -> Policy:
    """Reads the parameters of one policy of another run, as arrays of NumPy's.

    Args:
        file: Of the version.
        name: Of the policy there.
        instances: The functions of all policies there.
    """
    instance = instances[name]
    try:
        if file.parent.name == OPPONENTS:
            from srl.record.opponent_pool import OpponentPool

            like = {other: jax.eval_shape(i.policy, _state(i)) for other, i in instances.items()}
            return OpponentPool(file.parents[1]).read(int(file.stem), like)[name]
        version = int(file.stem) if file.stem.isdecimal() else file.stem
        states = {name: _state(instance)}
        states, _ = states_that_act(states, instances, Checkpoints(file.parent), version)
    except RunError as error:  # damaged, which another start would not fix
        raise UserError(str(error)) from error
    with jax.ensure_compile_time_eval():  # also while something else is traced
        return jax.device_get(instance.policy(states[name]))


def _state(instance: Instance) -> Any:
    """The shapes and types of a learner's state."""
    return jax.eval_shape(instance.init, jax.random.key(0))


def states_that_act(
    states: Mapping[str, Any],
    instances: Mapping[str, Instance],
    checkpoints: Checkpoints,
    version: int | str | None,
) -> tuple[dict[str, Any], dict[str, int]]:
    """Gives states with what acting needs of a checkpoint, and its counts.

    Args:
        states: Learners' states, or their shapes, by policy. What only learning needs, such as a
            value, stays as it is here: a checkpoint may have it in another form.
        instances: The functions of each policy.
        checkpoints: Of the run.
        version: Of the checkpoint; None for the newest.

    Raises:
        UserError: If there is no such checkpoint, or it is of another network.
    """
    acting = {name: _read_by_policy(instances[name], state) for name, state in states.items()}
    learners, counts = checkpoints.learners(version, acting)
    found = {}
    for name, state in states.items():
        leaves = [learners[name].get(path, x) for path, x in named_leaves(state).items()]
        found[name] = jax.tree.structure(state).unflatten(leaves)
    return found, counts


def _read_by_policy(instance: Instance, state: Any) -> dict[str, Any]:
    """The arrays of a learner's state that its policy follows from, by name."""
    jaxpr = jax.make_jaxpr(instance.policy)(state).jaxpr
    read = {id(x) for equation in jaxpr.eqns for x in equation.invars}
    read |= {id(x) for x in jaxpr.outvars}
    leaves = zip(named_leaves(state).items(), jaxpr.invars, strict=True)
    return {name: x for (name, x), variable in leaves if id(variable) in read}
