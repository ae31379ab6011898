"""Pools over EnvPool: what its own interface does otherwise must not show."""

import os
import sys
import threading

import numpy as np
import pytest

from srl import UserError, make_pool
from srl.core.tree import leaves_of
from srl.core.types import Timestep

ENVS = 4


def actions(pool, steps, seed=0):
    """Random actions of all slots: [steps, slots, ...]."""
    space = pool.specs.action
    rng = np.random.default_rng(seed)
    slots = pool.num_envs * len(pool.specs.agents)
    if hasattr(space, "n"):
        return rng.integers(0, space.n, (steps, slots)).astype(space.dtype)
    return rng.uniform(space.low, space.high, (steps, slots, *space.shape)).astype(space.dtype)


def played(pool, chosen, seed=3):
    """Every environment's rows, by name: [steps + 1, num_envs, ...]."""
    seen = [pool.reset(seed), *(pool.step(action) for action in chosen)]
    names = [n for n in Timestep._fields if n not in ("statistics", "lost")]
    return {name: np.stack([np.copy(getattr(t, name)) for t in seen]) for name in names}


def same(left, right):
    for name, values in left.items():
        np.testing.assert_array_equal(values, right[name], err_msg=name)


def test_without_envpool_one_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "envpool", None)
    with pytest.raises(UserError, match=r"-m pip install '?envpool"):
        make_pool("envpool:CartPole-v1")


