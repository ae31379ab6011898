"""Formulas of what learns from a replay; and what it is learned from is run, or refused."""

import itertools
from dataclasses import replace
from fractions import Fraction
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from drawn_unrolls import SLOTS, STEPS, N, transitions_of, unroll_of
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from srl.algorithms import (
    APPO,
    DQN,
    IMPALA,
    PPO,
    PQN,
    R2D2,
    REPPO,
    SAC,
    TD3,
    Algorithm,
    DiscreteSAC,
)
from srl.algorithms.normalization import Statistics
from srl.algorithms.r2d2 import rescaled, unrescaled
from srl.algorithms.replay import windows
from srl.core.errors import UserError
from srl.core.types import Specs
from srl.networks import CNN, MLP

BOX = spaces.Box(-9, 9, (3,), np.float32)
IMAGE = spaces.Box(0, 255, (6, 6, 1), np.uint8)
DISCRETE = Specs(BOX, spaces.Discrete(2), ("agent",))
CONTINUOUS = Specs(BOX, spaces.Box(-2, 2, (2,), np.float32), ("agent",))
SIZES = {"unroll_length": STEPS, "warm_up": 0, "replay": 2 * STEPS * SLOTS, "batch_size": 8}
SMALL = {**SIZES, "network": MLP(width=8)}
SEQUENCES = {"chunk": 1, "burn_in": 1, "sequence": 2, "n_step": 2, "samples_per_insert": 1.0}
KEY = jax.random.key(0)


@given(st.floats(-1e4, 1e4, width=32))
def test_rescaled_values_are_scaled_back(x):
    np.testing.assert_allclose(unrescaled(rescaled(jnp.float32(x))), x, rtol=2e-6, atol=1e-30)


def test_rescaling_keeps_the_order_and_shortens_large_values():
    x = np.linspace(-1000, 1000, 2001, dtype=np.float32)
    scaled = np.asarray(rescaled(x))
    assert (np.diff(scaled) > 0).all()
    assert abs(scaled).max() < 35
    np.testing.assert_allclose(scaled, -scaled[::-1], rtol=1e-5)


@pytest.mark.parametrize("algorithm", [DQN, PQN])
def test_slots_draw_shares_of_random_actions_of_their_own(algorithm):
    config = algorithm(epsilon_start=0.4, epsilon_end=0.4, epsilon_spread=7.0)
    instance = config.bind(DISCRETE, 10, slots=5)
    state = instance.init(KEY)
    expected = [0.4, 0.4 ** (1 + 7 / 4), 0.4 ** (1 + 14 / 4), 0.4 ** (1 + 21 / 4), 0.4**8]
    np.testing.assert_allclose(instance.policy(state).params["epsilon"], expected, rtol=1e-5)


def test_a_slot_explores_by_its_own_share_wherever_it_is():
    instance = DQN(network=MLP(width=8), epsilon_spread=1.0).bind(DISCRETE, 10, slots=2)
    policy = instance.policy(instance.init(KEY))
    policy = policy._replace(params={**policy.params, "epsilon": jnp.array([1.0, 0.0])})
    seen = np.zeros((400, 3), np.float32)
    best = int(instance.act_greedy(policy, seen[:1], ()).action[0])
    keys = jax.random.split(KEY, 400)
    taken = np.asarray(instance.act(policy, seen, (), keys, np.arange(400) % 2).action)
    assert (taken[1::2] == best).all()
    assert 0.35 < (taken[::2] == best).mean() < 0.65


def test_a_target_is_the_least_of_a_random_subset_of_the_critics():
    values = jnp.asarray(np.random.default_rng(0).normal(size=(4, 6)))
    pair = SAC(critics=4, subset=2, **SMALL).bind(CONTINUOUS, 10, SLOTS)
    pairs = {(i, j): np.minimum(values[i], values[j]) for i in range(4) for j in range(i)}
    found = set()
    for seed in range(60):
        least = pair.critics.least(values[..., None], jax.random.key(seed))[..., 0]
        found |= {name for name, expected in pairs.items() if np.array_equal(least, expected)}
    assert found == set(pairs)
    both = SAC(**SMALL).bind(CONTINUOUS, 10, SLOTS)
    least = both.critics.least(values[:2, :, None], KEY)[..., 0]
    np.testing.assert_array_equal(least, values[:2].min(0))


