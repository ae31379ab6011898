"""Calls that no pool takes: each is refused in a sentence, and nothing is lost by it."""

import importlib.util
from contextlib import closing

import numpy as np
import pytest

from srl import UserError, make_pool

KINDS = {
    "native": ("native:CartPole-v1", {}),
    "serial": ("CartPole-v1", {"workers": 0}),
    "processes": ("CartPole-v1", {"workers": 2}),
}
if importlib.util.find_spec("envpool"):
    KINDS["envpool"] = ("envpool:CartPole-v1", {})


def made(kind, num_envs=4, batch_size=None):
    env, options = KINDS[kind]
    return make_pool(env, num_envs, batch_size=batch_size, **options)


@pytest.fixture(scope="module", params=list(KINDS))
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def pool(kind):
    with closing(made(kind)) as pool:
        yield pool


@pytest.mark.parametrize("seed", [-1, 2**64, 1.0, "7", True, np.float32(1), [1, 2, 3, 4]])
def test_a_seed_is_none_or_an_integer_of_64_bits(pool, seed):
    with pytest.raises(UserError, match="seed"):
        pool.reset(seed)


@pytest.mark.parametrize("seed", [0, np.uint8(3), np.int64(3), 2**63, 2**64 - 1])
def test_any_integer_of_64_bits_is_a_seed(pool, seed):
    first = np.copy(pool.reset(seed).observation)
    np.testing.assert_array_equal(pool.reset(int(seed)).observation, first)


# ---- actions and rows ----

RIGHT = np.array([0, 1, 0, 1])


@pytest.mark.parametrize(
    ("actions", "told"),
    [
        (RIGHT[:3], r"actions have shape \(3,\); expected \(4,\)"),
        (RIGHT[:, None], r"actions have shape \(4, 1\)"),
        (np.int64(0), "action"),
        (None, "action"),
        ([[0], [1, 0], [0], [1]], "action"),
        (RIGHT.astype(float), "actions are float64; expected int"),
        (RIGHT.astype(bool), "actions are bool; expected int"),
        (RIGHT.astype(str), "action"),
        ([0, 1, 0, 2], "environment 3.* action 2"),
        ([0, 1, 0, -1], "environment 3.* action -1"),
        ([0, 1, 0, 2**32], "environment 3.* action 4294967296"),
        ([0, 1, 0, 1 - 2**32], "environment 3.* action"),
        (np.array([0, 1, 0, 2**63], np.uint64), "action"),
    ],
    ids=str,
)
def test_actions_that_do_not_fit_are_refused_before_anything_steps(pool, actions, told):
    pool.reset(0)
    with pytest.raises(UserError, match=told):
        pool.step(actions)
    assert pool.step(RIGHT).episode_length.tolist() == [1] * 4


@pytest.mark.parametrize("foreign", ["another pool's", "no row"])
def test_only_a_row_of_the_pool_itself_is_written(kind, pool, foreign):
    pool.reset(0)
    with closing(made(kind)) as other:
        into = other.rows(1)[0] if foreign == "another pool's" else np.zeros(4)
        for call in (lambda: pool.reset(0, into), lambda: pool.step(RIGHT, into)):
            with pytest.raises(UserError, match=r"row of another pool; take it .* rows\(\)"):
                call()
    assert pool.step(RIGHT).episode_length.tolist() == [1] * 4


@pytest.mark.parametrize(
    "mask", [[True], np.ones(4), [True, False, True, 2], [[True]] * 4, [[True], []]], ids=str
)
def test_a_mask_that_does_not_fit_is_refused(pool, mask):
    row = pool.rows(1)[0]
    pool.reset(0, row)
    with pytest.raises(UserError, match="mask"):
        pool.reset(None, row, mask)


def test_a_mask_that_names_nobody_changes_nothing():
    for env, options in (*KINDS.values(), ("vector:CartPole-v1", {})):
        with make_pool(env, 4, **options) as pool:
            row = pool.rows(1)[0]
            pool.reset(0, row)
            pool.step(RIGHT, row)
            pool.reset(None, row, np.zeros(4, bool))
            assert row.timestep.episode_length.tolist() == [1] * 4
            assert pool.step(RIGHT).episode_length.tolist() == [2] * 4


def test_memory_of_another_form_is_refused(kind, pool):
    with closing(made(kind, num_envs=2)) as smaller:
        few = smaller.rows(2).timesteps
    wide = pool.rows(2).timesteps._replace(reward=np.zeros((2, 4)))
    for timesteps, words in (
        (few, r"expected int32\[2, 4\]"),
        (wide, r"reward is float64\[2, 4\]"),
    ):
        with pytest.raises(UserError, match=words):
            pool.rows_over(timesteps)


# ---- the order of calls ----


