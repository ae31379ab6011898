"""The node `teach` with policies of other runs, which advise those that are trained."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from srl.algorithms.actor_critic import ActorCritic
from srl.algorithms.algorithm import Instance
from srl.algorithms.imitation import ACTION, DISTRIBUTION
from srl.config.fixed import Fixed
from srl.config.sources import TEACHER, setting_of
from srl.core.errors import UserError
from srl.core.lazy import jax, jnp
from srl.core.spaces import Space, narrow_dtype, spaces
from srl.core.types import Specs, Tree
from srl.loop.acting.fixed_acting import FixedPart, expect_actions, parts_of
from srl.record.run_record import RunFolder, read_specs


class TeacherPart(NamedTuple):
    """A policy of a teacher, with the agents that it advises."""

    part: FixedPart
    sees: Callable[[Tree], Tree]
    """Gives its observation, of one here."""


@dataclass(frozen=True)
class Teaching:
    """The policies of other runs that advise; their parameters are constants of the program."""

    specs: Specs
    """The specs of the environments here."""
    teachers: tuple[Fixed, ...]
    key: str
    """The key of the integer that chooses a teacher; empty with one."""
    trained: Instance
    """A policy of this run, as which teachers have to count actions."""

    @cached_property
    def parts(self) -> tuple[tuple[TeacherPart, ...], ...]:
        """The policies of each teacher, which are read when they are first asked for."""
        if self.key:
            _expect_numbers(self.specs.observation, self.key, len(self.teachers))
        return tuple(tuple(self._parts_of(i)) for i in range(len(self.teachers)))

    def advice(
        self,
        observation: Tree,
        part_of: Callable[[tuple[int, ...], Tree], Tree],
        joined: Callable[[Sequence[tuple[tuple[int, ...], Tree]]], Tree],
    ) -> Tree:
        """Gives the teachers' advice for B slots, ACTION and perhaps DISTRIBUTION by name.

        Args:
            observation: [B, ...]
            part_of: Gives the rows of some agents.
            joined: Gives all rows, of those of each of some agents.
        """

        def by(part: FixedPart, sees: Callable[[Tree], Tree]) -> Tree:
            return self._advice_by(part, sees(part_of(part.members, observation)))

        each = [joined([(p.members, by(p, sees)) for p, sees in own]) for own in self.parts]
        if len(each) == 1:
            return each[0]
        number = observation[self.key].reshape(-1)
        own = lambda x, i: (number == i).reshape(-1, *[1] * (x.ndim - 1))  # noqa: E731
        return jax.tree.map(
            lambda first, *rest: _chosen(first, rest, own),
            *each,
        )

    def _advice_by(self, part: FixedPart, observation: Tree) -> Tree:
        # Behind a barrier, all programs compute with the same rounding: see FixedActing.act.
        policy = jax.lax.optimization_barrier(part.policy)
        instance = part.instance
        action = instance.act_greedy(policy, observation, ()).action
        if not self._alike:
            return {ACTION: action}
        return {ACTION: action, DISTRIBUTION: instance.action_outputs(policy, observation, ())}

    @cached_property
    def _alike(self) -> bool:
        """True if all teachers have distributions of the same kind as the trained policy's."""
        instances = [part.instance for own in self.parts for part, _ in own]
        return all(isinstance(instance.actor, ActorCritic) for instance in instances)

    def _parts_of(self, number: int) -> Iterator[TeacherPart]:
        fixed, name = self.teachers[number], setting_of(f"{TEACHER}{number}")
        theirs = read_specs(RunFolder(fixed.folder))
        if form_of(theirs.action) != form_of(self.specs.action):
            raise UserError(
                f"{name}: {fixed.run} has actions of {theirs.action}, and here they are of "
                f"{self.specs.action}; choose a run with the same actions"
            )
        sees = _view(self.specs.observation, theirs.observation, f"{name}: {fixed.run}")
        specs = replace(self.specs, observation=theirs.observation)
        for part in parts_of(name, fixed, specs, tuple(range(len(specs.agents)))):
            expect_actions(name, self.specs, self.trained, part.instance)
            if jax.tree.leaves(part.instance.initial_memory(1)):
                raise UserError(
                    f"{name}: the policy of {fixed.run} has memory or stacks frames, and a teacher "
                    "sees one observation at a time; choose a run without"
                )
            yield TeacherPart(part, sees)


def _chosen(first: Any, rest: Sequence[Any], own: Callable[[Any, int], Any]) -> Any:
    """The rows of the array whose number is theirs."""
    for i, x in enumerate(rest, 1):
        first = jnp.where(own(x, i), x, first)
    return first


def form_of(space: Space) -> Any:
    """The shapes, types and counts of a space's arrays, as far as networks depend on them."""
    if isinstance(space, spaces.Dict):
        return {key: form_of(part) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(map(form_of, space.spaces))
    counts = getattr(space, "nvec", getattr(space, "n", None))
    counts = None if isinstance(space, spaces.Box) else np.asarray(counts).tolist()
    return type(space).__name__, space.shape, str(narrow_dtype(space.dtype)), counts


def _view(here: Space, theirs: Space, whose: str) -> Callable[[Tree], Tree]:
    """The function that gives a teacher's observation, of one here.

    It is the whole, the keys that the teacher knows, or the one key whose space is its own.
    """
    ours, wanted = form_of(here), form_of(theirs)
    if ours == wanted:
        return lambda observation: observation
    if isinstance(ours, dict):
        if isinstance(wanted, dict) and all(ours.get(key) == x for key, x in wanted.items()):
            return lambda observation: {key: observation[key] for key in wanted}
        same = [key for key, part in ours.items() if part == wanted]
        if len(same) == 1:
            return lambda observation: observation[same[0]]
    raise UserError(
        f"{whose} observes {theirs}, which is neither what is observed here, nor some keys of it, "
        f"nor one of them alone: {here}; choose a run on an environment with such observations"
    )


def _expect_numbers(space: Space, key: str, count: int) -> None:
    """Raises UserError unless a key of an observation holds one number from 0 up to `count`."""
    parts: Mapping[str, Any] = space.spaces if isinstance(space, spaces.Dict) else {}
    part = parts.get(key)
    if isinstance(part, spaces.Discrete):
        low, high = int(part.start), int(part.start + part.n - 1)
    elif isinstance(part, spaces.Box) and part.dtype.kind in "iu" and np.size(part.low) == 1:
        low, high = int(part.low.item()), int(part.high.item())
    else:
        low, high = -1, count
    if (low, high) != (0, count - 1):
        raise UserError(
            f"teacher_key={key!r}: expected a key of the observation with one integer from 0 to "
            f"{count - 1}, for {count} teachers; it is {part if part is not None else space}"
        )
