"""Pools of environments written in JAX."""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from srl import RunError, UserError, make_pool
from srl.core.tree import leaves_of, map_tree

HERE = str(Path(__file__).parent)


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path, HERE])


def counter(num_envs=2, **options):
    return make_pool("jax:small_envs:Counter", num_envs, **options)


def act(pool, value=0.5):
    return np.full((pool.num_envs, 1), value, np.float32)


def assert_same(one, other):
    for a, b in zip(leaves_of(one), leaves_of(other), strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_step_after_an_end_ignores_the_action_and_begins_the_next_episode():
    with counter() as pool:
        rows = [pool.reset(seed=3), *(pool.step(act(pool)) for _ in range(5))]
    assert [row.terminated[0] for row in rows] == [False, False, False, True, False, False]
    assert [row.reward[0] for row in rows] == [0, 0.5, 0.5, 0.5, 0, 0.5]
    assert [row.episode_length[0] for row in rows] == [0, 1, 2, 3, 0, 1]
    assert [row.episode_return[0] for row in rows] == [0, 0.5, 1, 1.5, 0, 0.5]
    # The row that ends an episode has that one's last observation.
    assert [row.observation["count"][0, 0] for row in rows] == [0, 1, 2, 3, 0, 1]
    assert [row.statistics[0, 0] for row in rows] == [0, 0.5, 0.5, 0.5, 0, 0.5]
    assert not any(row.truncated.any() or row.lost.any() for row in rows)


def test_a_time_limit_truncates_and_an_end_at_the_limit_is_none_of_it():
    with counter(1, ends=3, max_episode_steps=2) as pool:
        pool.reset(seed=0)
        ends = [
            (row.terminated[0], row.truncated[0])
            for row in (pool.step(act(pool)), pool.step(act(pool)))
        ]
    assert ends == [(False, False), (False, True)]
    with counter(1, ends=2, max_episode_steps=2) as pool:
        pool.reset(seed=0)
        pool.step(act(pool))
        row = pool.step(act(pool))
    assert (row.terminated[0], row.truncated[0]) == (True, False)


def test_an_environments_chance_is_the_same_in_every_pool():
    with counter(5) as many, counter(1) as one:
        pairs = [(many.reset(seed=2**64 - 2), one.reset(seed=1))]  # seed + 3, modulo 2^64
        pairs += [(many.step(act(many)), one.step(act(one))) for _ in range(6)]
        other = one.reset(seed=2).observation["chance"]
    for all_rows, own in pairs:
        assert_same(map_tree(lambda x: x[3:4], all_rows.observation), own.observation)
    assert (other != pairs[0][1].observation["chance"]).any()


def test_a_saved_state_has_exactly_the_same_future():
    with counter() as pool, counter() as another:
        pool.reset(seed=0)
        pool.step(act(pool))
        saved = pool.save()
        future = [pool.step(act(pool)) for _ in range(6)]
        another.restore(saved)
        for row in future:
            assert_same(another.step(act(another)), row)


def test_a_state_of_another_pool_is_refused():
    with counter(2) as pool, counter(3) as larger, counter(2) as own:
        state = own.save()
        with pytest.raises(UserError, match="of another environment or number"):
            larger.restore(state)
        with pytest.raises(UserError, match="is none of this pool"):
            pool.restore(b"nothing")


def test_a_masked_reset_begins_only_these_episodes():
    with counter(3) as pool:
        rows = pool.rows(1)
        pool.reset(seed=0)
        pool.step(act(pool), into=rows[0])
        before = rows.timesteps.observation["chance"][0].copy()
        pool.reset(seed=9, into=rows[0], mask=np.array([False, True, False]))
        assert rows.timesteps.episode_length[0].tolist() == [1, 0, 1]
        same = (rows.timesteps.observation["chance"][0] == before).all(-1)
        assert same.tolist() == [True, False, True]
        assert pool.step(act(pool)).episode_length.tolist() == [2, 1, 2]


def test_repeated_actions_stop_at_the_end_of_an_episode():
    with counter(1, action_repeat=2) as pool:
        pool.reset(seed=0)
        rows = [pool.step(act(pool)) for _ in range(3)]
    assert [row.reward[0] for row in rows] == [1.0, 0.5, 0.0]
    assert [row.episode_length[0] for row in rows] == [2, 3, 0]
    assert [bool(row.terminated[0]) for row in rows] == [False, True, False]


def test_an_agent_that_has_ended_takes_no_part_until_the_episode_ends():
    with make_pool("jax:small_envs:Pair", 2) as pool:
        assert pool.specs.agents == ("red", "blue")
        pool.reset(seed=0)
        rows = [pool.step(np.array([1, 2, 0, 0])) for _ in range(4)]
    assert [row.terminated.tolist() for row in rows] == [
        [True, False, True, False],
        [True, False, True, False],
        [True, True, True, True],
        [False, False, False, False],
    ]
    assert [row.reward.tolist() for row in rows] == [
        [2, 3, 1, 1],
        [0, 3, 0, 1],
        [0, 3, 0, 1],
        [0, 0, 0, 0],
    ]
    assert rows[2].episode_return.tolist() == [2, 9, 1, 3]


def test_steps_inside_a_compiled_program_are_those_of_the_pool():
    with counter() as pool, counter() as same:
        pool.reset(seed=4)
        same.reset(seed=4)
        xla = pool.xla()

        @jax.jit
        def rollout(state, actions):
            return jax.lax.scan(lambda state, action: xla.step(state, action), state, actions)

        actions = np.stack([act(pool)] * 5)
        state, rows = rollout(xla.init(), actions)
        for t in range(5):
            assert_same(map_tree(lambda x, t=t: np.asarray(x[t]), rows), same.step(act(same)))
        xla.keep(state)
        assert_same(pool.step(act(pool)), same.step(act(same)))


def test_asynchronous_calls_take_environments_in_any_order():
    with counter() as pool, counter() as same:
        pool.async_reset(seed=1)
        assert_same(pool.recv(), same.reset(seed=1))
        actions = np.array([[0.25], [0.75]], np.float32)
        pool.send(actions, np.array([1, 0]))
        assert_same(pool.recv(), same.step(actions[::-1].copy()))
        with pytest.raises(UserError, match="no step is in progress"):
            pool.recv()


@pytest.mark.parametrize(
    ("env", "options", "words"),
    [
        ("jax:small_envs:Grows", {}, "changes the shapes or dtypes of the state"),
        ("jax:small_envs:Wide", {}, r"an observation of shape \(4,\); expected \(3,\)"),
        ("jax:small_envs:Chance", {}, "an observation of float32; expected whole numbers, of Box"),
        ("jax:small_envs:Flags", {}, r"truncated of shape \(3,\); expected one bool"),
        ("jax:small_envs:Three", {}, r"reset gave 3 values; expected \(state, observation\)"),
        ("jax:small_envs:Twins", {}, "expected a tuple of names, each once"),
        ("jax:small_envs:Uncounted", {}, r"gave an array of shape \(1,\); expected \(2,\)"),
        ("jax:small_envs:Listed", {}, r"statistics_of\(state\) gave tuple; expected \(1,\)"),
        ("jax:small_envs:Counter", {"max_episode_steps": 0}, "max_episode_steps is 0; expected a"),
        ("jax:small_envs:Branches", {}, "step cannot be traced by JAX"),
        ("jax:small_envs:Nothing", {}, "which has no observation_space"),
        ("jax:small_envs:Missing", {}, "cannot be made"),
        ("jax:no_such_module:Missing", {}, "No module named 'no_such_module'"),
        ("jax:small_envs", {}, "names no environment"),
        ("jax:small_envs:Counter", {"colour": 1}, "does not take these options"),
        ("jax:small_envs:Counter", {"threads": 2}, "threads=2 does nothing"),
        ("jax:small_envs:Counter", {"workers": 2}, "workers=2 does nothing"),
        ("jax:small_envs:Counter", {"batch_size": 1}, "batch_size=1 does nothing"),
    ],
)
def test_what_is_no_functional_environment_is_refused_in_a_sentence(env, options, words):
    with pytest.raises(UserError, match=words):
        make_pool(env, 2, **options)


def test_a_result_that_is_not_finite_is_told():
    pool = make_pool("jax:small_envs:Diverging", 2)
    pool.reset(seed=0)
    pool.step(act(pool))
    with pytest.raises(RunError, match="environment 0 gave reward that is not finite, at step 2"):
        pool.step(act(pool))


def test_actions_out_of_the_space_and_closed_pools_are_refused():
    pool = counter()
    pool.reset(seed=0)
    for wrong in (2.0, np.nan):
        with pytest.raises(UserError, match="is not in Box"):
            pool.step(act(pool, wrong))
    with pytest.raises(UserError, match="actions have shape"):
        pool.step(jnp.zeros(3))
    pool.close()
    pool.close()
    with pytest.raises(UserError, match="is closed"):
        pool.step(act(pool))


def test_an_environment_of_gymnax_tells_truncated_from_terminated():
    with make_pool("jax:gymnax:Pendulum-v1", 2, max_steps_in_episode=3) as pool:
        pool.reset(seed=0)
        rows = [pool.step(np.zeros((2, 1), np.float32)) for _ in range(3)]
    assert [row.truncated.all() for row in rows] == [False, False, True]
    assert not any(row.terminated.any() for row in rows)
    with pytest.raises(UserError, match="gymnax:None-v1 cannot be made"):
        make_pool("jax:gymnax:None-v1")
    with pytest.raises(UserError, match="no such option"):
        make_pool("jax:gymnax:CartPole-v1", colour=1)