def test_the_noise_of_targets_is_bounded_and_so_are_their_actions():
    instance = TD3(target_noise=0.2, noise_clip=0.3, **SMALL).bind(CONTINUOUS, 10, SLOTS)
    outputs = np.linspace(-3, 3, 50, dtype=np.float32)[:, None]
    for noise in (-10.0, -0.5, 0.0, 0.5, 10.0):
        action = np.asarray(instance.smoothed(outputs, noise))
        expected = np.tanh(outputs) + np.clip(0.2 * noise, -0.3, 0.3)
        np.testing.assert_allclose(action, expected.clip(-1, 1), rtol=1e-5, atol=1e-6)


def test_slots_of_td3_explore_with_a_noise_of_their_own():
    instance = TD3(noise=(0.0, 0.4), **SMALL).bind(CONTINUOUS, 10, slots=3)
    policy = instance.policy(instance.init(KEY))
    seen, keys = np.zeros((600, 3), np.float32), jax.random.split(KEY, 600)
    middle = np.asarray(instance.act_greedy(policy, seen[:1], ()).action)
    action = np.asarray(instance.act(policy, seen, (), keys, np.arange(600) % 3).action)
    found = [(action[slot::3] - middle).std() for slot in range(3)]
    np.testing.assert_allclose(found, [0, 0.2, 0.4], atol=0.04)


def leaves_alike(a, b):
    return all(map(np.array_equal, jax.tree.leaves(a), jax.tree.leaves(b)))


def begun(instance, state, unroll):
    """The replay with one unroll, its batch, and a compiled gradient step."""
    prepare = jax.jit(partial(instance.prepare, total=alone))
    _, replay, batch = prepare(state, instance.empty_replay(unroll), unroll)
    return replay, batch, jax.jit(lambda s, b, n: instance.gradient_step(s, b, n, alone)[0])


def alone(sums):
    return sums


def test_the_network_is_copied_whole_at_every_third_gradient_step():
    instance = DQN(**SMALL, target_rate=1.0, target_period=3).bind(DISCRETE, 10, SLOTS)
    state, unroll = instance.init(KEY), unroll_of(0)
    _, batch, step = begun(instance, state, unroll)
    assert instance.gradient_steps > 4
    for number in range(instance.gradient_steps):
        before, state = state, step(state, batch, number)
        assert not leaves_alike(before.params, state.params)
        copied = number % 3 == 0
        assert leaves_alike(state.params if copied else before.targets, state.targets)


@pytest.mark.parametrize("period", [1, 3])
def test_the_actor_of_td3_learns_in_every_second_gradient_step(period):
    instance = TD3(delay=2, target_period=period, **SMALL).bind(CONTINUOUS, 10, SLOTS)
    state, unroll = instance.init(KEY), unroll_of(0, actions=2)
    _, batch, step = begun(instance, state, unroll)

    for round in range(8):
        before, state = state, step(state, batch, round)
        assert not leaves_alike(before.params["critics"], state.params["critics"])
        assert leaves_alike(before.params["actor"], state.params["actor"]) == (round % 2 != 0)
        assert leaves_alike(before.targets, state.targets) == (round % (2 * period) != 0)


