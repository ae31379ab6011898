"""Priorities weigh what is learned from, and become those of the newest errors."""

from dataclasses import replace
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from drawn_unrolls import SLOTS, unroll_of
from gymnasium import spaces

from srl.algorithms import DQN, R2D2
from srl.algorithms.gradient_descent import vector
from srl.algorithms.prioritized_replay import Prioritized
from srl.algorithms.replay import Draws, Replay, transitions
from srl.algorithms.uniform_replay import Sample
from srl.core.types import Specs
from srl.networks import MLP

LENGTH, BLOCKS = 8, 3
DISCRETE = Specs(spaces.Box(-9, 9, (3,), np.float32), spaces.Discrete(2), ("agent",))
SIZES = {
    "unroll_length": LENGTH, "warm_up": 0, "replay": BLOCKS * LENGTH * SLOTS, "batch_size": 16,
    "n_step": 2, "priorities": 0.6, "correction": 0.4,
}  # fmt: skip
CONFIGS = {
    "DQN": DQN(**SIZES, network=MLP(width=8), samples_per_insert=0.25),
    "R2D2": R2D2(
        **SIZES, network=MLP(width=8, memory=4), chunk=2, burn_in=2, sequence=4,
        samples_per_insert=1.0,
    ),
}  # fmt: skip
"""Settings of one gradient step an update."""


