"""Draws of windows from a replay: uniform ones, and ones in proportion to priorities.

Each slot draws its share of every gradient step with a key of its own, so what is drawn does not
depend on how slots are divided.
"""

from __future__ import annotations

import math

from srl.algorithms.replay import Draws, Replay
from srl.core.errors import UserError
from srl.core.lazy import jax, jnp
from srl.core.types import Array


def filled(replay: Replay, n: Array) -> Array:
    """Gives how many of the newest unrolls, without a gap, are there of each slot: int32 [B].

    Args:
        replay: With the unroll of update n in it.
        n: int32 [], the present update.
    """
    blocks = len(replay.reward)
    age = (n - jnp.arange(blocks)) % blocks  # updates back, of what each block should hold
    there = (replay.update[:, 0] == (n - age)[:, None]) & (age <= n)[:, None]
    return jnp.min(jnp.where(there, blocks, age[:, None]), axis=0)  # the newest gap


def draw(
    key: Array,
    replay: Replay,
    n: Array,
    slot: Array,
    rounds: int,
    share: float,
    starts: int,
    first: Array | None = None,
    unrolls: Array | None = None,
) -> Draws:
    """Draws windows uniformly: all slots, and the unrolls and rows of a slot, are alike.

    Args:
        key: Of the run's learning.
        replay: With the unroll of update n in it.
        n: int32 [], the present update.
        slot: int32 [B], which of the run's slots each column is.
        rounds: Gradient steps that are drawn for.
        share: Windows of each slot in each round; below 1, a slot has one in every 1 / share
            rounds, in turn with its neighbours.
        starts: Windows of an unroll: its steps, where windows begin at every row.
        first: int32 [], the run's rounds before these, where they are not n * rounds.
        unrolls: int32 [B], of each slot, where they are not those that `filled` gives.
    """
    blocks = len(replay.reward)
    unrolls = filled(replay, n) if unrolls is None else unrolls
    each, turns = portions(share)
    keys = jax.vmap(jax.random.fold_in, (None, 0))(jax.random.fold_in(key, n), slot)

    def of_slot(key: Array, unrolls: Array) -> tuple[Array, Array]:
        one, other = jax.random.split(key)
        shape = (rounds, each)
        age = jax.random.randint(one, shape, 0, unrolls)
        return (n - age) % blocks, jax.random.randint(other, shape, 0, starts)

    block, row = jax.vmap(of_slot, out_axes=2)(keys, unrolls)
    return _in_turn(block, row, n * rounds if first is None else first, slot, turns)


def draw_by_priority(
    key: Array,
    priority: Array,
    n: Array,
    slot: Array,
    rounds: int,
    share: float,
    first: Array | None = None,
) -> Draws:
    """Draws windows of each slot in proportion to their priorities.

    A group of windows is drawn, and one of the group, each by a random number of its own: sums of a
    million priorities, and 23 random bits, would be too coarse to tell windows apart.

    Args:
        key: Of the run's learning.
        priority: float32 [K, W, B], of the W windows of an unroll; 0 where one is not to be drawn.
        n: int32 [], the present update.
        slot: int32 [B], which of the run's slots each column is.
        rounds: Gradient steps that are drawn for.
        share: Windows of each slot in each round; see `draw`.
        first: int32 [], the run's rounds before these, where they are not n * rounds.
    """
    blocks, rows, slots = priority.shape
    each, turns = portions(share)
    keys = jax.vmap(jax.random.fold_in, (None, 0))(jax.random.fold_in(key, n), slot)
    size = math.isqrt(blocks * rows)
    masses = jnp.pad(priority.reshape(-1, slots), ((0, -blocks * rows % size), (0, 0)))

    def of_slot(key: Array, masses: Array) -> Array:
        one, other = (1 - jax.random.uniform(k, (rounds * each,)) for k in jax.random.split(key))
        group = jax.vmap(_at, (None, 0))(jnp.sum(masses, axis=1), one)
        place = group * size + jax.vmap(_at)(masses[group], other)
        return place.reshape(rounds, each)

    place = jax.vmap(of_slot, (0, 2), 2)(keys, masses.reshape(-1, size, slots))
    turn = n * rounds if first is None else first
    return _in_turn(place // rows, place % rows, turn, slot, turns)


def _at(masses: Array, part: Array) -> Array:
    """Gives which of the masses [G] lies at this part, above 0 and at most 1, of their sum."""
    reached = jax.lax.cummax(jnp.cumsum(masses))  # rounding could let the sum fall
    return jnp.minimum(jnp.searchsorted(reached, reached[-1] * part), len(masses) - 1)


def window_numbers(key: Array, slot: Array, share: float, count: int) -> Array:
    """Draws numbers from 0 to 1 for each window, float32 [rounds, S, count].

    They follow from the window's slot, its round and its place among the slot's windows.

    Args:
        key: Of the update.
        slot: int32 [rounds, S], of the run's slots.
        share: Windows of each slot in a round.
        count: Numbers of a window.
    """
    rounds, size = slot.shape
    each, _ = portions(share)
    place = jnp.arange(size) // (size // each) + each * jnp.arange(rounds)[:, None]

    def of_one(slot: Array, place: Array) -> Array:
        own = jax.random.fold_in(jax.random.fold_in(key, slot), place)
        return jax.random.uniform(own, (count,))

    return jax.vmap(jax.vmap(of_one))(slot, place)


def portions(share: float) -> tuple[int, int]:
    """Splits a share of draws for each slot: into draws a slot, of one in so many slots."""
    return max(1, round(share)), max(1, round(1 / share))


def _in_turn(block: Array, row: Array, first: Array, slot: Array, turns: int) -> Draws:
    """Keeps the draws [rounds, each, B] of every `turns`-th slot, which change from round to round.

    The first of these rounds is the run's round `first`.

    Raises:
        UserError: If the slots here cannot be divided so.
    """
    rounds, each, slots = block.shape
    if slots % turns:
        raise UserError(
            f"batch_size asks for draws from one slot in {turns}, and a learner has {slots} slots "
            "of the policy; give a larger algorithm.batch_size, such as the number of slots, or "
            f"numbers of environments and learners with which {turns} divides a learner's slots"
        )
    # In the run's round r it is the turn of the columns that leave r, divided by `turns`.
    turn = (first + jnp.arange(rounds))[:, None, None] % turns
    column = jnp.arange(slots // turns) * turns + turn  # [rounds, 1, B / turns]
    column = jnp.broadcast_to(column, (rounds, each, slots // turns))
    block, row = (jnp.take_along_axis(x, column, axis=2) for x in (block, row))
    flat = [x.reshape(rounds, -1).astype(jnp.int32) for x in (block, row, column)]
    return Draws(*flat, slot=slot[flat[2]])
