"""Each step of episodes of any length is learned from equally often, whatever their phase."""

import jax
import numpy as np
import pytest
from drawn_unrolls import unroll_of
from gymnasium import spaces

from srl.algorithms import DQN, R2D2, SAC, TD3, DiscreteSAC
from srl.algorithms.replay import transitions, windows
from srl.algorithms.sequences import Windows
from srl.core.types import Specs, Unroll
from srl.networks import MLP

LENGTHS = np.arange(1, 301)
UNROLLS = 38  # of 8 rows or more: all of the longest episode
SLOTS = UNROLLS * len(LENGTHS)
"""Unroll k of the episodes of each length, one after the other."""
BOX = spaces.Box(-9, 9, (1,), np.float32)


def episodes(steps):
    """Unrolls of episodes of each length; observations are the rows' numbers, from 1 on.

    A row that ends an episode follows its steps. Every second length is truncated.
    """
    unroll, length = (x.ravel() for x in np.meshgrid(np.arange(UNROLLS), LENGTHS, indexing="ij"))
    place = unroll * steps + np.arange(steps + 1)[:, None]
    ended = place % (length + 1) == length
    number = 1 + np.arange((steps + 1) * SLOTS, dtype=np.float32).reshape(steps + 1, SLOTS)
    return Unroll(
        number[..., None],
        np.ones((steps + 1, SLOTS), np.float32),
        ended & (length % 2 == 0),
        ended & (length % 2 == 1),
        np.zeros((steps, SLOTS), np.int32),
        np.zeros((steps, SLOTS), np.float32),
        np.zeros((steps, SLOTS, 1), np.float32),
        np.zeros((steps, 1, 2), np.int32),
        np.arange(SLOTS, dtype=np.int32),
    )


def all_windows(instance, unroll):
    """All windows that are drawn from, with as many rows as the replay says."""
    replay = instance.replay
    rows = windows(unroll, replay.length, replay.stride, replay.burn_in)
    assert rows.begin.shape == (1, replay.windows * SLOTS)
    return rows


def assert_each_step_once(unroll, learned):
    """`learned` are the numbers of the rows that were learned from."""
    steps = unroll.observation[:-1][~(unroll.terminated | unroll.truncated)[:-1]].ravel()
    np.testing.assert_array_equal(np.sort(np.asarray(learned).ravel()), np.sort(steps))


@pytest.mark.parametrize(
    ("algorithm", "n_step"), [(DQN, 1), (DQN, 3), (DQN, 8), (SAC, 3), (TD3, 3), (DiscreteSAC, 3)]
)
def test_each_step_begins_one_transition(algorithm, n_step):
    discrete = algorithm in (DQN, DiscreteSAC)
    action = spaces.Discrete(2) if discrete else spaces.Box(-1, 1, (1,), np.float32)
    config = algorithm(unroll_length=8, n_step=n_step, warm_up=0, network=MLP(width=8))
    instance, unroll = config.bind(Specs(BOX, action, ("agent",)), 10, SLOTS), episodes(8)
    steps = transitions(all_windows(instance, unroll), 0.5)
    assert_transitions_of_each_step(unroll, steps, n_step)


@pytest.mark.parametrize(
    ("algorithm", "steps", "burn_in", "sequence", "n_step"),
    [
        (SAC, 12, 4, 4, 1), (SAC, 12, 6, 3, 3), (TD3, 10, 2, 4, 2), (DiscreteSAC, 8, 0, 8, 1),
        (SAC, 0, 16, 16, 1),
    ],
)  # fmt: skip
def test_each_step_begins_one_transition_of_sequences(algorithm, steps, burn_in, sequence, n_step):
    discrete = algorithm is DiscreteSAC
    action = spaces.Discrete(2) if discrete else spaces.Box(-1, 1, (1,), np.float32)
    config = algorithm(
        unroll_length=steps, burn_in=burn_in, sequence=sequence, n_step=n_step, discount=0.5,
        network=MLP(width=8, memory=1),
    )  # fmt: skip
    instance = config.bind(Specs(BOX, action, ("agent",)), 10, SLOTS)
    steps = instance.config.unroll_length
    unroll = episodes(steps)
    rows = jax.tree.map(lambda x: x[0], all_windows(instance, unroll))
    drawn = Windows(rows, np.ones(rows.begin.shape, bool))
    assert_transitions_of_each_step(unroll, instance.of_windows(drawn, {}, {}), n_step)
    assert instance.ratio.sequence * instance.replay.windows == pytest.approx(steps)


