"""Native pools through their Python face."""

import threading

import numpy as np
import pytest

from srl import RunError, UserError, make_pool
from srl.envs.hide_and_seek.config import HideAndSeek


@pytest.fixture
def cartpole():
    with make_pool("native:CartPole-v1", num_envs=4) as pool:
        yield pool


def test_an_episode_is_truncated_at_the_limit_and_not_terminated(cartpole):
    cartpole.reset(seed=0)
    for _ in range(500):
        for i in range(4):
            cartpole.inject(i, "state", np.zeros(4))
        timestep = cartpole.step(np.zeros(4, np.int32))
    assert timestep.truncated.all()
    assert not timestep.terminated.any()
    assert (timestep.episode_return == 500).all()
    assert (timestep.episode_length == 500).all()


def test_results_that_somebody_holds_are_not_overwritten(cartpole):
    held = [cartpole.reset(seed=0).observation]
    kept = [held[0].copy()]
    for t in range(20):
        timestep = cartpole.step(np.full(4, t % 2, np.int32))
        part = timestep.observation[1:3] if t % 2 else timestep.observation
        held.append(part)
        kept.append(part.copy())
    for now, then in zip(held, kept, strict=True):
        np.testing.assert_array_equal(now, then)


def test_memory_that_nobody_holds_is_used_again(cartpole):
    cartpole.reset(seed=0)
    places = set()
    for _ in range(20):
        places.add(cartpole.step(np.zeros(4, np.int32)).observation.ctypes.data)
    assert len(places) <= 2


def test_recv_gives_batches_until_every_environment_has_moved():
    with make_pool("native:CartPole-v1", num_envs=6, batch_size=2, threads=2) as pool:
        pool.async_reset(seed=0)
        counts = np.zeros(6, int)
        for _ in range(600):
            timestep = pool.recv()
            assert len(timestep.reward) == 2
            counts[timestep.env_id] += 1
            pool.send(np.zeros(2, np.int32), timestep.env_id)
    assert counts.min() > 0


@pytest.mark.parametrize("env", ["native:CartPole-v1", HideAndSeek()])
def test_a_saved_pool_continues_bit_by_bit(env):
    with make_pool(env, num_envs=3, threads=2) as pool, make_pool(env, num_envs=3) as other:
        slots, space = 3 * len(pool.specs.agents), pool.specs.action
        space.seed(0)

        def actions():
            return np.stack([space.sample() for _ in range(slots)]).astype(np.int32)

        pool.reset(seed=3)
        for _ in range(50):
            pool.step(actions())
        other.restore(pool.save())
        for _ in range(50):
            action = actions()
            ours, theirs = pool.step(action), other.step(action)
            np.testing.assert_array_equal(ours.reward, theirs.reward)
            np.testing.assert_array_equal(ours.statistics, theirs.statistics)
            if isinstance(ours.observation, dict):
                for name, value in ours.observation.items():
                    np.testing.assert_array_equal(value, theirs.observation[name])


def test_every_field_of_a_dict_observation_is_in_its_place():
    # 3.33 m: the lidar's own range shows in its field, ones and zeros in the masks.
    with make_pool(HideAndSeek(scenario="full"), num_envs=2) as pool:
        timestep = pool.reset(seed=0)
        observation = timestep.observation
        for name, space in pool.specs.observation.items():
            assert observation[name].shape == (8, *space.shape)
            assert observation[name].dtype == space.dtype
            assert np.isfinite(observation[name]).all()
            if name.startswith("mask"):
                assert np.isin(observation[name], (0, 1)).all()
        assert (observation["lidar"] > 0).all()
        assert observation["observation_self"][:, 8].tolist() == [1, 1, 0, 0] * 2  # is a hider


def test_names_and_options_that_there_are_not_are_told():
    with pytest.raises(UserError, match="did you mean native:CartPole-v1"):
        make_pool("native:CartPole-v0")
    with pytest.raises(UserError, match="expected 'quadrant' or 'full'"):
        make_pool("native:HideAndSeek-v1", scenario="maze")


def test_other_threads_run_while_the_pool_works():
    # The pool waits for a thread that needs the interpreter: with the lock held it would hang.
    with make_pool(HideAndSeek(), num_envs=64, threads=1) as pool:
        pool.reset(seed=0)
        ticks, done = 0, threading.Event()

        def step():
            for _ in range(5):
                pool.step(np.full((256, 5), 1, np.int32) * np.array([5, 5, 5, 0, 0], np.int32))
            done.set()

        worker = threading.Thread(target=step)
        worker.start()
        while not done.is_set():
            ticks += 1
        worker.join()
    # Five calls give a thread that never gets the lock inside them a handful of turns at most.
    assert ticks > 1000


