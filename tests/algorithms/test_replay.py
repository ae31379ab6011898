"""What is remembered and drawn again, whichever way slots are divided."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from drawn_unrolls import SLOTS, STEPS, parts, unroll_of
from hypothesis import given, settings
from hypothesis import strategies as st

from srl.algorithms import replay as replays
from srl.algorithms.replay import empty, transitions, windows
from srl.algorithms.replay_sampling import draw, draw_by_priority

BLOCKS = 3
KEY = jax.random.key(7)
DISCOUNT = 0.9


insert = jax.jit(replays.insert)


def filled(updates, slots=range(SLOTS)):
    replay = empty(unroll_of(0, slots), BLOCKS)
    for n in range(updates):
        replay = insert(replay, unroll_of(n, slots), n)
    return replay


@partial(jax.jit, static_argnames=("rounds", "share", "length"))
def drawn(replay, n, slots, rounds, share, length):
    """Draws, and the observations of their windows."""
    draws = draw(KEY, replay, n, slots, rounds=rounds, share=share, starts=STEPS)
    return draws, draws.take(replay, length).observation


@partial(jax.jit, static_argnames="steps")
def transitions_of(unroll, steps):
    return transitions(windows(unroll, steps + 1), DISCOUNT)


@pytest.mark.parametrize("share", [2.0, 1.0, 0.5])
@settings(max_examples=5, deadline=None)
@given(n=st.integers(0, 5), length=st.integers(2, STEPS + 1))
def test_slots_draw_the_same_however_they_are_divided(share, n, length):
    def of_slots(slots):
        draws, window = drawn(filled(n + 1, slots), n, np.array(slots), 4, share, length)
        return np.asarray(window), np.asarray(draws.slot)

    whole, of_whole = of_slots(range(SLOTS))
    for round in range(4):
        expected = {
            (slot, *map(tuple, whole[round, :, k])) for k, slot in enumerate(of_whole[round])
        }
        found = set()
        for slots in parts(4):
            window, of = of_slots(slots)
            found |= {(s, *map(tuple, window[round, :, k])) for k, s in enumerate(of[round])}
        assert found == expected


@settings(max_examples=8, deadline=None)
@given(n=st.integers(0, 7), length=st.integers(2, STEPS + 1))
def test_a_window_is_of_one_slot_and_one_unroll_that_is_remembered(n, length):
    replay = filled(n + 1)
    draws, window = drawn(replay, n, np.arange(SLOTS), 5, 2.0, length)
    update, row, slot = np.moveaxis(np.asarray(window), -1, 0)
    assert (update == update[:, :1]).all()
    assert (slot == np.asarray(draws.slot)[:, None]).all()
    first = np.asarray(draws.row)[:, None]
    np.testing.assert_array_equal(row, np.minimum(first + np.arange(length)[:, None], STEPS))
    assert update.min() > n - BLOCKS
    assert update.max() <= n


def test_priorities_are_frequencies():
    priority = np.zeros((BLOCKS, STEPS, SLOTS), np.float32)
    priority[...] = np.random.default_rng(0).random(priority.shape)
    priority[1, 2] = 0.0
    rounds = 20_000
    draws = draw_by_priority(KEY, jnp.asarray(priority), 5, np.arange(SLOTS), rounds, 1.0)
    counts = np.zeros_like(priority)
    np.add.at(counts, tuple(np.asarray(x) for x in draws[:3]), 1)
    np.testing.assert_allclose(
        counts / rounds, priority / priority.sum((0, 1)), atol=4 * np.sqrt(0.25 / rounds)
    )
    assert not counts[priority == 0].any()


def test_small_priorities_in_a_large_replay_are_drawn_as_often_as_they_weigh():
    """In one sum of a million float32 numbers, and at one random number's steps, most are lost."""
    blocks, rows = 1 << 17, 8
    priority = np.full((blocks, rows, 1), 1e-4, np.float32)
    priority[:100] = 1000.0  # most of the mass, which comes first
    priority[100 : blocks // 2] = 0.0
    small = rows * (blocks - blocks // 2)
    expected = small * 1e-4 / (small * 1e-4 + 100 * rows * 1000.0)
    priority *= np.where(np.arange(blocks) < 100, expected / (1 - expected), 1.0)[:, None, None]
    rounds = 60_000  # half of which now draw small ones
    draws = draw_by_priority(KEY, jnp.asarray(priority), 5, np.arange(1), rounds, 1.0)
    place = np.asarray(draws.block * rows + draws.row).ravel()
    assert (priority.ravel()[place] > 0).all()
    drawn = place[place >= 100 * rows]
    np.testing.assert_allclose(len(drawn) / rounds, 0.5, atol=0.01)
    # Each of them is as likely as any other: of 16 parts, and of the places in a block.
    for number, of in ((drawn * 2 // (blocks * rows // 16) - 16, 16), (drawn % rows, rows)):
        counts = np.bincount(number, minlength=of)
        np.testing.assert_allclose(counts / len(drawn), 1 / of, rtol=0.1)
    # Draws that meet: with so many places, about 1 in 10 has been drawn before.
    pairs = len(drawn) - len(np.unique(drawn))
    np.testing.assert_allclose(pairs, len(drawn) ** 2 / (2 * small), rtol=0.15)


@settings(max_examples=8, deadline=None)
@given(n=st.integers(0, 50), steps=st.integers(1, STEPS))
def test_transitions_begin_at_every_row_and_stop_where_their_episode_or_unroll_ends(n, steps):
    unroll = unroll_of(n)
    given_back = jax.device_get(transitions_of(unroll, steps))
    ended = unroll.terminated | unroll.truncated
    for t in range(STEPS):
        for slot in range(SLOTS):
            place = t * SLOTS + slot
            expected, end = 0.0, t
            while end < min(t + steps, STEPS) and not ended[end, slot]:
                expected += DISCOUNT ** (end - t) * unroll.reward[end + 1, slot]
                end += 1
            if end == t:
                assert not given_back.valid[0, place]
                continue
            discount = 0.0 if unroll.terminated[end, slot] else DISCOUNT ** (end - t)
            np.testing.assert_allclose(given_back.reward[0, place], expected, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(given_back.discount[0, place], discount, rtol=1e-6)
            np.testing.assert_array_equal(given_back.last[0, place], unroll.observation[end, slot])
