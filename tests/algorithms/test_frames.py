"""Stacks of the last observations: how they are made, and that replays hold each one once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from srl import Experiment, UserError
from srl.algorithms import DQN, PPO
from srl.algorithms.frames import FrameStack
from srl.algorithms.preprocessing import bound
from srl.algorithms.replay import Draws, empty, insert
from srl.algorithms.returns import where_rows
from srl.core.tree import leaves_of
from srl.core.types import Specs, Unroll
from srl.loop.training import local_training
from srl.networks import MLP
from srl.pools import NamedEnv

GREY = spaces.Box(0, 255, (3, 2), np.uint8)
SPACE = spaces.Dict(
    action_mask=spaces.MultiBinary(2),
    colour=spaces.Box(0, 255, (5, 4, 3), np.uint8),
    grey=GREY,
    number=spaces.Box(-1, 1, ()),
    pair=spaces.Tuple([spaces.Discrete(3), spaces.Box(-9, 9, (2,))]),
)


def rows_of(space, rng, *leading):
    """Random observations that are nowhere 0."""
    if isinstance(space, spaces.Dict):
        return {name: rows_of(part, rng, *leading) for name, part in space.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(rows_of(part, rng, *leading) for part in space)
    dtype = np.int32 if space.dtype == np.int64 else space.dtype
    return jnp.asarray(rng.integers(1, 200, (*leading, *space.shape)), dtype)


def test_each_kind_of_leaf_is_stacked_along_its_own_axis():
    stacked = FrameStack(SPACE, 4).stacked
    assert {name: part.shape for name, part in stacked.items() if name != "pair"} == {
        "action_mask": (2,),
        "colour": (5, 4, 12),
        "grey": (4, 3, 2),
        "number": (4,),
    }
    assert [part.shape for part in stacked["pair"]] == [(), (8,)]
    assert stacked["grey"].dtype == np.uint8


def test_the_newest_is_last_and_an_episode_begins_with_zeros():
    stack = FrameStack(spaces.Box(0, 9, (1,)), 3)
    earlier = stack.nothing(1)
    seen = []
    for number in (1, 2, 3, 4):
        stacks, earlier = stack.push(earlier, jnp.full((1, 1), number, jnp.float32))
        seen.append(stacks[0].tolist())
    assert seen == [[0, 0, 1], [0, 1, 2], [1, 2, 3], [2, 3, 4]]


def unroll_of(ends, frames, seed=0):
    """An unroll as it is collected, and the stacks that acting saw."""
    rng = np.random.default_rng(seed)
    length, slots = ends.shape
    stack = FrameStack(SPACE, frames)
    rows = rows_of(SPACE, rng, length, slots)
    earlier = first = rows_of_earlier(stack, rng, slots)
    seen = []

    @jax.jit
    def act(earlier, row, over):
        stacks, earlier = stack.push(earlier, row)
        return stacks, where_rows(over, stack.nothing(slots), earlier)

    for t in range(length):
        stacks, earlier = act(earlier, jax.tree.map(lambda x, t=t: x[t], rows), ends[t])
        seen.append(stacks)
    seen = jax.tree.map(lambda *x: np.stack(x), *seen)
    unroll = Unroll(
        observation=seen,
        reward=jnp.zeros(ends.shape),
        terminated=ends,
        truncated=jnp.zeros(ends.shape, bool),
        action=jnp.zeros((length - 1, slots), int),
        log_prob=jnp.zeros((length - 1, slots)),
        memory=(),
        version=jnp.zeros((length - 1, 1, 2), int),
        slot=jnp.arange(slots),
    )
    return stack, rows, first, unroll


def rows_of_earlier(stack, rng, slots):
    """What precedes the first row: of one slot nothing."""
    zeros = stack.nothing(slots)
    return jax.tree.map(
        lambda x: x.at[1:].set(rng.integers(1, 9, x[1:].shape).astype(x.dtype)), zeros
    )


def assert_same(one, other):
    for a, b in zip(leaves_of(one), leaves_of(other), strict=True):
        np.testing.assert_array_equal(a, b)


ENDS = np.random.default_rng(0).random((6, 5)) < np.array([0.0, 0.2, 0.2, 0.5, 0.5])


def test_learning_sees_the_stacks_that_acting_saw():
    stack, rows, earlier, unroll = unroll_of(ENDS, 3)
    assert_same(jax.jit(stack.of_rows)(earlier, rows, ENDS), unroll.observation)


def test_a_replay_of_single_observations_gives_the_same_stacks():
    stack, _, _, unroll = unroll_of(ENDS, 3)
    row, column = (x.reshape(1, -1) for x in np.meshgrid(np.arange(4), np.arange(5)))
    draws = Draws(np.ones((1, 20), np.int32), row, column, column)

    @jax.jit
    def drawn(unroll):
        whole = insert(empty(unroll, 3), unroll, 4)
        single = insert(empty(unroll, 3, stack), unroll, 4, stack)
        return draws.take(single, 3, stack), draws.take(whole, 3)

    assert_same(*drawn(unroll))


def test_a_replay_of_stacks_takes_little_more_than_one_of_single_frames():
    stack = FrameStack(spaces.Box(0, 255, (84, 84), np.uint8), 4)
    _, _, _, unroll = unroll_of(ENDS[:1], 2)
    flags = jax.ShapeDtypeStruct((33, 2), bool)
    unroll = unroll._replace(reward=flags, terminated=flags, truncated=flags)

    def size(shape, stack=None):
        frames = jax.ShapeDtypeStruct((33, 2, *shape), np.uint8)
        shapes = jax.eval_shape(lambda x: empty(x, 8, stack), unroll._replace(observation=frames))
        return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(shapes.observation)) + sum(
            x.size * x.dtype.itemsize for x in jax.tree.leaves(shapes.earlier)
        )

    assert size((4, 84, 84)) == 4 * size((84, 84))
    assert size((4, 84, 84), stack) == size((84, 84)) * 36 / 33


def test_what_has_no_box_cannot_be_stacked():
    specs = Specs(spaces.Discrete(3), spaces.Discrete(2), ("agent",))
    with pytest.raises(UserError, match="frame_stack=4, but observations of Discrete"):
        bound(PPO(frame_stack=4, network=MLP()), specs, None, 1)


def test_returns_are_reported_of_rewards_as_they_are():
    env = NamedEnv("native:Pendulum-v1", {"max_episode_steps": 8})
    algorithm = PPO(network=MLP(width=8), unroll_length=8, epochs=1, rewards="sign")
    trainer = local_training(Experiment(name="tiny", env=env, num_envs=4, algorithm=algorithm))
    try:
        trainer.start()
        for _ in range(2):
            trainer.update()
        report = trainer.report()
    finally:
        trainer.close()
    assert report["episode_return"] < -8.5  # eight steps cost more than one each


def test_rewards_are_transformed_before_they_are_learned_from():
    box = Specs(spaces.Box(0, 1, (1,)), spaces.Discrete(2), ("agent",))
    reward = jnp.array([[0.0], [-3.0], [0.25]])
    for rewards, scale, expected in (
        ("sign", 1.0, [0, -1, 1]),
        ("clip", 1.0, [0, -1, 0.25]),
        ("clip", 2.0, [0, -2, 0.5]),
        ("raw", 0.1, [0, -0.3, 0.025]),
    ):
        settings = {"rewards": rewards, "reward_scale": scale}
        instance = bound(DQN(network=MLP(width=4), unroll_length=4, **settings), box, None, 1)
        unroll = Unroll(*[None] * len(Unroll._fields))._replace(reward=reward)
        np.testing.assert_allclose(instance._seen(unroll).reward[:, 0], expected, rtol=1e-6)


def test_settings_that_change_reach_what_stacks_and_transforms():
    specs = Specs(GREY, spaces.Discrete(2), ("agent",))
    algorithm = PPO(network=MLP(width=8), frame_stack=2, rewards="sign").settled(1)
    instance = bound(algorithm, specs, 1, 1).adjusted({"learning_rate": 0.5})
    assert instance.config.learning_rate == 0.5
    assert jax.tree.leaves(instance.initial_memory(3))  # it stacks as before


def test_a_stack_whose_channels_would_be_taken_for_pixels_is_refused():
    grid = spaces.Box(0, 1, (10, 10, 4), np.float32)
    with pytest.raises(UserError, match=r"frame_stack=4 makes \(10, 10, 16\)"):
        _ = FrameStack(grid, 4).stacked
    assert FrameStack(grid, 2).stacked.shape == (10, 10, 8)