def test_a_burn_in_moves_the_memory_and_is_not_learned_from():
    network = MLP(width=8, memory=4)
    burnt = R2D2(**{**SIZES, **SEQUENCES, "network": network}).bind(DISCRETE, 10, SLOTS)
    plain = R2D2(**{**SIZES, **SEQUENCES, "network": network, "burn_in": 0})
    plain = plain.bind(DISCRETE, 10, SLOTS)
    state = burnt.init(KEY)
    memory = np.random.default_rng(0).normal(size=(STEPS, SLOTS, 4)).astype(np.float32)
    unroll = unroll_of(0)._replace(memory=memory)
    rows, later = (
        jax.tree.map(lambda x: x[0], windows(unroll, x.length, x.stride, x.burn_in))
        for x in (burnt.replay, plain.replay)
    )
    # Of the sequences from rows 0 and 2 on, the second has a row of burn-in, which is row 1.
    seen, ended = (x[1:2] for x in (unroll.observation, unroll.terminated | unroll.truncated))
    moved = burnt.actor.network.policy_memories(state.params, seen, memory[1], ended)[1]
    later = later._replace(memory=jnp.concatenate([memory[0], moved]))

    def learned(instance, rows):
        loss = lambda params, rows: jnp.sum(instance.loss(params, state, rows)[0])  # noqa: E731
        return jax.jit(jax.value_and_grad(loss))(state.params, rows)

    for a, b in zip(
        jax.tree.leaves(learned(burnt, rows)), jax.tree.leaves(learned(plain, later)), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", [DQN, R2D2, SAC, TD3])
def test_stored_observations_are_raw_and_are_standardised_when_they_are_learned_from(kind):
    memory = {**SEQUENCES, "network": MLP(width=8, memory=4)} if kind is R2D2 else {}
    specs, actions = (CONTINUOUS, 2) if kind in (SAC, TD3) else (DISCRETE, None)
    config = kind(**{**SMALL, "samples_per_insert": 1.0, **memory})
    plain = config.bind(specs, 10, SLOTS)
    running = replace(config, normalize_observations=True).bind(specs, 10, SLOTS)
    mean, deviation = np.float32([1, -2, 3]), np.float32([0.5, 4, 2])
    statistics = {"observation": Statistics(jnp.float32(9), mean, jnp.square(deviation))}
    steps = transitions_of(np.random.default_rng(0), actions)
    if kind is R2D2:
        unroll = unroll_of(0)._replace(memory=jnp.ones((STEPS, SLOTS, 4)))
        rows = windows(unroll, plain.replay.length)
        steps = jax.tree.map(lambda x: x[0], rows)
    raw = {"observation": steps.observation * deviation + mean}
    if kind is not R2D2:
        raw["last"] = steps.last * deviation + mean
    state = plain.init(KEY)

    def loss(instance, state, steps):
        if kind in (DQN, R2D2):
            return instance.loss(state.params, state, steps)[0]
        keys = jax.random.split(KEY) if kind is SAC else KEY
        slot = np.arange(N, dtype=np.int32)
        return instance.critic_loss(state.params["critics"], state, steps, keys, slot)[0]

    expected = loss(plain, state, steps)
    found = loss(running, state._replace(observations=statistics), steps._replace(**raw))
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)


def test_a_replay_holds_raw_observations_and_their_statistics_follow():
    config = DQN(**SMALL, samples_per_insert=1.0, normalize_observations=True)
    instance, unroll = config.bind(DISCRETE, 10, SLOTS), unroll_of(1)
    state = instance.init(KEY)
    inserted = instance.prepare(state, instance.empty_replay(unroll), unroll, lambda sums: sums)
    _, replay, batch = inserted
    np.testing.assert_array_equal(replay.observation[0], unroll.observation)
    valid = ~(unroll.terminated | unroll.truncated)[:-1]
    seen = unroll.observation[:-1][valid]
    np.testing.assert_allclose(batch.observations["observation"].mean, seen.mean(0), rtol=1e-4)


def test_priorities_of_sequences_mix_the_largest_and_the_mean_error():
    config = R2D2(**SIZES, **SEQUENCES, largest=0.75, priorities=1.0)
    instance = config.bind(DISCRETE, 10, SLOTS)
    error = np.float32([[1, 5, 9], [-3, 100, 9]])
    valid = np.array([[True, True, False], [True, False, False]])
    found = instance.priority(error, valid)
    np.testing.assert_allclose(found, [0.75 * 3 + 0.25 * 2 + 1e-3, 5 + 1e-3, 0], rtol=1e-5)