def test_nothing_steps_before_the_first_reset(kind):
    with closing(made(kind)) as pool:
        for call in (lambda: pool.step(RIGHT), lambda: pool.send(RIGHT, np.arange(4))):
            with pytest.raises(UserError, match="environment 0 was never reset; call reset first"):
                call()
        assert pool.reset(0).episode_length.tolist() == [0] * 4


def test_a_first_reset_of_some_environments_leaves_the_others_to_be_reset(kind):
    if kind == "envpool":
        pytest.skip("its first reset makes the environments, so that it has no mask")
    with closing(made(kind)) as pool:
        row = pool.rows(1)[0]
        pool.reset(0, row, np.array([True, True, True, False]))
        with pytest.raises(UserError, match="environment 3 was never reset; call reset first"):
            pool.step(RIGHT)
        pool.reset(0, row, np.array([False, False, False, True]))
        assert pool.step(RIGHT).episode_length.tolist() == [1] * 4


def test_recv_waits_for_nothing_that_was_not_sent(kind):
    with closing(made(kind, 4, 2)) as pool:
        with pytest.raises(UserError, match="recv needs 2 environments in flight"):
            pool.recv()
        pool.async_reset(0)
        pool.recv()
        ids = np.copy(pool.recv().env_id)
        pool.send(RIGHT[:1], ids[:1])
        with pytest.raises(UserError, match="recv needs 2 environments in flight"):
            pool.recv()
        with pytest.raises(UserError, match=f"environment {ids[0]} is in flight"):
            pool.send(RIGHT[:1], ids[:1])
        pool.send(RIGHT[:1], ids[1:])
        assert sorted(pool.recv().env_id) == sorted(ids)


def test_a_closed_pool_refuses_all_but_a_second_close(kind):
    pool = made(kind)
    row = pool.rows(1)[0]
    pool.reset(0)
    pool.close()
    pool.close()
    calls = [
        lambda: pool.reset(0),
        lambda: pool.reset(0, row),
        lambda: pool.step(RIGHT),
        lambda: pool.async_reset(0),
        lambda: pool.send(RIGHT, np.arange(4)),
        lambda: pool.recv(),
        lambda: pool.save(),
        lambda: pool.restore(b""),
    ]
    if kind != "native":  # which has memory for rows, and no pictures, whether open or not
        calls += [lambda: pool.rows(1), lambda: pool.render(0)]
    for call in calls:
        with pytest.raises(UserError, match=r"the pool of .*CartPole-v1 is closed"):
            call()


# ---- ids ----


@pytest.fixture(scope="module")
def batches(kind):
    """An asynchronous pool with no environment in flight."""
    with closing(made(kind, 4, 2)) as pool:
        pool.async_reset(0)
        pool.recv()
        pool.recv()
        yield pool


@pytest.mark.parametrize(
    ("env_ids", "told"),
    [
        ([0, 4], "environment id 4; expected 0 to 3"),
        ([0, -1], "environment id -1"),
        ([0, 2**32], "environment id 4294967296"),
        (np.array([0, 2**63], np.uint64), r"env_ids|environment"),
        ([1, 1], "environment 1 is named twice"),
        ([0.0, 1.0], r"expected .n. ints"),
        ([True, False], r"expected .n. ints"),
        (["0", "1"], r"expected .n. ints"),
        ([[0, 1]], r"expected .n. ints"),
        ([[0], [1, 2]], r"env_ids|environment"),
        (0, r"expected .n. ints"),
        (None, r"env_ids|environment"),
    ],
    ids=str,
)
def test_ids_that_name_no_environments_are_refused(batches, env_ids, told):
    with pytest.raises(UserError, match=told):
        batches.send(RIGHT[:2], env_ids)
    batches.send(RIGHT[:2], np.array([0, 1]))
    assert sorted(batches.recv().env_id) == [0, 1]


def test_there_is_an_action_for_each_environment_that_is_named(batches):
    with pytest.raises(UserError, match="actions have shape"):
        batches.send(RIGHT, np.array([0, 1]))
    batches.send(RIGHT[:2], np.array([0, 1]))
    assert sorted(batches.recv().env_id) == [0, 1]


def test_an_asynchronous_pool_takes_no_synchronous_calls(batches):
    for call in (lambda: batches.reset(0), lambda: batches.step(RIGHT)):
        with pytest.raises(UserError, match="call async_reset, send and recv"):
            call()


# ---- making ----


@pytest.mark.parametrize("num_envs", [0, -1, 1.5, "4", True, None, 2**40])
def test_a_pool_has_a_whole_number_of_environments(kind, num_envs):
    with pytest.raises(UserError, match="num_envs"):
        made(kind, num_envs)


@pytest.mark.parametrize("batch_size", [0, -1, 5, 1.5, "4", True])
def test_a_batch_is_no_larger_than_the_pool(kind, batch_size):
    with pytest.raises(UserError, match="batch_size"):
        made(kind, 4, batch_size)
