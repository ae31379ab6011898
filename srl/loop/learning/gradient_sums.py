"""What crosses a gradients stream, as both of its ends find it from the experiment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from srl.algorithms.algorithm import State
from srl.lazy import jax, jnp
from srl.loop.learning.learner import Learner, Settings
from srl.loop.learning.tree_vectors import vectors_of
from srl.streams.batch import Batch
from srl.streams.gradients import GradientLayouts
from srl.streams.layout import Layout
from srl.types import Timestep


class Crossing(NamedTuple):
    """The layouts of what crosses, and the shapes of the trees that it is made of."""

    layouts: GradientLayouts
    states: Any
    """What acts and learns, as `needed` gives it."""
    measured: Any
    gradient: Any

    @staticmethod
    def of(learner: Learner, batch: Batch) -> Crossing:
        """Computes nothing.

        Args:
            learner: Of either end.
            batch: Of the slots of one worker.
        """
        policy_set = learner.policy_set

        def trees(states: Any, unroll: Any) -> tuple[Any, Any, Any]:
            _, batches, measured = policy_set.look(states, policy_set.empty_replays(unroll), unroll)
            policies = policy_set.policies(states)
            past = None if policy_set.opponents is None else policy_set.opponents.first(policies)
            gradient, _ = policy_set.noted_gradient(states, batches, jnp.int32(0))
            return needed(states, past, learner.setting_operands), measured, gradient

        shapes = jax.eval_shape(trees, learner.states, learner.unroll(batch))
        states, measured, gradient = (jax.eval_shape(vectors_of, tree) for tree in shapes)
        layouts = GradientLayouts(
            Layout.of(states), Layout.of((measured, account(batch))), Layout.of(gradient)
        )
        return Crossing(layouts, *shapes)


def needed(states: Mapping[str, State], past: Any, settings: Settings) -> tuple[Any, Any, Any]:
    """Gives what sums are computed from: all but the optimizer's state."""
    states = {name: state._replace(optimizer=()) for name, state in states.items()}
    return states, past, settings


def account(batch: Batch) -> tuple[np.ndarray, ...]:
    """What is sent of a batch's steps beside the sums: the timesteps without the observations."""
    _, *fields = batch.timesteps
    return tuple(field[1:] for field in fields)


def whole_account(parts: list[tuple[np.ndarray, ...]]) -> Timestep:
    """The timesteps of all workers, side by side: [T, ...], copied."""
    return Timestep((), *(np.concatenate(fields, axis=1) for fields in zip(*parts, strict=True)))