def unroll(instance, n):
    memory = np.random.default_rng(n).normal(size=(LENGTH // 2, SLOTS, 4)).astype(np.float32)
    return unroll_of(n, steps=LENGTH)._replace(memory=memory if instance.chunk else ())


def window_at(instance, unroll, row):
    """The window of rows from this one on, with those before it, by padding and slicing them."""
    length, burn_in = instance.replay.length, instance.replay.burn_in
    first = max(row - burn_in, 0)
    rows = slice(first, first + burn_in + length)
    padded = [(0, length), (0, 0)]  # the last row, again
    observation = np.pad(unroll.observation, [*padded, (0, 0)], "edge")[rows]
    action = np.pad(unroll.action, padded, "edge")[rows][:-1]
    reward, terminated, truncated = (
        np.pad(x, padded, "edge")[rows]
        for x in (unroll.reward, unroll.terminated, unroll.truncated)
    )
    truncated[LENGTH - first :] = True
    memory = unroll.memory[first // 2] if instance.chunk else ()
    begin = np.full(SLOTS, row - first)
    window = observation, reward, terminated, truncated, action, memory
    return Replay(*window, begin=begin)


def losses_of(instance, params, state, window):
    """The losses and errors of a window's samples, and which of them count."""
    if instance.chunk:
        valid = instance.learned_rows(window)
    else:
        rows = jax.tree.map(lambda x: jnp.asarray(x)[None], window)
        steps = transitions(rows, instance.config.discount)
        window = jax.tree.map(lambda x: x[0], steps)
        valid = window.valid
    losses, metrics = instance.loss(params, state, window)
    return losses, metrics["td_error"], valid


def priorities_of(instance, state):
    """The priority of each window of the last unrolls, by its errors now, [K, W, B]."""

    @jax.jit
    def of(window):
        return instance.priority(*losses_of(instance, state.params, state, window)[1:])

    starts = range(0, LENGTH, instance.replay.stride)
    unrolls = [unroll(instance, n) for n in range(BLOCKS)]
    return np.array([[of(window_at(instance, each, row)) for row in starts] for each in unrolls])


@pytest.fixture(scope="module", params=CONFIGS)
def third_update(request):
    """An algorithm in its third update: before, as it draws, and after."""
    instance = CONFIGS[request.param].bind(DISCRETE, 10, SLOTS)
    assert instance.gradient_steps == 1

    @jax.jit
    def update(state, replay, unroll):
        added = []
        total = lambda sums: added.append(sums) or sums  # noqa: E731
        prepared, looked, batch = instance.prepare(state, replay, unroll, lambda sums: sums)
        _, metrics = instance.gradient_step(prepared, batch, 0, total)
        step = added[0], metrics["priority"], batch.sample, looked.priority
        return instance.learn(state, unroll, replay), prepared, step

    state = jax.jit(instance.init)(jax.random.key(0))
    replay = instance.empty_replay(unroll(instance, 0))
    for n in range(2):
        (state, replay, _), *_ = update(state, replay, unroll(instance, n))
    (_, learned, _), prepared, step = update(state, replay, unroll(instance, 2))
    sums, priority, sample, before = step
    return SimpleNamespace(
        instance=instance,
        state=prepared,
        now=priorities_of(instance, state),
        sample=jax.tree.map(lambda x: x[0], sample),
        sums=sums,
        priority=priority,
        before=np.asarray(before),
        after=np.asarray(learned.priority),
    )


def places(sample):
    return tuple(np.asarray(x) for x in sample.draws[:3])


def test_a_drawn_window_gets_the_priority_of_its_error_and_all_others_keep_theirs(third_update):
    before, after, place = third_update.before, third_update.after, places(third_update.sample)
    expected = before.copy()
    expected[place] = third_update.now[place]
    drawn = np.zeros(before.shape, bool)
    drawn[place] = True
    assert not drawn.all()
    assert (abs(expected - before)[drawn] > 1e-4).any()
    np.testing.assert_allclose(after, expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(after[~drawn], before[~drawn])


def test_what_priorities_draw_more_often_weighs_less_in_the_loss(third_update):
    """Schaul et al., 2016, section 3.4; draws are even over slots, and by priority within each."""
    instance, state, sample = third_update.instance, third_update.state, third_update.sample
    priority, (block, row, column) = third_update.before, places(sample)
    own = priority[block, row, column]
    of_all = own / priority.sum()
    drawn_here = own / priority.sum((0, 1))[column] / SLOTS
    weight = of_all / drawn_here * (priority.size * of_all) ** -0.4
    assert np.ptp(weight) > 0.1

    @jax.jit
    @jax.value_and_grad
    def loss(params):
        losses, _, valid = losses_of(instance, params, state, sample.rows)
        return jnp.sum(jnp.where(valid, weight * losses, 0))

    expected, along = loss(state.params)
    np.testing.assert_allclose(third_update.sums.metrics["q_loss"], expected, rtol=1e-4)
    np.testing.assert_allclose(third_update.sums.gradient, vector(along), rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(
        third_update.priority, third_update.now[block, row, column], rtol=1e-4
    )


@pytest.mark.parametrize("name", CONFIGS)
def test_a_window_that_is_drawn_again_keeps_the_last_priority_that_was_noted(name):
    """Of rounds with a gradient step, slots that are learned from, and windows that hold any."""
    config = CONFIGS[name]
    config = replace(config, samples_per_insert=2.5 * config.samples_per_insert)
    instance, random = config.bind(DISCRETE, 10, SLOTS), np.random.default_rng(0)
    state = jax.jit(instance.init)(jax.random.key(0))._replace(n=jnp.int32(2))
    due = np.array([True, True, False])  # of 2.5 gradient steps an update
    np.testing.assert_array_equal(instance.ratio.due(state.n, np.arange(3)), due)
    shape = BLOCKS, instance.replay.windows, SLOTS
    priority = random.random(shape, np.float32) * (random.random(shape) < 0.8)
    block, row, column = (random.integers(0, size, (3, 24)) for size in shape)
    ready = (random.random(SLOTS) < 0.7)[column]
    notes = random.random((3, *shape), np.float32)[np.arange(3)[:, None], block, row, column]
    expected, times = priority.copy(), np.zeros(shape, int)
    for draw in np.ndindex(3, 24):
        place = block[draw], row[draw], column[draw]
        if due[draw[0]] and ready[draw] and priority[place]:
            expected[place] = notes[draw]
            times[place] += 1
    assert (times > 1).any()
    sample = Sample((), Draws(block, row, column, column), (), ready, ~ready)
    batch = SimpleNamespace(sample=sample, observations=state.observations)
    finish = jax.jit(lambda *given: instance.finish(*given[:2], batch, {"priority": given[2]})[1])
    finished = finish(state, Prioritized((), jnp.asarray(priority)), notes)
    np.testing.assert_array_equal(finished.priority, expected)
