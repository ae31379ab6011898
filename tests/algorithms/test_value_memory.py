"""The value network's memory: it goes on from unroll to unroll, as the policy's does."""

from functools import cache

import jax
import numpy as np
import pytest
from gymnasium import spaces

from srl.algorithms import APPO, IMPALA, PPO
from srl.core.types import Specs, Unroll
from srl.networks import MLP

UNROLLS, STEPS, SLOTS = 3, 4, 5
ALGORITHMS = {"PPO": PPO, "APPO": APPO, "IMPALA": IMPALA}
SPECS = Specs(spaces.Box(-9, 9, (2,), np.float32), spaces.Discrete(2), ("agent",))


@cache
def instance(name="PPO", *, shared=False):
    network = MLP(width=4, depth=1, memory=3, shared=shared)
    config = ALGORITHMS[name](network=network, unroll_length=STEPS, minibatches=1)
    return config.bind(SPECS, 10, SLOTS)


@cache
def state(name="PPO", *, shared=False):
    return instance(name, shared=shared).init(jax.random.key(0))


@cache
def prepare(name="PPO"):
    """What is remembered after an unroll, and the values' memory before its first row."""

    def prepared(replay, unroll):
        _, replay, batch = instance(name).prepare(state(name), replay, unroll, lambda sums: sums)
        return replay, batch.memory["value"][0]

    return jax.jit(prepared)


def sequence(seed=0):
    """Rows of all unrolls, one after the other: observations, and where episodes end."""
    random = np.random.default_rng(seed)
    rows = UNROLLS * STEPS + 1
    observation = random.normal(size=(rows, SLOTS, 2)).astype(np.float32)
    ended = random.random((rows, SLOTS)) < 0.2
    ended[STEPS, 0] = ended[2 * STEPS - 1, 1] = True  # the last row of an unroll, the one before
    ended[STEPS - 1, 2] = False
    return observation, ended


def unroll_of(n, slots=slice(None), seed=0):
    """The n-th unroll of the sequence; its last row is the first of the next one."""
    own = slice(n * STEPS, (n + 1) * STEPS + 1)
    observation, ended = (x[own, slots] for x in sequence(seed))
    columns = np.arange(SLOTS, dtype=np.int32)[slots]
    steps = STEPS, len(columns)
    return Unroll(
        observation=observation,
        reward=np.zeros(ended.shape, np.float32),
        terminated=ended,
        truncated=np.zeros_like(ended),
        action=np.zeros(steps, np.int32),
        log_prob=np.zeros(steps, np.float32),
        memory=np.full((1, len(columns), 3), n, np.float32),  # zeros before the first row of all
        version=np.zeros((STEPS, 1, 2), np.int32),
        slot=columns,
    )


def memories(name="PPO"):
    """The value network's memory before each row of the whole sequence, [rows, SLOTS, units]."""
    observation, ended = sequence()
    actor, start = instance(name).actor, np.zeros((SLOTS, 3), np.float32)
    inputs = state(name).observations, observation, start, ended
    return np.asarray(actor.values(state(name).params, *inputs)[1])


@pytest.mark.parametrize("name", ALGORITHMS)
def test_unrolls_are_valued_as_one_long_sequence(name):
    replay, expected = instance(name).empty_replay(unroll_of(0)), memories(name)
    for n in range(UNROLLS):
        replay, before = prepare(name)(replay, unroll_of(n))
        np.testing.assert_allclose(before, expected[n * STEPS], atol=1e-6)
    assert np.any(expected[STEPS::STEPS], axis=(0, 2)).all()
    assert not expected[STEPS + 1, 0].any()  # the episode ended with the row before


def test_an_unroll_that_is_learned_from_twice_is_valued_twice_alike():
    replay, _ = prepare()(instance().empty_replay(unroll_of(0)), unroll_of(0))
    once, before = prepare()(replay, unroll_of(1))
    twice, again = prepare()(once, unroll_of(1))
    np.testing.assert_array_equal(before, again)
    jax.tree.map(np.testing.assert_array_equal, once, twice)


def test_rows_that_look_alike_are_told_apart_by_the_policys_memory():
    replay, _ = prepare()(instance().empty_replay(unroll_of(0)), unroll_of(0))
    alike = unroll_of(1)
    alike.observation[-1] = alike.observation[0]
    once, before = prepare()(replay, alike)
    _, again = prepare()(once, alike)
    np.testing.assert_array_equal(before, again)
    anew = alike._replace(memory=np.zeros_like(alike.memory))  # as after a reset
    assert not np.asarray(prepare()(once, anew)[1]).any()


def test_a_slot_of_which_an_unroll_is_missing_remembers_nothing():
    replay, _ = prepare()(instance().empty_replay(unroll_of(0)), unroll_of(0))
    following, later = unroll_of(1), unroll_of(2)
    mixed = jax.tree.map(np.copy, following)
    mixed.observation[:, 2], mixed.terminated[:, 2] = (
        later.observation[:, 2],
        later.terminated[:, 2],
    )
    _, before = prepare()(replay, mixed)
    _, expected = prepare()(replay, following)
    others = [0, 1, 3, 4]
    np.testing.assert_array_equal(np.asarray(before)[others], np.asarray(expected)[others])
    assert not np.asarray(before)[2].any()
    assert np.asarray(expected)[2].any()


def test_learners_that_divide_the_slots_carry_what_one_carries():
    """The slots are the third axis, by which replays are divided and saved."""
    whole, _ = prepare()(instance().empty_replay(unroll_of(0)), unroll_of(0))
    for slots in (slice(0, 2), slice(2, 5)):
        unroll = unroll_of(0, slots)
        part, _ = prepare()(instance().empty_replay(unroll), unroll)
        jax.tree.map(
            lambda x, y, slots=slots: np.testing.assert_allclose(x, y[:, :, slots], atol=1e-6),
            part, whole,
        )  # fmt: skip


def test_nothing_is_carried_where_layers_are_shared_or_nothing_is_remembered():
    assert instance(shared=True).empty_replay(unroll_of(0)) == ()
    forgetful = PPO(network=MLP(width=4), unroll_length=STEPS).bind(SPECS, 10, SLOTS)
    assert forgetful.empty_replay(unroll_of(0)) == ()
