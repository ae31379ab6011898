"""Learning does not depend on the division of slots; algorithms refuse what they cannot learn."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from drawn_unrolls import SLOTS, STEPS, parts
from drawn_unrolls import unroll_of as drawn
from gymnasium import spaces

from srl.algorithms import APPO, DQN, IMPALA, PQN, R2D2, REPPO, SAC, TD3, DiscreteSAC, Mixer
from srl.algorithms.preprocessing import bound
from srl.core.errors import UserError
from srl.core.types import Specs
from srl.networks import MLP

BLOCKS = 2
BOX = spaces.Box(-9, 9, (3,), np.float32)
BOUNDED = spaces.Box(-1, 1, (2,), np.float32)


def instances():
    """Algorithms and how many numbers their actions have; None for one choice."""
    network, box = MLP(width=8), BOX
    sizes = {"unroll_length": STEPS, "warm_up": 0, "replay": BLOCKS * STEPS * SLOTS}
    discrete = Specs(box, spaces.Discrete(2), ("agent",))
    continuous = Specs(box, spaces.Box(-2, 2, (2,), np.float32), ("agent",))
    q = DQN(network=network, priorities=0.6, n_step=2, batch_size=16, **sizes)
    sac = SAC(network=network, batch_size=16, samples_per_insert=2.0, **sizes)
    td3 = TD3(network=network, batch_size=16, samples_per_insert=2.0, **sizes)
    discrete_sac = DiscreteSAC(network=network, batch_size=16, samples_per_insert=2.0, **sizes)
    pqn = {"unroll_length": STEPS, "minibatches": 2, "chunk": 2, "epochs": 2}
    cut = {**pqn, "chunk": 0}  # whole unrolls, so that minibatches divide the slots
    memory = MLP(width=8, memory=4)
    shared = MLP(width=8, memory=4, shared=True)
    impala = IMPALA(network=memory, unroll_length=STEPS, minibatches=2)
    reppo = REPPO(network=network, unroll_length=STEPS, epochs=2, minibatches=8, atoms=5)
    sequences = {"burn_in": 2, "sequence": 2, "network": memory}
    r2d2 = R2D2(network=memory, batch_size=8, chunk=1, burn_in=1, sequence=2, n_step=2, **sizes)
    pairs, teams = replace(discrete, agents=("one", "other")), SLOTS // 2
    joint = replace(r2d2, mixer=Mixer(width=4, weights_width=4), batch_size=4)
    return {
        "R2D2, QMIX": (bound(joint, pairs, 10, teams), None),
        "PQN, QMIX": (
            bound(PQN(network=memory, mixer=joint.mixer, **cut), pairs, 10, teams),
            None,
        ),
        "DQN": (q.bind(discrete, 10, SLOTS), None),
        "C51, dueling": (replace(q, atoms=5, dueling=True).bind(discrete, 10, SLOTS), None),
        "SAC": (sac.bind(continuous, 10, SLOTS), 2),
        "SAC, distributions": (
            replace(sac, atoms=5, weight_decay=0.1).bind(continuous, 10, SLOTS),
            2,
        ),
        "TD3, REDQ": (replace(td3, critics=3).bind(continuous, 10, SLOTS), 2),
        "DiscreteSAC": (discrete_sac.bind(discrete, 10, SLOTS), None),
        "SAC with memory": (replace(sac, **sequences).bind(continuous, 10, SLOTS), 2),
        "TD3 with memory": (replace(td3, **sequences).bind(continuous, 10, SLOTS), 2),
        "DiscreteSAC with memory": (
            replace(discrete_sac, **sequences).bind(discrete, 10, SLOTS),
            None,
        ),
        "R2D2": (r2d2.bind(discrete, 10, SLOTS), None),
        "PQN": (PQN(network=network, **pqn).bind(discrete, 10, SLOTS), None),
        "REPPO": (reppo.bind(continuous, 10, SLOTS), 2),
        "PQN with memory": (PQN(network=memory, **cut).bind(discrete, 10, SLOTS), None),
        "IMPALA with memory": (impala.bind(discrete, 10, SLOTS), None),
        "APPO, shared": (APPO(network=shared, **pqn).bind(discrete, 10, SLOTS), None),
    }


REPEATED = (
    *("C51, dueling", "PQN", "PQN, QMIX", "R2D2", "SAC"),
    *("TD3 with memory", "DiscreteSAC with memory"),
)
"""What learns as another one does: with memory or without, with a mixer, with distributions."""
NAMES = [
    pytest.param(name, marks=pytest.mark.slow) if name in REPEATED else name for name in instances()
]


@pytest.mark.parametrize("name", NAMES)
def test_halves_whose_sums_are_added_learn_what_the_whole_learns(name):
    instance, actions = instances()[name]

    def learn_half(state, unroll, replay):
        return instance.learn(state, unroll, replay, lambda sums: jax.lax.psum(sums, "halves"))

    learn = jax.jit(instance.learn)
    learn_halves = jax.jit(jax.vmap(learn_half, (None, 0, 0), axis_name="halves"))

    def unroll_of(n, slots=range(SLOTS)):
        unroll = drawn(n, slots, actions=actions)
        chunks = STEPS // (instance.chunk or STEPS)
        memory = instance.initial_memory(len(unroll.slot))
        return unroll._replace(
            memory=jax.tree.map(lambda x: np.zeros((chunks, *x.shape), x.dtype), memory)
        )

    def halves_of(n):
        return jax.tree.map(lambda *x: np.stack(x), *(unroll_of(n, part) for part in parts(2)))

    whole = state = jax.jit(instance.init)(jax.random.key(0))
    replay = jax.jit(instance.empty_replay)(unroll_of(0))
    replays = jax.jit(jax.vmap(instance.empty_replay))(halves_of(0))
    for n in range(3):
        whole, replay, expected = learn(whole, unroll_of(n), replay)
        states, replays, metrics = learn_halves(state, halves_of(n), replays)
        state = jax.tree.map(lambda x: x[0], states)
    for a, b in zip(jax.tree.leaves(whole), jax.tree.leaves(states), strict=True):
        np.testing.assert_allclose(b, np.stack([a, a]), rtol=1e-4, atol=1e-6)
    for metric, value in expected.items():
        np.testing.assert_allclose(metrics[metric], [value, value], rtol=1e-3, atol=1e-5)
    joined = jax.tree.map(lambda x: jnp.concatenate(x, axis=2), replays)
    for a, b in zip(jax.tree.leaves(replay), jax.tree.leaves(joined), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["DQN", "SAC"])
def test_an_unroll_that_is_inserted_twice_is_there_once(name):
    instance, actions = instances()[name]
    state, unroll = instance.init(jax.random.key(0)), drawn(0, actions=actions)
    prepare = jax.jit(lambda *given: instance.prepare(*given, lambda sums: sums)[1])
    once = prepare(state, instance.empty_replay(unroll), unroll)
    twice = prepare(state, once, unroll)
    jax.tree.map(np.testing.assert_array_equal, once, twice)


@pytest.mark.parametrize("algorithm", [DQN, PQN])
@pytest.mark.parametrize("greedy", [True, False])
def test_a_forbidden_action_is_never_taken(algorithm, greedy):
    observation = spaces.Dict(x=BOX, action_mask=spaces.MultiBinary(4))
    specs = Specs(observation, spaces.Discrete(4), ("agent",))
    instance = algorithm(network=MLP(width=8)).bind(specs, 10, SLOTS)
    policy = instance.policy(instance.init(jax.random.key(0)))
    seen = {
        "x": np.random.default_rng(0).normal(size=(100, 3)).astype(np.float32),
        "action_mask": np.tile(np.array([0, 1, 1, 0], np.int8), (100, 1)),
    }
    if greedy:
        decision = instance.act_greedy(policy, seen, ())
    else:
        keys = jax.random.split(jax.random.key(1), 100)
        decision = instance.act(policy, seen, (), keys, np.arange(100))
        assert set(np.asarray(decision.action)) == {1, 2}  # at first all are random
    assert set(np.asarray(decision.action)) <= {1, 2}


def test_actions_of_sac_are_within_the_bounds_of_their_space():
    space = spaces.Box(np.float32([-1, 2]), np.float32([3, 2.5]))
    instance = SAC(network=MLP(width=8), warm_up=0).bind(Specs(BOX, space, ("agent",)), 10, SLOTS)
    policy = instance.policy(instance.init(jax.random.key(0)))
    keys = jax.random.split(jax.random.key(1), 1000)
    seen = np.random.default_rng(0).normal(size=(1000, 3)).astype(np.float32)
    decision = instance.act(policy, seen, (), keys, np.arange(1000))
    action = instance.env_action(np.asarray(decision.action))
    assert all(one in space for one in action)
    assert (action.max(0) - action.min(0) > 0.5 * (space.high - space.low)).all()


@pytest.mark.parametrize(
    ("algorithm", "action", "reason"),
    [
        (DQN(), BOUNDED, "needs Discrete actions"),
        (PQN(), spaces.MultiDiscrete([2, 2]), "needs Discrete actions"),
        (SAC(), spaces.Discrete(2), "draws actions within bounds"),
        (SAC(), spaces.Box(-np.inf, np.inf, (2,), np.float32), "draws actions within bounds"),
        (SAC(subset=3), BOUNDED, "subset=3 of critics=2"),
        (DQN(n_step=9), spaces.Discrete(2), "n_step=9 and unroll_length=8"),
        (REPPO(), spaces.Discrete(2), "draws actions within bounds"),
        (REPPO(network=MLP(memory=4)), BOUNDED, "has memory"),
        (REPPO(discount=1.0), BOUNDED, "give value_range"),
        (
            SAC(network=MLP(memory=4), unroll_length=8),
            BOUNDED,
            "burn_in=16, sequence=16 and unroll_length=8",
        ),
        (SAC(network=MLP(shared=True)), BOUNDED, "could share layers"),
        (PQN(network=MLP(shared=True)), spaces.Discrete(2), "could share layers"),
        (DQN(network=MLP(memory=4)), spaces.Discrete(2), "take R2D2 or PQN for discrete actions"),
        (TD3(network=MLP(memory=4), sequence=20), BOUNDED, "sequence=20 and unroll_length=32"),
        (TD3(noise=(-1.0, 0.1)), BOUNDED, r"noise=\(-1.0, 0.1\)"),
        (DiscreteSAC(), BOUNDED, "take SAC or TD3"),
        (R2D2(network=MLP()), spaces.Discrete(2), "the network has no memory"),
        (R2D2(), BOUNDED, "needs Discrete actions"),
        (R2D2(sequence=40), spaces.Discrete(2), "a burn-in and a sequence"),
        (R2D2(burn_in=5), spaces.Discrete(2), "burn_in=5, .* multiples of chunk"),
        (DQN(value_range=(1.0, 1.0)), spaces.Discrete(2), "value_range"),
        (DQN(atoms=5, mixer=Mixer()), spaces.Discrete(2), "distributions are not"),
        (PQN(mixer=Mixer("sum")), spaces.Discrete(2), "expected vdn or qmix"),
        (R2D2(mixer=Mixer(width=0)), spaces.Discrete(2), "mixer.width"),
    ],
)
def test_what_an_algorithm_cannot_learn_is_refused(algorithm, action, reason):
    with pytest.raises(UserError, match=reason):
        algorithm.bind(Specs(BOX, action, ("agent",)), 10, SLOTS)