def test_a_second_thread_is_refused_not_let_in():
    with make_pool(HideAndSeek(), num_envs=64, threads=1) as pool:
        pool.reset(seed=0)
        actions = np.tile(np.array([5, 5, 5, 0, 0], np.int32), (256, 1))
        refused, done = [], threading.Event()

        def step():
            while not done.is_set() and not refused:
                try:
                    pool.step(actions)
                except UserError as error:
                    refused.append(str(error))

        worker = threading.Thread(target=step)
        worker.start()
        for _ in range(200):
            if refused:
                break
            try:
                pool.step(actions)
            except UserError as error:
                refused.append(str(error))
        done.set()
        worker.join()
    assert refused
    assert "another thread" in refused[0]


@pytest.mark.parametrize(("num_envs", "batch_size"), [(4, 2), (5, 2), (4, 4)])
def test_received_results_that_somebody_holds_are_not_overwritten(num_envs, batch_size):
    with make_pool("native:CartPole-v1", num_envs=num_envs, batch_size=batch_size) as pool:
        pool.async_reset(seed=0)
        held, kept = [], []
        for t in range(20):
            timestep = pool.recv()
            held.append(timestep.observation)
            kept.append(timestep.observation.copy())
            pool.send(np.full(batch_size, t % 2, np.int32), timestep.env_id)
        for now, then in zip(held, kept, strict=True):
            np.testing.assert_array_equal(now, then)


def test_one_thread_serves_slow_environments_asynchronously():
    with make_pool(HideAndSeek(), num_envs=2, batch_size=1, threads=1) as pool:
        pool.async_reset(seed=0)
        for _ in range(4):
            timestep = pool.recv()
            pool.send(np.full((4, 5), 1, np.int32), timestep.env_id)


def test_step_and_recv_may_take_turns(cartpole):
    cartpole.async_reset(seed=0)
    cartpole.recv()
    cartpole.step(np.zeros(4, np.int32))
    cartpole.send(np.zeros(4, np.int32), np.arange(4))
    assert (cartpole.recv().episode_length == 2).all()


def test_a_masked_reset_restarts_the_named_environments_alone():
    with make_pool("native:CartPole-v1", num_envs=3) as pool:
        row = pool.rows(1)[0]
        pool.reset(seed=0, into=row)
        step = pool.step(np.ones(3, np.int32), into=row)
        before = step.observation.copy()
        pool.reset(seed=7, into=row, mask=np.array([False, True, False]))
        assert step.episode_length.tolist() == [1, 0, 1]
        np.testing.assert_array_equal(step.observation[[0, 2]], before[[0, 2]])
        with make_pool("native:CartPole-v1", num_envs=3) as other:
            np.testing.assert_array_equal(step.observation[1], other.reset(seed=7).observation[1])
        with pytest.raises(UserError, match="needs `into`"):
            pool.reset(mask=np.zeros(3, bool))
        with pytest.raises(UserError, match=r"expected bool \(3,\)"):
            pool.reset(into=row, mask=np.zeros(2, bool))


def test_a_state_of_another_environment_is_refused():
    with make_pool("native:CartPole-v1", 2) as pool, make_pool("native:Acrobot-v1", 2) as other:
        pool.reset(seed=0)
        with pytest.raises(UserError, match="the saved pool is of CartPole-v1"):
            other.restore(pool.save())


def test_no_changed_byte_of_a_state_makes_a_bool_or_a_phase_that_there_is_not():
    name = "native:CartPole-v1"
    with make_pool(name, 1) as pool, make_pool(name, 1) as other:
        pool.reset(seed=0)
        pool.step(np.zeros(1, np.int64))
        state, refused = pool.save(), set()
        for place in range(len(state)):
            changed = state[:place] + b"\xfe" + state[place + 1 :]
            try:
                other.restore(changed)
            except (UserError, RunError) as error:
                refused.add(str(error))
            else:
                assert other.save() == changed  # nothing became another value
    assert "native:CartPole-v1: the saved environment state is damaged" in refused


def test_actions_and_ids_are_looked_at_before_they_become_32_bits_wide():
    with make_pool("native:CartPole-v1", 4, 2) as pool:
        pool.async_reset(seed=0)
        ids = pool.recv().env_id
        with pytest.raises(UserError, match="4294967296 is not in Discrete"):
            pool.send(np.array([2**32, 1]), ids)
        with pytest.raises(UserError, match="environment id 4294967298; expected 0 to 3"):
            pool.send(np.zeros(2, np.int32), np.array([2**32 + 2, 3]))
        with pytest.raises(UserError, match=r"expected \[n\] ints"):
            pool.send(np.zeros(2, np.int32), np.array([0.7, 1.2]))
        pool.send(np.zeros(2, np.int64), ids.tolist())


def test_settings_without_effect_are_refused():
    for env, settings in (
        ("native:CartPole-v1", {"workers": 2}),
        ("native:CartPole-v1", {"restarts": 1}),
        ("CartPole-v1", {"threads": 2}),
        ("CartPole-v1", {"cores": [0]}),
        ("CartPole-v1", {"step_timeout": 3.0}),
    ):
        with pytest.raises(UserError, match="does nothing for"):
            make_pool(env, 2, **settings)