def test_the_expectation_of_discrete_sac_is_over_what_is_allowed():
    seen = spaces.Dict(x=BOX, action_mask=spaces.MultiBinary(3))
    specs = Specs(seen, spaces.Discrete(3), ("agent",))
    instance = DiscreteSAC(**SMALL).bind(specs, 10, SLOTS)
    params = instance.init(KEY).params
    observation = {
        "x": np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32),
        "action_mask": np.tile(np.array([1, 0, 0], np.int8), (5, 1)),
    }
    choice = instance.actor.choice(params["actor"], {}, observation)
    values = instance.critics.values(params["critics"], {}, observation)[0]
    value = instance.expected(choice, values)
    np.testing.assert_allclose(value, values[:, 0], rtol=1e-6)
    entropy = instance.entropy(choice, observation)
    np.testing.assert_allclose(entropy, 0, atol=1e-6)
    loss, _ = instance.alpha_loss(jnp.float32(2), entropy, observation)  # the target is 0, too
    np.testing.assert_allclose(loss, 0, atol=1e-6)


@pytest.mark.parametrize("slots", [1, 6, 8, 48, 64, 640])
@pytest.mark.parametrize(
    "config",
    [
        DQN(n_step=1, warm_up=0),
        DQN(samples_per_insert=0.3, warm_up=0),
        SAC(batch_size=100, samples_per_insert=13.7, warm_up=0),
        SAC(batch_size=100, samples_per_insert=4.0, warm_up=0, network=MLP(memory=4)),
        R2D2(samples_per_insert=2.0, warm_up=0),
    ],
    ids=lambda config: f"{type(config).__name__}-{config.samples_per_insert}",
)
def test_each_step_is_learned_from_as_often_as_is_asked_whatever_a_batch_is_rounded_to(
    config, slots
):
    specs = CONTINUOUS if isinstance(config, SAC) else DISCRETE
    instance = config.bind(specs, 10, slots)
    n = np.arange(4096)
    ratio = instance.ratio
    due = ratio.due(n[:, None], np.arange(instance.gradient_steps))
    taken = np.sum(np.asarray(due), dtype=int)
    inserted = len(n) * slots * instance.config.unroll_length
    # The gradient steps of so many updates may differ by one; their mean may be rounded, too.
    one = ratio.draws * ratio.sequence / inserted
    learned = taken * one
    np.testing.assert_allclose(learned, config.samples_per_insert, rtol=1e-3, atol=2 * one)
    assert ratio.steps_before(len(n)) == taken


def test_a_round_without_a_gradient_step_changes_nothing():
    instance = DQN(**SMALL, samples_per_insert=0.5, priorities=1.0).bind(DISCRETE, 10, SLOTS)
    assert instance.ratio.rate == Fraction(2)
    instance = DQN(**SMALL, samples_per_insert=0.125, priorities=1.0).bind(DISCRETE, 10, SLOTS)
    assert instance.ratio.rate == Fraction(1, 2)
    state, replay = instance.init(KEY), instance.empty_replay(unroll_of(0))
    learn, states = jax.jit(instance.learn), [state]
    for n in range(4):
        state, replay, _ = learn(state, unroll_of(n), replay)
        states.append(state)
    kept = [leaves_alike(a.params, b.params) for a, b in itertools.pairwise(states)]
    assert kept == [True, False, True, False]
    assert (np.asarray(replay.priority) > 0).any()


def test_without_priorities_all_steps_are_drawn_as_often():
    config = DQN(**{**SMALL, "n_step": 2, "samples_per_insert": 64.0, "batch_size": 64})
    instance = config.bind(DISCRETE, 10, SLOTS)
    state, unrolls = instance.init(KEY), instance.empty_replay(unroll_of(0))
    for n in range(2):
        _, unrolls, batch = instance.prepare(state._replace(n=n), unrolls, unroll_of(n), alone)
    counts = np.zeros((2, STEPS, SLOTS))
    np.add.at(counts, tuple(np.asarray(x) for x in batch.sample.draws[:3]), 1)
    np.testing.assert_allclose(counts / counts.sum(), 1 / counts.size, atol=0.01)
    assert (np.asarray(batch.sample.weight) == 1).all()


