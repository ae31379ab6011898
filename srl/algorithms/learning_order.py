"""The order of one call of `learn`: measure, adapt, the rounds of gradient and update, finish.

It is the same in every plan; the parts are computed here, or at the other end of a stream.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from srl.lazy import jax, jnp
from srl.types import Array, Tree


class LearnNodes(NamedTuple):
    """The functions that `learn` calls, each computed here or at the other end of a stream."""

    rounds: int
    """The number of gradient steps."""
    measure: Callable[[Any, Any], tuple[Any, Any]]
    """(state, unroll) to the batch to learn from, and the total of what was measured."""
    adapt: Callable[[Any, Any], Any]
    """(state, measured) to the state that the rounds start from."""
    gradient: Callable[[Any, Any, Any], tuple[Any, Any]]
    """(state, batch, round) to the total of the round's sums, and notes of the slots here."""
    update: Callable[[Any, Any], tuple[Any, Any]]
    """(state, sums) to the state after a gradient step, and metrics."""
    finish: Callable[[Any, Any], tuple[Any, Any]]
    """(state, measured) to the state after the last step, and metrics."""


class Learned(NamedTuple):
    """What a call of `learn` has led to."""

    state: Any
    metrics: Tree
    """The means of the rounds' metrics."""
    finished: Tree
    """The metrics of `finish`."""
    batch: Any
    """What was learned from."""
    notes: Tree
    """The rounds' notes, [rounds, ...]."""


Step = Callable[[Any, Any], tuple[Any, tuple[Any, Any]]]
"""(state, round) to the next state, and metrics and notes."""
Repeat = Callable[[Step, Any, int], tuple[Any, Any, Any]]
"""Repeats a step from a state, so many times: gives the last state, the metrics' means, and the
notes of all."""


def learn(nodes: LearnNodes, state: Any, unroll: Any, repeat: Repeat) -> Learned:
    """One call of `learn`, in whichever worker: the order of its parts stands here alone.

    Args:
        nodes: The parts, each a call, an all-reduce, or one end of a stream.
        state: What was learned before.
        unroll: The slots that are here.
        repeat: Takes the rounds: `compiled_rounds` or `rounds_in_turn`.
    """
    batch, sums = nodes.measure(state, unroll)

    def step(state: Any, round: Any) -> tuple[Any, tuple[Any, Any]]:
        total, notes = nodes.gradient(state, batch, round)
        state, metrics = nodes.update(state, total)
        return state, (metrics, notes)

    state, metrics, notes = repeat(step, nodes.adapt(state, sums), nodes.rounds)
    state, finished = nodes.finish(state, sums)
    return Learned(state, metrics, finished, batch, notes)


def compiled_learn(
    learns: Any, state: Any, replay: Any, unroll: Any, total: Callable[[Tree], Tree]
) -> tuple[Learned, Any]:
    """One call of `learn` within a compiled program; gives what it led to, and the new replay.

    Args:
        learns: An `Instance`, or what has such functions for several of them.
        state: What was learned before.
        replay: What is remembered of these slots.
        unroll: The slots that are here.
        total: Adds sums to those of the slots that are elsewhere.
    """

    def measure(state: Any, unroll: Any) -> tuple[Any, Tree]:
        remembered, batch, sums = learns.look(state, replay, unroll)
        return (remembered, batch), total(sums)

    def gradient(state: Any, batch: Any, round: Array) -> tuple[Tree, Tree]:
        sums, notes = learns.noted_gradient(state, batch[1], round)
        return total(sums), notes

    parts = learns.adapt, gradient, learns.update, learns.finish
    learned = learn(LearnNodes(learns.rounds, measure, *parts), state, unroll, compiled_rounds)
    remembered, batch = learned.batch
    return learned, learns.revise(state, remembered, batch, learned.notes)


def compiled_rounds(step: Step, state: Any, rounds: int) -> tuple[Any, Any, Any]:
    """The rounds as a loop within a compiled program."""
    state, (metrics, notes) = jax.lax.scan(step, state, jnp.arange(rounds))
    return state, jax.tree.map(jnp.mean, metrics), notes


def rounds_in_turn(step: Step, state: Any, rounds: int) -> tuple[Any, Any, Any]:
    """The rounds one by one, where their parts are calls to other processes."""
    found = []
    for round in range(rounds):
        state, each = step(state, round)
        found.append(each)
    metrics, notes = jax.tree.map(lambda *each: jnp.stack(each), *found)
    return state, jax.tree.map(jnp.mean, metrics), notes
