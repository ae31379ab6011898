"""What crosses a gradients stream, as both of its ends find it from the experiment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from srl.algorithms.algorithm import State
from srl.lazy import jax, jnp
from srl.streams.batch import Batch
from srl.streams.gradients import Forms
from srl.streams.layout import Layout
from srl.types import Timestep
from srl.workers.learner import Learner


class Crossing(NamedTuple):
    """The layouts of what crosses, which is flat, and the trees that it comes from."""

    forms: Forms
    states: Any
    measured: Any
    gradient: Any

    @staticmethod
    def of(learner: Learner, batch: Batch) -> Crossing:
        """Computes nothing.

        Args:
            learner: Of either end.
            batch: Of the slots of one worker.
        """
        teams = learner.teams

        def sums(states: Any, unroll: Any) -> tuple[Any, Any]:
            batches, measured = teams.measure(states, unroll)
            return measured, teams.gradient(states, batches, jnp.int32(0))

        states = needed(learner.states)
        measured, gradient = jax.eval_shape(sums, states, learner.unroll(batch))
        forms = Forms(
            Layout.of(flat(states)),
            Layout.of((flat(measured), account(batch))),
            Layout.of(flat(gradient)),
        )
        return Crossing(forms, *map(jax.tree.structure, (states, measured, gradient)))


def needed(states: Mapping[str, State]) -> dict[str, State]:
    """What sums are computed from: all but what the optimizer keeps."""
    return {name: state._replace(optimizer=()) for name, state in states.items()}


def flat(tree: Any) -> tuple[Any, ...]:
    """The arrays of any tree that JAX knows."""
    return tuple(jax.tree.leaves(tree))


def account(batch: Batch) -> tuple[np.ndarray, ...]:
    """What is told of a batch's steps beside the sums: the timesteps without the observations."""
    _, *fields = batch.timesteps
    return tuple(field[1:] for field in fields)


def whole_account(parts: list[tuple[np.ndarray, ...]]) -> Timestep:
    """The timesteps of all workers, side by side: [T, ...], copied."""
    return Timestep((), *(np.concatenate(fields, axis=1) for fields in zip(*parts, strict=True)))