class TestWithEnvpool:
    @pytest.fixture(autouse=True)
    def _installed(self):
        pytest.importorskip("envpool")

    def test_an_episode_goes_as_in_any_pool(self):
        with make_pool("envpool:CartPole-v1", num_envs=2, threads=1) as pool:
            seen = played(pool, np.zeros((40, 2), np.int32))  # always left: about 9 steps
        ends = seen["terminated"] | seen["truncated"]
        assert ends.sum() >= 4
        begins = np.concatenate([np.ones((1, 2), bool), ends[:-1]])
        np.testing.assert_array_equal(seen["episode_length"][begins], 0)
        np.testing.assert_array_equal(seen["reward"], np.where(begins, 0, 1))
        np.testing.assert_array_equal(seen["episode_return"], seen["episode_length"])
        assert (np.diff(seen["episode_length"], axis=0)[~begins[1:]] == 1).all()
        # The last observation of an episode is its own: the pole has fallen.
        angle = np.abs(seen["observation"][..., 2])
        assert (angle[ends] > 0.2).all()
        assert (angle[begins] < 0.06).all()

    @pytest.mark.parametrize("limit", [7, 500])
    def test_each_environment_plays_as_if_alone_whatever_the_others_do(self, limit):
        chosen = np.random.default_rng(0).integers(0, 2, (150, ENVS), np.int32)
        with make_pool("envpool:CartPole-v1", ENVS, max_episode_steps=limit) as pool:
            together = played(pool, chosen)
        for i in range(ENVS):
            with make_pool("envpool:CartPole-v1", 1, threads=1, max_episode_steps=limit) as pool:
                alone = played(pool, chosen[:, i : i + 1], seed=3 + i)
            alone["env_id"][:] = i
            same({name: values[:, i : i + 1] for name, values in together.items()}, alone)

    def test_an_asynchronous_pool_plays_the_same_episodes(self):
        chosen = np.random.default_rng(0).integers(0, 2, (60, ENVS), np.int32)
        options = {"max_episode_steps": 7}
        with make_pool("envpool:CartPole-v1", ENVS, **options) as pool:
            expected = played(pool, chosen)
        steps = np.zeros(ENVS, int)
        with make_pool("envpool:CartPole-v1", ENVS, batch_size=2, **options) as pool:
            pool.async_reset(3)
            while (steps < len(chosen)).all():
                t = pool.recv()
                for place, i in enumerate(t.env_id):
                    for name, values in expected.items():
                        np.testing.assert_array_equal(getattr(t, name)[place], values[steps[i], i])
                pool.send(chosen[steps[t.env_id], t.env_id], t.env_id)
                steps[t.env_id] += 1
        assert steps.sum() >= len(chosen)

    def test_an_episode_that_terminates_at_the_time_limit_is_both(self):
        falls = np.zeros((30, 1), np.int32)
        with make_pool("envpool:CartPole-v1") as pool:
            free = played(pool, falls)
        length = int(free["episode_length"][free["terminated"].argmax(), 0])
        with make_pool("envpool:CartPole-v1", max_episode_steps=length) as pool:
            assert pool.specs.max_episode_steps == length
            limited = played(pool, falls)
        assert limited["terminated"][length, 0]
        assert limited["truncated"][length, 0]
        until = slice(0, length + 1)
        np.testing.assert_array_equal(limited["observation"][until], free["observation"][until])

    def test_atari_tells_of_both_too(self):
        options = {"img_height": 8, "img_width": 8, "frame_skip": 30, "noop_max": 1}
        noop = np.zeros(1, np.int32)
        with make_pool("envpool:Pong-v5", **options) as pool:
            pool.reset(0)
            while not (end := pool.step(noop)).terminated[0]:
                assert not end.truncated[0]
        length = int(end.episode_length[0])
        assert end.episode_return[0] == -21
        with make_pool("envpool:Pong-v5", max_episode_steps=length, **options) as pool:
            pool.reset(0)
            steps = [pool.step(noop) for _ in range(length)]
        assert steps[-1].terminated[0]
        assert steps[-1].truncated[0]
        assert not any(t.terminated[0] or t.truncated[0] for t in steps[:-1])

    def test_a_time_limit_truncates_and_the_next_step_begins_anew(self):
        with make_pool("envpool:HalfCheetah-v4", 2, max_episode_steps=3) as pool:
            seen = played(pool, actions(pool, 8))
        assert seen["episode_length"][:, 0].tolist() == [0, 1, 2, 3, 0, 1, 2, 3, 0]
        assert seen["truncated"][:, 1].tolist() == [n == 3 for n in seen["episode_length"][:, 1]]
        assert not seen["terminated"].any()
        assert (seen["reward"][[0, 4, 8]] == 0).all()

    def test_a_reset_has_no_reward_though_the_environment_gives_one(self):
        with make_pool("envpool:WalkerRun-v1", 2, max_episode_steps=3) as pool:
            seen = played(pool, actions(pool, 6))
        assert seen["episode_length"][:, 0].tolist() == [0, 1, 2, 3, 0, 1, 2]
        assert (seen["reward"] != 0).all(axis=1).tolist() == [n % 4 != 0 for n in range(7)]
        np.testing.assert_array_equal(seen["episode_return"][5], seen["reward"][5])

    def test_seeds_are_heeded_at_every_reset(self):
        with make_pool("envpool:Ant-v4", 3) as pool:
            first = pool.reset(5).observation
            other = pool.reset(6).observation
            free = pool.reset().observation
            again = pool.reset(5).observation
            far = pool.reset(2**40).observation
        np.testing.assert_array_equal(first, again)
        np.testing.assert_array_equal(first[1:], other[:-1])  # environment i gets s + i
        np.testing.assert_array_equal(far, pool_reset("envpool:Ant-v4", 3, 2**40 % 2**31))
        assert not np.array_equal(free, other)
        with make_pool("envpool:Ant-v4", 3) as pool:  # without a seed, by chance
            assert not np.array_equal(pool.reset().observation, first)

    def test_spaces_are_of_one_agent_and_hold_what_comes(self):
        for name in ("CartPole-v1", "BipedalWalker-v3", "Ant-v4", "WalkerRun-v1", "BinPack-v2"):
            with make_pool(f"envpool:{name}", 2) as pool:
                timestep = pool.reset(0)
                for action in actions_of_any(pool, 3):
                    timestep = pool.step(action)
                row = pool.rows(1)[0].timestep
                given, expected = leaves_of(timestep.observation), leaves_of(row.observation)
                assert [a.dtype for a in given] == [a.dtype for a in expected]
                assert [a.shape for a in given] == [a.shape for a in expected]
                first = first_of(timestep.observation)
                assert pool.specs.observation.contains(first), name
        assert np.isinf(make_pool("envpool:BipedalWalker-v3").specs.observation.low).all()

    def test_a_row_that_is_given_is_filled(self):
        with make_pool("envpool:WalkerRun-v1", 2) as pool:
            rows = pool.rows(2)
            pool.reset(0, rows[0])
            given = pool.step(actions(pool, 1)[0], rows[1])
            assert given is rows[1].timestep
            fresh = pool.reset(0)
            for memory, values in zip(
                leaves_of(rows[0].timestep.observation), leaves_of(fresh.observation), strict=True
            ):
                np.testing.assert_array_equal(memory, values)

    def test_results_stay_as_they_are(self):
        with make_pool("envpool:CartPole-v1", 2) as pool:
            rows = pool.rows(1)
            held = [pool.reset(0), *(pool.step(np.zeros(2, np.int32)) for _ in range(30))]
            copies = [[np.copy(array) for array in t] for t in held]
            pool.reset(None, rows[0], np.array([True, False]))
            pool.step(np.ones(2, np.int32))
        for t, copy in zip(held, copies, strict=True):
            for array, kept in zip(t, copy, strict=True):
                np.testing.assert_array_equal(array, kept)

    def test_a_mask_starts_chosen_episodes_only(self):
        left = np.zeros(3, np.int32)
        with make_pool("envpool:CartPole-v1", 3) as pool:
            row = pool.rows(1)[0]
            pool.reset(0, row)
            pool.step(left, row)
            before = row.timestep.observation.copy()
            after = pool.reset(None, row, np.array([False, True, False]))
            assert after is row.timestep
            changed = (before != row.timestep.observation).any(axis=1)
            assert changed.tolist() == [False, True, False]
            assert row.timestep.episode_length.tolist() == [1, 0, 1]
            assert pool.step(left).episode_length.tolist() == [2, 1, 2]
            with pytest.raises(UserError, match="a mask cannot have a seed"):
                pool.reset(1, row, np.array([False, True, False]))

    def test_a_synchronous_batch_may_be_sent_in_parts_and_comes_in_order(self):
        chosen = np.array([0, 1, 1, 0], np.int32)
        with make_pool("envpool:CartPole-v1", ENVS) as pool:
            pool.reset(3)
            expected = pool.step(chosen).observation
            pool.async_reset(3)
            pool.recv()
            for ids in (np.array([3, 1]), np.array([0]), np.array([2])):
                pool.send(chosen[ids], ids)
            given = pool.recv()
        np.testing.assert_array_equal(given.env_id, range(ENVS))
        np.testing.assert_array_equal(given.observation, expected)

    @pytest.mark.parametrize("batch_size", [2, 3, ENVS])
    def test_a_reset_drops_what_is_in_flight(self, batch_size):
        with make_pool("envpool:CartPole-v1", ENVS, batch_size) as pool:
            pool.async_reset(0)
            for _ in range(5):
                t = pool.recv()
                pool.send(np.zeros(batch_size, np.int32), t.env_id)
            pool.async_reset()
            seen = []
            while len(seen) + batch_size <= ENVS:
                t = pool.recv()
                assert (t.episode_length == 0).all()
                seen.extend(t.env_id.tolist())
            assert len(set(seen)) == len(seen)

    def test_players_have_their_places(self):
        with make_pool("envpool:IntersectionMultiAgent-v0", ENVS, threads=2) as pool:
            assert pool.specs.agents == ("player_0", "player_1")
            chosen = actions(pool, 30)
            together = played(pool, chosen)
        assert (together["env_id"] == np.arange(ENVS)).all()
        assert together["terminated"].any()
        for i in (0, ENVS - 1):
            with make_pool("envpool:IntersectionMultiAgent-v0", 1, threads=1) as pool:
                alone = played(pool, chosen[:, 2 * i : 2 * i + 2], seed=3 + i)
            per_slot = slice(2 * i, 2 * i + 2)
            for name in ("observation", "reward", "terminated", "episode_return"):
                np.testing.assert_array_equal(together[name][:, per_slot], alone[name])

    def test_actions_that_are_not_finite_are_refused(self):
        with make_pool("envpool:HalfCheetah-v4") as pool:
            pool.reset(0)
            with pytest.raises(UserError, match=r"environment 0: action .*nan.* is not in Box"):
                pool.step(np.full((1, 6), np.nan, np.float32))

    def test_a_second_thread_is_refused(self):
        with make_pool("envpool:CartPole-v1", ENVS) as pool:
            pool.reset(0)
            refused = threading.Event()
            told = []

            def step_until_refused():
                for _ in range(100_000):
                    if refused.is_set():
                        return
                    try:
                        pool.step(np.zeros(ENVS, int))
                    except UserError as error:
                        told.append(str(error))
                        refused.set()

            threads = [threading.Thread(target=step_until_refused) for _ in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert told
            assert all("used by another thread" in text for text in told)
            assert pool.reset(0).episode_length.tolist() == [0] * ENVS

    def test_pictures_are_of_the_environment_that_is_asked_for(self):
        with make_pool("envpool:CartPole-v1", 2, render_mode="rgb_array") as pool:
            pool.reset(0)
            one, other = pool.render(0), pool.render(1)
            assert one.dtype == np.uint8
            assert one.shape == (400, 600, 3)
            assert (one != other).any()
            with pytest.raises(UserError, match="environment id 2; expected 0 to 1"):
                pool.render(2)
        with make_pool("envpool:CartPole-v1") as pool:
            pool.reset(0)
            with pytest.raises(UserError, match="cannot be rendered: render_mode must be"):
                pool.render(0)

    def test_closing_ends_the_threads(self):
        def threads():
            return set(os.listdir("/proc/self/task"))

        before = threads()
        pool = make_pool("envpool:CartPole-v1", ENVS, threads=3)
        timestep = pool.reset(0)
        started = threads() - before  # threads of earlier tests may end meanwhile
        assert len(started) >= 3
        pool.close()
        assert not started & threads()
        assert np.isfinite(timestep.observation).all()  # memory is its holder's

    @pytest.mark.parametrize(
        ("name", "options", "told"),
        [
            ("Pongg-v5", {}, "no environment 'Pongg-v5'; did you mean envpool:Pong-v5"),
            ("Ant-v4", {"frame_skipp": 2}, "unknown option 'frame_skipp'; did you mean 'frame_sk"),
            ("Ant-v4", {"frame_skip": "two"}, "option 'frame_skip' is 'two'; expected a int"),
            ("CartPole-v1", {"max_episode_steps": 0}, "'max_episode_steps' is 0; expected from 1"),
            ("Ant-v4", {"max_episode_steps": 2**31 - 1}, "expected from 1 to 2,147,483,646"),
            ("Ant-v4", {"render_mode": "loud"}, "render_mode must be one of"),
            ("Ant-v4", {"seed": 3}, r"seed is no option: give reset\(seed=\)"),
            ("Go9x9-v1", {}, "its 2 players move in turns"),
        ],
    )
    def test_mistakes_are_told(self, name, options, told):
        with pytest.raises(UserError, match=told):
            make_pool(f"envpool:{name}", 2, **options)


def pool_reset(env, num_envs, seed):
    with make_pool(env, num_envs) as pool:
        return pool.reset(seed).observation


def actions_of_any(pool, steps):
    pool.specs.action.seed(0)
    return [np.stack([pool.specs.action.sample() for _ in range(pool.num_envs)])] * steps


def first_of(observation):
    if isinstance(observation, dict):
        return {name: first_of(part) for name, part in observation.items()}
    return np.asarray(observation[0])
