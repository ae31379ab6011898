"""Minibatches: every step is in one of each epoch, whichever slots are together."""

import jax
import numpy as np
import pytest

from srl.algorithms.minibatches import draw

STEPS, PARTS = 24, 4
KEY = jax.random.key(0)


def epoch(key, slots, length):
    """The steps of each minibatch, as numbers `slot * 1000 + step`."""
    slots = np.asarray(slots, np.int32)
    numbers = slots * 1000 + np.arange(STEPS)[:, None]
    minibatches = [draw(key, slots, STEPS, PARTS, length, n) for n in range(PARTS)]
    return [np.asarray(minibatch.steps(numbers)) for minibatch in minibatches]


@pytest.mark.parametrize("length", [1, 3, 6])
def test_every_step_is_in_one_minibatch_of_each_epoch(length):
    minibatches = epoch(KEY, range(5), length)
    shape = (length, 24 * 5 // length // PARTS)
    assert {minibatch.shape for minibatch in minibatches} == {shape if length > 1 else shape[1:]}
    expected = np.arange(5)[:, None] * 1000 + np.arange(STEPS)
    np.testing.assert_array_equal(np.sort(minibatches, axis=None), np.sort(expected, axis=None))


def test_epochs_differ():
    one, other = (epoch(jax.random.key(seed), range(5), 1) for seed in (0, 1))
    assert any((x != y).any() for x, y in zip(one, other, strict=True))


@pytest.mark.parametrize("length", [1, 3])
def test_the_minibatch_of_a_step_depends_on_its_slot_and_not_on_those_beside_it(length):
    few, many = (epoch(KEY, slots, length) for slots in ([6, 2], range(8)))
    for one, other in zip(few, many, strict=True):
        assert set(one.flat) == {step for step in other.flat if step // 1000 in (2, 6)}


def test_chunks_are_neighbouring_steps_of_one_slot_from_where_memory_is_kept():
    slots = np.arange(5, dtype=np.int32)
    minibatch = draw(KEY, slots, STEPS, PARTS, 3, 1)
    steps = np.arange(STEPS)[:, None] + 1000 * slots
    chunks = np.asarray(minibatch.steps(steps))
    np.testing.assert_array_equal(chunks - chunks[0], np.tile([[0], [1], [2]], chunks.shape[1]))
    np.testing.assert_array_equal(minibatch.starts(steps[::3]), chunks[0])