def test_a_lost_replay_is_filled_as_in_the_beginning_before_learning_goes_on():
    settings = {**SMALL, "warm_up": 3 * STEPS * SLOTS, "replay": 8 * STEPS * SLOTS}
    for algorithm in (
        DQN(**settings, samples_per_insert=1.0),
        SAC(**settings, samples_per_insert=1.0),
    ):
        continuous = isinstance(algorithm, SAC)
        instance = algorithm.bind(CONTINUOUS if continuous else DISCRETE, 100, SLOTS)
        unroll = lambda n, c=continuous: unroll_of(n, actions=2 if c else None)  # noqa: E731
        learn, state = jax.jit(instance.learn), instance.init(KEY)
        for begin in (0, 10):
            state, replay = state._replace(n=jnp.int32(begin)), instance.empty_replay(unroll(0))
            changed = []
            for n in range(begin, begin + 4):
                before = jax.tree.leaves(state.params)
                state, replay, _ = learn(state, unroll(n), replay)
                after = jax.tree.leaves(state.params)
                changed.append(not all(map(np.array_equal, before, after)))
            assert changed == [False, False, True, True]


@pytest.mark.parametrize("algorithm", [SAC, TD3])
@pytest.mark.parametrize(("warm_up", "unrolls"), [(0, 0), (1, 1), (16, 1), (32, 2), (33, 3)])
def test_actions_are_drawn_evenly_in_the_steps_of_warm_up(algorithm, warm_up, unrolls):
    """In the unroll of update n acts the policy of n updates."""
    config = algorithm(**{**SMALL, "warm_up": warm_up})
    instance = config.bind(CONTINUOUS, 10, slots=4)
    state = instance.init(KEY)
    acts = [bool(instance.policy(state._replace(n=n)).params["acts"]) for n in range(6)]
    assert acts == [n >= unrolls for n in range(6)]


Q_LEARNING = [
    PQN(network=MLP(width=8), unroll_length=STEPS, minibatches=1, epochs=1),
    DQN(**SMALL, n_step=1, samples_per_insert=1.0),
    DQN(**SMALL, n_step=1, samples_per_insert=1.0, atoms=5),
    R2D2(**{**SIZES, **SEQUENCES, "network": MLP(width=8, memory=4)}),
    DiscreteSAC(**SMALL, samples_per_insert=1.0),
]


@pytest.mark.parametrize("algorithm", Q_LEARNING, ids=lambda x: type(x).__name__)
def test_a_last_observation_that_allows_no_action_is_worth_nothing(algorithm):
    observed = spaces.Dict(x=BOX, action_mask=spaces.MultiBinary(2))
    instance = algorithm.bind(Specs(observed, spaces.Discrete(2), ("agent",)), 10, SLOTS)
    unroll = unroll_of(0)
    truncated = np.zeros(unroll.reward.shape, bool)
    truncated[2] = True
    mask = np.where(truncated[..., None], 0, 1).repeat(2, axis=-1).astype(np.int8)
    memory = np.zeros((STEPS, SLOTS, 4), np.float32) if instance.chunk else ()
    unroll = unroll._replace(
        observation={"x": unroll.observation, "action_mask": mask},
        terminated=np.zeros_like(truncated),
        truncated=truncated,
        memory=memory,
    )
    state, replay = instance.init(KEY), instance.empty_replay(unroll)
    state, replay, metrics = jax.jit(instance.learn)(state, unroll, replay)
    for x in jax.tree.leaves((state, metrics)):
        assert np.abs(np.asarray(x, np.float64)).max(initial=0) < 2**33


