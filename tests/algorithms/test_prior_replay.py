"""A share of each draw is of prior data, windows get goals that were reached, and mirror images."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from drawn_unrolls import SLOTS, STEPS, unroll_of
from gymnasium import spaces

from srl.algorithms import DQN, PPO, R2D2, SAC, Hindsight, Mirror
from srl.algorithms.minibatches import Batch
from srl.algorithms.ppo import Samples
from srl.algorithms.prior_replay import WithPrior
from srl.core.errors import UserError
from srl.core.types import Specs
from srl.networks import MLP

BOX = spaces.Box(-9, 9, (3,), np.float32)
DISCRETE = Specs(BOX, spaces.Discrete(2), ("agent",))
CONTINUOUS = Specs(BOX, spaces.Box(-2, 2, (2,), np.float32), ("agent",))
SIZES = {"unroll_length": STEPS, "warm_up": 0, "replay": 2 * STEPS * SLOTS}
SMALL = {**SIZES, "network": MLP(width=8), "samples_per_insert": 8.0}
KEY = jax.random.key(3)
SWAP = Mirror(lambda x: x * jnp.array([1.0, -1.0, -1.0]), lambda a: 1 - a)
PAST = 1000  # the first number of the updates that prior data name


def prior_of(steps=3, blocks=2, **of):
    """Blocks of unrolls whose observations name updates from PAST on."""
    unrolls = [unroll_of(PAST + n, steps=steps, **of) for n in range(blocks)]
    replay = DQN(**SMALL).bind(DISCRETE, 10, SLOTS).empty_replay(unrolls[0])
    fields = ("observation", "reward", "terminated", "truncated", "action")
    stacked = {name: np.stack([getattr(x, name) for x in unrolls]) for name in fields}
    return replay._replace(**stacked, update=())


def drawn(instance, unrolls, prior=None):
    """What is drawn after these unrolls, and the replay that it is drawn from."""
    priority = lambda rows: jnp.ones(rows.reward.shape[2])  # noqa: E731

    @jax.jit
    def draw(unrolls, prior):
        replay = instance.empty_replay(unrolls[0])
        replay = replay if prior is None else WithPrior(replay, prior)
        for number, unroll in enumerate(unrolls):
            replay = instance.replay.insert(replay, unroll, number, priority)
        last = len(unrolls) - 1, unrolls[0].slot, lambda x: x
        return instance.replay.sample(KEY, replay, *last), replay

    return draw(unrolls, prior)


def sampled(instance, n, slots=range(SLOTS)):
    """What is drawn for update n, of a replay and of prior data."""
    prior = jax.tree.map(lambda x: x[:, :, np.asarray(slots)], prior_of())
    return drawn(instance, [unroll_of(number, slots) for number in range(n + 1)], prior)


@pytest.mark.parametrize(("batch", "share"), [(2, 0.5), (8, 0.25), (64, 0.0), (64, 0.5), (64, 1.0)])
def test_the_declared_share_of_each_slots_draws_is_of_prior_data(batch, share):
    dqn = DQN(**SMALL, batch_size=batch, prior="runs", prior_share=share)
    sample, _ = sampled(dqn.bind(DISCRETE, 10, SLOTS), 7)
    update = np.asarray(sample.rows.observation)[..., 0]
    assert (update == update[:, :1]).all()  # of one unroll
    past = update[:, 0] >= PAST
    np.testing.assert_array_equal(past, sample.prior)
    slot = np.asarray(sample.draws.slot)
    for own in range(SLOTS):
        drawn = past[slot == own]
        assert abs(drawn.sum() - share * len(drawn)) <= 1
    assert (np.asarray(sample.rows.observation)[..., 2] == slot[:, None]).all()
    counts = past.sum(axis=1)  # in every gradient step about as many
    assert abs(counts - share * past.shape[1]).max() <= 2


@pytest.mark.parametrize("batch", [4, 16])
def test_what_is_drawn_of_prior_data_does_not_depend_on_the_division_of_slots(batch):
    dqn = DQN(**SMALL, batch_size=batch, prior="runs", mirror=SWAP)
    instance = dqn.bind(DISCRETE, 10, SLOTS)
    (whole, _), found = sampled(instance, 2), []
    for half in (range(SLOTS // 2), range(SLOTS // 2, SLOTS)):
        sample, _ = sampled(instance, 2, half)
        found.append(sample)
    for step in range(instance.gradient_steps):
        rows = lambda x, step=step: {  # noqa: E731
            (int(s), *map(float, x.rows.observation[step, :, k].ravel()), bool(x.prior[step, k]))
            for k, s in enumerate(np.asarray(x.draws.slot[step]))
        }
        assert rows(whole) == rows(found[0]) | rows(found[1])


def test_prior_data_stay_as_they_are_and_have_no_priorities():
    dqn = DQN(**SMALL, batch_size=16, priorities=0.5, prior="runs", prior_share=1.0)
    instance = dqn.bind(DISCRETE, 10, SLOTS)
    sample, replay = sampled(instance, 3)
    new = jnp.full(sample.prior.shape, 7.0)
    due = np.ones(len(new), bool)
    after = instance.replay.update_priorities(replay, sample, new, due)
    for a, b in zip(jax.tree.leaves(replay), jax.tree.leaves(after), strict=True):
        np.testing.assert_array_equal(a, b)
    assert (np.asarray(sample.weight) == 1).all()


def test_sequences_of_prior_data_begin_with_an_empty_memory():
    sizes = {"chunk": 1, "burn_in": 1, "sequence": 2, "n_step": 2, "batch_size": 8}
    sizes |= {"priorities": 0.0, "samples_per_insert": 1.0}
    r2d2 = R2D2(network=MLP(width=8, memory=4), **sizes, **SIZES, prior="runs", prior_share=0.5)
    instance = r2d2.bind(DISCRETE, 10, SLOTS)
    memory = jax.tree.map(lambda x: np.ones((STEPS, *x.shape), x.dtype), instance.initial_memory(8))
    unroll = unroll_of(0)._replace(memory=memory)
    sample, _ = drawn(instance, [unroll], prior_of())
    prior = np.asarray(sample.prior)
    assert {*prior.ravel()} == {False, True}
    for x in jax.tree.leaves(sample.rows.memory):
        np.testing.assert_array_equal(np.asarray(x)[..., 0], ~prior)


GOALS = Specs(
    spaces.Dict(
        {name: spaces.Box(-9, 9, (2,), np.float32) for name in ("achieved_goal", "desired_goal")}
    ),
    spaces.Discrete(2),
    ("agent",),
)


def goals_of(n):
    """An unroll whose achieved goals name row and slot; no wanted goal is among them."""
    unroll = unroll_of(n)
    achieved = unroll.observation[..., 1:]
    return unroll._replace(
        observation={"achieved_goal": achieved, "desired_goal": np.full_like(achieved, -9)}
    )


def test_hindsight_goals_were_reached_later_in_the_same_episode():
    hindsight = Hindsight(k=3, terminated=lambda a, d: jnp.all(a == d, axis=-1))
    dqn = DQN(**{**SMALL, "samples_per_insert": 128.0}, batch_size=32, hindsight=hindsight)
    instance = dqn.bind(GOALS, 10, SLOTS)
    unroll = goals_of(1)
    sample, _ = drawn(instance, [unroll])
    rows = jax.tree.map(np.asarray, sample.rows)
    goal, own = rows.observation["desired_goal"], rows.observation["achieved_goal"]
    given = goal[:, 0, :, 0] != -9
    assert abs(given.mean() - 0.75) < 0.03
    np.testing.assert_array_equal(goal[:, 0], goal[:, 1])  # one goal for the whole window
    first, wanted = own[:, 0][given], goal[:, 0][given]
    np.testing.assert_array_equal(first[:, 1], wanted[:, 1])  # of the same slot
    ended = unroll.terminated | unroll.truncated
    ends = [
        [next((r for r in range(t + 1, STEPS) if ended[r, s]), STEPS) for s in range(SLOTS)]
        for t in range(STEPS)
    ]
    last = np.asarray(ends)[first[:, 0].astype(int), first[:, 1].astype(int)]
    assert ((wanted[:, 0] > first[:, 0]) & (wanted[:, 0] <= last)).all()
    assert {*zip(first[:, 0], wanted[:, 0], strict=True)} >= {
        (0, t) for t in range(1, STEPS + 1) if t <= max(ends[0])
    }
    reached = (own == goal).all(-1)
    np.testing.assert_array_equal(rows.reward[:, 1][given], reached[:, 1][given] - 1.0)
    np.testing.assert_array_equal(rows.terminated[:, 1][given], reached[:, 1][given])
    was = ended[own[:, 1, :, 0].astype(int), own[:, 1, :, 1].astype(int)]
    assert (rows.terminated | rows.truncated)[:, 1][was].all()  # ends of episodes stay ends


def test_half_of_what_is_drawn_is_mirrored_observations_and_actions_together():
    dqn = DQN(**{**SMALL, "samples_per_insert": 128.0}, batch_size=32, mirror=SWAP)
    instance, unroll = dqn.bind(DISCRETE, 10, SLOTS), unroll_of(1)
    sample, _ = drawn(instance, [unroll])
    update, row, slot = np.moveaxis(np.asarray(sample.rows.observation), -1, 0)
    flipped = (row + slot)[:, 1] < 0
    assert abs(flipped.mean() - 0.5) < 0.05
    assert (update == 1).all()
    place = abs(row[:, 0]).astype(int), abs(slot[:, 0]).astype(int)
    expected = np.where(flipped, 1 - unroll.action[place], unroll.action[place])
    np.testing.assert_array_equal(sample.rows.action[:, 0], expected)


def test_a_policy_that_ppo_learns_with_a_mirror_learns_from_both_sides():
    """A batch and its mirror image teach the same."""
    sizes = {"unroll_length": STEPS, "minibatches": 2, "network": MLP(width=8, depth=1)}
    instance = PPO(mirror=SWAP, **sizes).bind(DISCRETE, 10, SLOTS)
    state, unroll, number = instance.init(KEY), unroll_of(1), np.arange(STEPS * SLOTS) / 9
    number = number.reshape(STEPS, SLOTS).astype(np.float32)
    valid = ~(unroll.terminated | unroll.truncated)[:-1]
    samples = Samples(unroll.observation[:-1], unroll.action, -number, number - 1, number, valid)
    mirrored = samples._replace(
        observation=SWAP.observation(samples.observation), action=SWAP.action(samples.action)
    )

    @jax.jit
    def step(samples):
        batch = Batch(samples, {"policy": (), "value": ()}, unroll.slot)
        return instance.gradient_step(state, batch, jnp.int32(0), lambda x: x)[0].params

    pairs = zip(*map(jax.tree.leaves, (step(samples), step(mirrored), state.params)), strict=True)
    for one, other, before in pairs:
        np.testing.assert_allclose(one, other, atol=1e-6)
        assert not np.array_equal(one, before)


@pytest.mark.parametrize(
    ("algorithm", "specs", "reason"),
    [
        (DQN(hindsight=Hindsight()), DISCRETE, "achieved_goal and desired_goal of one"),
        (DQN(hindsight=Hindsight(), frame_stack=2), GOALS, "frame_stack=2"),
        (DQN(hindsight=Hindsight(k=0)), GOALS, "hindsight.k"),
        (R2D2(network=MLP(memory=4), mirror=SWAP), DISCRETE, "R2D2 with mirror"),
        (PPO(network=MLP(memory=4), mirror=SWAP), DISCRETE, "network with memory"),
        (DQN(mirror=replace(SWAP, action=lambda a: 0 * a)), DISCRETE, "mirror.action is no mirror"),
        (
            SAC(mirror=replace(SWAP, action=lambda a: a / 2)),
            CONTINUOUS,
            "mirror.action is no mirror",
        ),
        (DQN(mirror=replace(SWAP, observation=lambda x: x[..., :2])), DISCRETE, "the same form"),
        (DQN(mirror=replace(SWAP, observation=lambda x: x["a"])), DISCRETE, "cannot mirror values"),
        (
            DQN(mirror=replace(SWAP, observation=np.negative)),
            DISCRETE,
            "mirror.observation raised TracerArrayConversionError",
        ),
        (
            DQN(hindsight=Hindsight(reward=lambda achieved, desired, info: 0.0)),
            GOALS,
            "hindsight.reward raised TypeError: .*; expected a function in JAX",
        ),
        (
            DQN(hindsight=Hindsight(terminated=lambda achieved, desired: achieved == desired)),
            GOALS,
            "hindsight.terminated gives",
        ),
        (DQN(prior_share=0.4), DISCRETE, "there are none: give algorithm.prior"),
        (DQN(prior="runs", prior_share=1.5), DISCRETE, "algorithm.prior_share"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_reason(algorithm, specs, reason):
    with pytest.raises(UserError, match=reason):
        algorithm.bind(specs, 10, SLOTS)