def assert_transitions_of_each_step(unroll, steps, n_step):
    assert_each_step_once(unroll, steps.observation[steps.valid])
    # As many as fit: fewer than n only where the episode or the unroll ends.
    first, last = (np.asarray(x[steps.valid])[:, 0] - 1 for x in (steps.observation, steps.last))
    taken = (last - first) / SLOTS
    ended = (unroll.terminated | unroll.truncated).ravel()[last.astype(int)]
    assert ((taken == n_step) | ended | (last // SLOTS == len(unroll.action))).all()
    # Rewards are 1, so what they are worth and the discount are known by the number of steps.
    discount, worth = (np.asarray(x)[steps.valid] for x in (steps.discount, steps.reward))
    np.testing.assert_allclose(worth, 2 - 2.0 ** (1 - taken))
    np.testing.assert_allclose(discount, np.where(discount > 0, 0.5**taken, 0))


@pytest.mark.parametrize(
    ("steps", "burn_in", "sequence"), [(12, 4, 4), (12, 6, 3), (10, 2, 4), (40, 10, 20), (8, 0, 8)]
)
def test_each_step_is_in_one_sequence_and_follows_its_burn_in(steps, burn_in, sequence):
    config = R2D2(
        unroll_length=steps, burn_in=burn_in, sequence=sequence, chunk=1, n_step=1,
        network=MLP(width=8, memory=1),
    )  # fmt: skip
    instance = config.bind(Specs(BOX, spaces.Discrete(2), ("agent",)), 10, SLOTS)
    unroll = episodes(steps)
    memory = unroll.observation[:-1]  # so that each row's memory names the row, too
    rows = jax.tree.map(lambda x: x[0], all_windows(instance, unroll._replace(memory=memory)))
    learned = instance.after_burn_in(rows.observation, rows)
    assert_each_step_once(unroll, learned[:-1][instance.learned_rows(rows)])
    # The burn-in has the rows before, as many as there are, from the memory at its first one.
    before = (np.asarray(learned[0]) - 1) // SLOTS
    np.testing.assert_array_equal(rows.begin, np.minimum(before[:, 0], burn_in))
    np.testing.assert_array_equal(rows.memory, learned[0] - SLOTS * rows.begin[:, None])
    np.testing.assert_array_equal(rows.memory, rows.observation[0])
    assert instance.ratio.sequence * instance.replay.windows == pytest.approx(steps)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_values_of_sequences_are_those_of_the_whole_unroll_where_memories_are_exact(cell):
    config = R2D2(
        unroll_length=10, burn_in=4, sequence=2, chunk=2, n_step=1,
        network=MLP(width=4, depth=1, memory=3, cell=cell),
    )  # fmt: skip
    seen = Specs(spaces.Box(-9, 9, (3,), np.float32), spaces.Discrete(2), ("agent",))
    unroll = unroll_of(0, steps=10)
    slots = len(unroll.slot)
    instance = config.bind(seen, 10, slots)
    state, network = instance.init(jax.random.key(0)), instance.actor.network
    start = 0.5 + 0 * network.initial_memory(slots)

    @jax.jit
    def values(unroll):
        rows = unroll.observation, start, unroll.terminated | unroll.truncated
        memory = network.policy_memories(state.params, *rows)[:10:2]  # before each chunk
        sequences = windows(unroll._replace(memory=memory), 3, stride=2, burn_in=4)
        sequences = jax.tree.map(lambda x: x[0], sequences)
        whole = instance.actor.values(state.params, {}, *rows)
        outputs = instance.sequence_outputs(state.params, state, sequences)
        return whole, instance.actor.head.values(outputs)

    whole, found = values(unroll)
    for k in range(5):
        of_sequence = found[:, k * slots : (k + 1) * slots]
        np.testing.assert_allclose(of_sequence, whole[2 * k : 2 * k + 3], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("n_step", [1, 3])
def test_an_action_that_always_comes_at_an_unrolls_end_is_learned(n_step):
    """Seven steps; only the last action is paid, if it is the one shown. Actions are random."""
    config = DQN(
        n_step=n_step, unroll_length=8, warm_up=500, replay=20_000, batch_size=64,
        samples_per_insert=8.0, learning_rate=3e-3, target_rate=0.02, network=MLP(width=32),
    )  # fmt: skip
    seen = spaces.Box(0, 1, (9,), np.float32)
    instance = config.bind(Specs(seen, spaces.Discrete(2), ("agent",)), 10, 16)
    learn, state = jax.jit(instance.learn), instance.init(jax.random.key(0))
    random = np.random.default_rng(0)

    def unroll():
        rows = np.arange(9) % 8
        shown, action = random.integers(0, 2, (9, 16)), random.integers(0, 2, (8, 16))
        reward = np.zeros((9, 16), np.float32)
        reward[7] = action[6] == shown[6]
        ended = np.repeat(rows[:, None] == 7, 16, axis=1)
        observed = np.eye(8, dtype=np.float32)[rows][:, None].repeat(16, axis=1)
        return Unroll(
            np.concatenate([observed, shown[..., None].astype(np.float32)], axis=-1),
            reward, ended, np.zeros_like(ended), action.astype(np.int32),
            np.zeros((8, 16), np.float32), (), np.zeros((8, 1, 2), np.int32),
            np.arange(16, dtype=np.int32),
        )  # fmt: skip

    replay = instance.empty_replay(unroll())
    for _ in range(60):
        state, replay, _ = learn(state, unroll(), replay)
    at_the_end = np.zeros((2, 9), np.float32)
    at_the_end[:, 6], at_the_end[1, 8] = 1, 1
    values = np.asarray(instance.actor.values(state.params, {}, at_the_end))
    np.testing.assert_allclose(values, [[1, 0], [0, 1]], atol=0.2)
