"""Memory of actors and critics that learn from sequences: that of the whole past."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from srl.algorithms import SAC, TD3, DiscreteSAC
from srl.algorithms.replay import Rows, windows
from srl.algorithms.sequences import Windows
from srl.core.types import Specs, Unroll
from srl.networks import MLP

UNROLLS, STEPS, SLOTS = 3, 8, 4
SEQUENCE, BURN_IN, N_STEP = 2, 4, 2
SEEN = spaces.Box(-9, 9, (3,), np.float32)


@cache
def made(algorithm=SAC, cell="gru"):
    """An instance, its state, and three unrolls, one after the other, as acting gives them."""
    network = MLP(width=4, depth=1, memory=3, cell=cell)
    config = algorithm(
        unroll_length=STEPS, sequence=SEQUENCE, burn_in=BURN_IN, n_step=N_STEP, warm_up=0,
        replay=STEPS * SLOTS, batch_size=8, samples_per_insert=1.0, network=network,
    )  # fmt: skip
    discrete = algorithm is DiscreteSAC
    action = spaces.Discrete(2) if discrete else spaces.Box(-1, 1, (2,), np.float32)
    instance = config.bind(Specs(SEEN, action, ("agent",)), 10, SLOTS)
    state = instance.init(jax.random.key(0))
    random = np.random.default_rng(0)
    rows = (UNROLLS * STEPS + 1, SLOTS)
    observation = random.normal(size=(*rows, 3)).astype(np.float32)
    ended = random.random(rows) < 0.1
    if discrete:
        action = random.integers(0, 2, rows).astype(np.int32)
    else:
        action = random.uniform(-1, 1, (*rows, 2)).astype(np.float32)
    whole = Unroll(
        observation, random.normal(size=rows).astype(np.float32), ended, np.zeros_like(ended),
        action, np.zeros(rows, np.float32), (), np.zeros((rows[0], 1, 2), np.int32),
        np.arange(SLOTS, dtype=np.int32),
    )  # fmt: skip
    given = {}, Rows(observation, action, ended)
    memories = {}
    for name in ("actor", "critics"):
        network = getattr(instance, name)
        start = network.initial_memory(SLOTS)
        memories[name] = jax.jit(network.memories)(state.params[name], *given, start)[:-1]
    return instance, state, whole, jax.tree.map(np.asarray, memories)


def unroll_of(n, algorithm=SAC, cell="gru"):
    """The n-th unroll, with the actor's memory before each of its chunks."""
    instance, _, whole, memories = made(algorithm, cell)
    first, last = n * STEPS, (n + 1) * STEPS
    seen = {x: getattr(whole, x)[first : last + 1] for x in whole._fields[:4]}
    done = {x: getattr(whole, x)[first:last] for x in ("action", "log_prob", "version")}
    return whole._replace(**seen, **done, memory=memories["actor"][first : last : instance.chunk])


@pytest.mark.parametrize("algorithm", [SAC, DiscreteSAC])
def test_the_memory_of_critics_is_stored_as_if_unrolls_were_one_long_sequence(algorithm):
    instance, state, _, memories = made(algorithm)
    replay = instance.empty_replay(unroll_of(0, algorithm))
    prepare = jax.jit(lambda *given: instance.prepare(*given, lambda sums: sums)[1])
    for n in range(UNROLLS):
        replay = prepare(state._replace(n=np.int32(n)), replay, unroll_of(n, algorithm))
        stored = replay.unrolls.memory
        rows = slice(n * STEPS, (n + 1) * STEPS, instance.chunk)
        for name in ("actor", "critics"):
            np.testing.assert_allclose(stored[name][0], memories[name][rows], atol=1e-6)
    again = prepare(state._replace(n=np.int32(n)), replay, unroll_of(n, algorithm))
    jax.tree.map(np.testing.assert_array_equal, again, replay)
    assert memories["critics"][:: instance.chunk].any(axis=(2, 3)).mean() > 0.5


@pytest.mark.parametrize(
    ("algorithm", "cell"), [(SAC, "gru"), (TD3, "lstm"), (DiscreteSAC, "lstm")]
)
def test_memories_before_steps_are_those_of_the_whole_past(algorithm, cell):
    instance, state, whole, memories = made(algorithm, cell)
    unroll, first = unroll_of(1, algorithm, cell), STEPS
    chunks = slice(first, first + STEPS, instance.chunk)
    unroll = unroll._replace(memory={name: x[chunks] for name, x in memories.items()})

    def taken(unroll):
        rows = windows(unroll, SEQUENCE + N_STEP, SEQUENCE, BURN_IN)
        drawn = Windows(jax.tree.map(lambda x: x[0], rows), np.ones(rows.begin.shape[1], bool))
        return instance.transitions_of(drawn, state)

    steps = jax.jit(taken)(unroll)
    row_of = {tuple(x): i for i, x in enumerate(whole.observation.reshape(-1, 3))}
    for seen, found in (
        (steps.observation, steps.memories), (steps.last, steps.last_memories)
    ):  # fmt: skip
        row, slot = np.divmod([row_of[tuple(x)] for x in np.asarray(seen)], SLOTS)
        valid = np.asarray(steps.valid)
        for name in ("actor", "critics"):
            expected = memories[name][row, slot]
            np.testing.assert_allclose(found[name][valid], expected[valid], atol=1e-5)


def test_gradients_reach_the_start_of_a_sequence_and_not_the_burn_in():
    instance, state, *_ = made()
    rows = windows(unroll_of(1), SEQUENCE + N_STEP, SEQUENCE, BURN_IN)
    rows = jax.tree.map(lambda x: x[0], rows)
    critics = instance.critics.initial_memory(rows.begin.shape[0])
    rows = rows._replace(memory={"actor": rows.memory, "critics": critics})
    rows = jax.tree.map(jnp.asarray, rows)

    @jax.jit
    @jax.grad
    def moved(observation):
        drawn = Windows(rows._replace(observation=observation), np.ones(len(rows.begin), bool))
        steps = instance.transitions_of(drawn, state)
        return steps.memory("actor").sum() + steps.memory("critics").sum()

    found = np.abs(np.asarray(moved(rows.observation))).sum(-1)
    begin, number = np.asarray(rows.begin), np.arange(len(found))[:, None]
    assert not found[number < begin].any()
    ended = np.asarray(rows.terminated | rows.truncated)
    first = begin, np.arange(len(begin))
    assert (found[first] > 0)[~ended[first]].all()  # a reset row is forgotten