def test_what_allows_no_action_has_a_value_but_no_entropy_in_discrete_sac():
    observed = spaces.Dict(x=BOX, action_mask=spaces.MultiBinary(2))
    specs = Specs(observed, spaces.Discrete(2), ("agent",))
    instance = DiscreteSAC(network=MLP(width=8, depth=1)).bind(specs, 10, SLOTS)
    state = instance.init(KEY)
    mask = np.array([[0, 0], [1, 1], [0, 1]], np.int8)
    seen = {"x": np.ones((3, *BOX.shape), np.float32), "action_mask": mask}
    choice = instance.actor.choice(state.params["actor"], state.observations, seen)
    values = instance.critics.values(state.params["critics"], state.observations, seen)[0]
    value = np.asarray(instance.expected(choice, values))
    entropy = np.asarray(instance.entropy(choice, seen))
    assert value[0] == pytest.approx(float(values[0].mean()), rel=1e-5)
    assert value[2] == pytest.approx(float(values[2, 1]), rel=1e-5)
    np.testing.assert_allclose(entropy, [0, np.log(2), 0], atol=0.05)


def test_the_defaults_of_pqn_suit_networks_with_memory():
    for network, chunk in (({}, 0), ({"network": MLP(memory=4)}, 0), ({}, 7)):
        PQN(**network, chunk=chunk).bind(DISCRETE, 10, SLOTS)
    with pytest.raises(UserError, match="unroll-length a multiple of 7"):
        PQN(chunk=7, network=MLP(memory=4)).validate()


PIXELS = CNN(filters=(4,), kernels=(3,), strides=(2,), width=8)
SEEN = {"x": BOX, "image": IMAGE}
MASKED = {**SEEN, "action_mask": spaces.MultiBinary(2)}


@pytest.mark.parametrize(
    ("algorithm", "observed", "actions"),
    [
        (DQN(network=PIXELS, n_step=2, priorities=0.6, **SIZES), MASKED, None),
        (DiscreteSAC(network=PIXELS, samples_per_insert=1.0, **SIZES), MASKED, None),
        (
            R2D2(network=CNN(**{**vars(PIXELS), "memory": 4}), **SIZES, **SEQUENCES),
            MASKED,
            None,
        ),
        (SAC(network=PIXELS, samples_per_insert=1.0, **SIZES), SEEN, 2),
        (TD3(network=PIXELS, samples_per_insert=1.0, **SIZES), SEEN, 2),
    ],
    ids=lambda x: type(x).__name__ if isinstance(x, Algorithm) else "",
)
def test_dicts_with_images_and_masks_are_learned_from(algorithm, observed, actions):
    action = spaces.Box(-1, 1, (actions,), np.float32) if actions else spaces.Discrete(2)
    instance = algorithm.bind(Specs(spaces.Dict(observed), action, ("agent",)), 10, SLOTS)
    unroll = unroll_of(0, actions=actions)
    random = np.random.default_rng(0)
    rows = unroll.reward.shape
    observation = {
        "x": unroll.observation,
        "image": random.integers(0, 256, (*rows, *IMAGE.shape), dtype=np.uint8),
        "action_mask": np.ones((*rows, 2), np.int8),
    }
    memory = np.zeros((STEPS, SLOTS, 4), np.float32) if instance.chunk else ()
    unroll = unroll._replace(observation={k: observation[k] for k in observed}, memory=memory)
    state, replay = instance.init(KEY), instance.empty_replay(unroll)
    following, replay, metrics = jax.jit(instance.learn)(state, unroll, replay)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves((following, metrics)))
    assert metrics["grad_norm"] > 0
    remembered = getattr(replay, "unrolls", replay)
    assert remembered.observation["image"].dtype == np.uint8


@pytest.mark.parametrize(
    "algorithm", [SAC(), TD3(), REPPO(), PPO(), APPO(), IMPALA()], ids=lambda x: type(x).__name__
)
def test_masks_of_numbers_are_refused_outside_of_mixtures(algorithm):
    space = spaces.Dict(x=BOX, action_mask=spaces.MultiBinary(2))
    specs = Specs(space, spaces.Box(-1, 1, (2,), np.float32), ("agent",))
    with pytest.raises(UserError, match="an action_mask needs Discrete or MultiDiscrete actions"):
        algorithm.bind(specs, 10, SLOTS).init(KEY)
    mixed = replace(specs, tasks=("a",), task_of=(0,))
    assert algorithm.bind(mixed, 10, SLOTS).actor
