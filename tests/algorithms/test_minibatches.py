"""Minibatches: every step is in one of each epoch, whichever slots are together."""

from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from srl.algorithms.minibatches import Batch, Minibatches, draw
from srl.core.errors import UserError

STEPS = 24
KEY = jax.random.key(0)


def numbers(slots):
    """A number of each step, `slot * 1000 + step`."""
    return jnp.asarray(slots, jnp.int32) * 1000 + jnp.arange(STEPS)[:, None]


@partial(jax.jit, static_argnums=(2, 3))
def drawn(key, slots, length, parts):
    """The steps of all minibatches of an epoch, [parts, length, S], and which chunks are there."""

    def one(n):
        minibatch = draw(key, slots, STEPS, parts, length, n)
        present = minibatch.present
        present = jnp.ones(minibatch.column.shape, bool) if present is None else present
        return minibatch.steps(numbers(slots)), present

    return jax.vmap(one)(jnp.arange(parts))


def epoch(key, slots, length, parts=4):
    """The steps of each minibatch, [length, S], by their numbers."""
    each = map(np.asarray, drawn(key, jnp.asarray(slots, jnp.int32), length, parts))
    return [steps[:, present] for steps, present in zip(*each, strict=True)]


@pytest.mark.parametrize(
    ("slots", "length", "parts", "block"),
    [
        (5, 1, 4, (4, 1)),
        (5, 6, 4, (4, 1)),
        (8, 24, 4, (1, 4)),
        (8, 12, 8, (2, 4)),
        (6, 1, 16, (8, 2)),
        (7, 24, 3, (1, 3)),
    ],
)
def test_every_step_is_in_one_minibatch_of_each_epoch(slots, length, parts, block):
    minibatches = epoch(KEY, range(slots), length, parts)
    steps = np.concatenate([minibatch.reshape(-1) for minibatch in minibatches])
    np.testing.assert_array_equal(np.sort(steps), np.sort(numbers(np.arange(slots)), axis=None))
    # Each minibatch has a cell of each block of chunks and slots, but for slots that are not there.
    chunks, of_slots = block
    blocks = sorted(
        (c, s) for c in range(STEPS // length // chunks) for s in range(0, slots, of_slots)
    )
    for minibatch in minibatches:
        slot, step = np.divmod(minibatch[0], 1000)
        found = sorted(zip(step // length // chunks, slot // of_slots * of_slots, strict=True))
        whole = [(c, s) for c, s in blocks if s + of_slots <= slots]
        assert set(whole) <= set(found) <= set(blocks)
        assert len(set(found)) == len(found)


@pytest.mark.parametrize("length", [1, 24])
def test_epochs_differ(length):
    one, other = (epoch(jax.random.key(seed), range(8), length) for seed in (0, 1))
    assert any((x != y).any() for x, y in zip(one, other, strict=True))


@pytest.mark.parametrize("length", [1, 3])
def test_the_minibatch_of_a_step_depends_on_its_slot_and_not_on_those_beside_it(length):
    few, many = (epoch(KEY, slots, length) for slots in ([6, 2], range(8)))
    for one, other in zip(few, many, strict=True):
        assert set(one.flat) == {step for step in other.flat if step // 1000 in (2, 6)}


@pytest.mark.parametrize("learners", [2, 4])
@pytest.mark.parametrize(("length", "parts"), [(24, 4), (12, 8)])
def test_learners_that_divide_the_slots_draw_together_what_one_draws(learners, length, parts):
    slots = np.arange(3, 35, 2)  # as of one policy of several, which has some of the run's slots
    whole = epoch(KEY, slots, length, parts)
    divided = [epoch(KEY, part, length, parts) for part in np.split(slots, learners)]
    assert {len(set(m.shape for m in minibatches)) for minibatches in divided} == {1}
    for n, minibatch in enumerate(whole):
        own = np.concatenate([part[n].reshape(-1) for part in divided])
        np.testing.assert_array_equal(np.sort(own), np.sort(minibatch, axis=None))


def test_chunks_are_neighbouring_steps_of_one_slot_from_where_memory_is_kept():
    slots = np.arange(5, dtype=np.int32)
    minibatch = draw(KEY, slots, STEPS, 4, 3, 1)
    steps = numbers(slots)
    chunks = np.asarray(minibatch.steps(steps))
    np.testing.assert_array_equal(chunks - chunks[0], np.tile([[0], [1], [2]], chunks.shape[1]))
    np.testing.assert_array_equal(minibatch.starts(steps[::3]), chunks[0])


def test_slots_that_a_block_lacks_do_not_count():
    samples = Samples(jnp.ones((STEPS, 7), bool), numbers(np.arange(7)))
    batch = Batch(samples, samples.number[:1], np.arange(7, dtype=np.int32))
    state = SimpleNamespace(key=jax.random.key_data(KEY), n=0)
    minibatches = Minibatches(epochs=1, per_epoch=3, chunk=0)
    draw_one = jax.jit(lambda step: minibatches.draw(batch, state, step)[0])
    drawn = [draw_one(step) for step in range(3)]
    assert {x.valid.shape for x in drawn} == {(STEPS, 3)}
    steps = np.concatenate([np.asarray(x.number)[np.asarray(x.valid)] for x in drawn])
    np.testing.assert_array_equal(np.sort(steps), np.sort(numbers(np.arange(7)), axis=None))


class Samples(NamedTuple):
    """Steps with their numbers."""

    valid: Any
    number: Any


def test_more_minibatches_than_cells_are_refused():
    with pytest.raises(UserError, match=r"give --algorithm.minibatches 6, or more --num-envs"):
        draw(KEY, np.arange(3, dtype=np.int32), STEPS, 8, 12, 0)
