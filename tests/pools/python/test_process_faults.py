"""Worker processes that fail, die, hang and end."""

import gc
import logging
import os
import re
import resource
import select
import signal
import subprocess
import sys
import threading
from contextlib import suppress

import gymnasium
import numpy as np
import pytest
from peculiar_envs import (
    END,
    EXIT,
    FINE,
    HANG,
    HUGE_REWARD,
    KILL,
    NAN,
    NAN_REWARD,
    RAISE,
    SEGFAULT,
    STOP,
    Mute,
    Peculiar,
    Starts,
    Unseen,
    act,
    processes,
)

from srl import RunError, UserError, make_pool
from srl.loop.garbage import return_freed_memory


def has_ended(pid, seconds=20):
    """Waits for the end of a process that is not our child."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    ended = bool(select.select([fd], [], [], seconds)[0])
    os.close(fd)
    return ended


# ---- faults ----


@pytest.mark.parametrize("workers", [0, 2])
def test_an_environment_that_raises_is_named_and_the_others_go_on(pools, workers):
    pool = pools(workers=workers)
    row = pool.rows(1)[0]
    pool.reset(seed=0)
    with pytest.raises(
        RunError, match="environment 3 raised KeyError in step: 'no such joint'"
    ) as e:
        pool.step(np.array([FINE, FINE, FINE, RAISE]), into=row)
    if workers:
        assert "self.misbehave()" in str(e.value)
    assert row.timestep.observation[:3, 0].tolist() == [1, 1, 1]
    assert act(pool).observation[:, 0].tolist() == [2, 2, 2, 0]
    assert act(pool).observation[:, 0].tolist() == [3, 3, 3, 1]


@pytest.mark.parametrize("workers", [0, 2])
def test_in_an_asynchronous_pool_too_only_what_raised_is_out_of_flight(pools, workers):
    pool = pools(4, batch_size=2, workers=workers)
    pool.async_reset(seed=0)
    pool.send(np.array([FINE, FINE]), pool.recv().env_id)
    ids = pool.recv().env_id
    pool.send(np.array([FINE, RAISE]), ids)
    seen = []

    def receive_all():
        while True:
            seen.extend(pool.recv().env_id.tolist())

    with pytest.raises(RunError, match=f"environment {ids[1]} raised KeyError"):
        receive_all()
    pool.send(np.array([FINE]), ids[1:])
    begun = []
    while len(seen) < 4:
        timestep = pool.recv()
        seen += timestep.env_id.tolist()
        begun += timestep.observation[timestep.env_id == ids[1], 0].tolist()
    assert sorted(seen) == [0, 1, 2, 3]
    assert begun == [0]


@pytest.mark.parametrize("workers", [0, 2])
def test_an_observation_that_is_not_finite_is_told(pools, workers):
    pool = pools(workers=workers)
    pool.reset(seed=0)
    with pytest.raises(
        RunError, match="environment 2 gave observation that is not finite, at step 1 of"
    ):
        act(pool, e2=NAN)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_reward_that_is_not_finite_is_told_and_spoils_no_later_episode(pools, workers):
    pool = pools(workers=workers)
    pool.reset(seed=0)
    with pytest.raises(RunError, match="environment 2 gave reward that is not finite, at step 1"):
        act(pool, e2=NAN_REWARD)
    assert act(pool).episode_return.tolist() == [2, 2, 0, 2]
    assert act(pool).episode_return.tolist() == [3, 3, 1, 3]


def test_rewards_whose_sum_overflows_are_told(pools):
    pool = pools(workers=0)
    pool.reset(seed=0)
    act(pool, e1=HUGE_REWARD)
    with pytest.raises(RunError, match="environment 1 gave an episode return that is not finite"):
        act(pool, e1=HUGE_REWARD)
    assert act(pool).episode_return.tolist() == [3, 0, 3, 3]


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (EXIT, "exited with code 3"),
        (SEGFAULT, r"was killed by SIGSEGV(.|\n)*Segmentation fault; it was here:\n.*string_at"),
        (KILL, "was killed by SIGKILL"),
    ],
)
def test_a_worker_that_dies_is_started_again_and_its_episodes_are_marked_lost(
    pools, caplog, fault, told
):
    pool = pools()
    pool.reset(seed=0)
    before = act(pool)
    with caplog.at_level(logging.WARNING, logger="srl"):
        lost = act(pool, e1=fault)
    assert re.search(told, caplog.text)
    assert "environments 0 to 1" in caplog.text
    assert lost.lost.tolist() == [True, True, False, False]
    assert lost.truncated.tolist() == [True, True, False, False]
    assert lost.reward.tolist() == [0, 0, 1, 1]
    np.testing.assert_array_equal(lost.observation[:2], before.observation[:2])
    after = act(pool)
    assert not after.lost.any()
    assert after.observation[:, 0].tolist() == [0, 0, 3, 3]
    assert not set(processes(after)[:2]) & set(processes(before))
    assert act(pool).observation[:, 0].tolist() == [1, 1, 4, 4]


def test_environments_made_anew_are_seeded_alike_in_every_run(pools):
    numbers = []
    for _ in range(2):
        pool = pools()
        first = pool.reset(seed=0).observation[:, 1].copy()
        act(pool, e0=KILL)
        numbers.append(act(pool).observation[:, 1].copy())
    np.testing.assert_array_equal(*numbers)
    assert (numbers[0][:2] != first[:2]).all()


def test_an_asynchronous_pool_gives_lost_rows_too(pools):
    pool = pools(4, batch_size=2)
    pool.async_reset(seed=0)
    ids = pool.recv().env_id.copy()
    killed = int(ids[0])
    neighbours = [killed, killed ^ 1]  # of one worker; the other's episode may not have begun
    pool.send(np.array([KILL, FINE]), ids)
    lost, seen = [], set()
    while killed not in lost or not seen >= {0, 1, 2, 3}:
        timestep = pool.recv()
        lost += timestep.env_id[timestep.lost].tolist()
        seen |= set(timestep.env_id[~timestep.lost].tolist())
        pool.send(np.full(2, FINE), timestep.env_id)
    assert set(lost) <= set(neighbours)
    assert len(set(lost)) == len(lost)


def test_a_worker_that_dies_between_steps_loses_its_episodes_at_the_next(pools):
    pool = pools()
    pids = processes(pool.reset(seed=0))
    os.kill(pids[3], 9)
    assert has_ended(pids[3])
    assert act(pool).lost.tolist() == [False, False, True, True]
    assert act(pool).observation[:, 0].tolist() == [2, 2, 0, 0]


def test_sigterm_ends_no_worker_but_what_its_environments_start(pools):
    pool = pools(env=Starts)
    pids = processes(pool.reset(seed=0))
    for pid in set(pids):
        os.kill(pid, signal.SIGTERM)
    timestep = act(pool)
    assert not timestep.lost.any()
    assert processes(timestep).tolist() == pids.tolist()


def test_a_reset_after_a_death_loses_nothing(pools):
    pool = pools()
    pids = processes(pool.reset(seed=0))
    os.kill(pids[0], 9)
    assert has_ended(pids[0])
    timestep = pool.reset(seed=1)
    assert not timestep.lost.any()
    assert not timestep.truncated.any()
    assert timestep.observation[:, 0].tolist() == [0] * 4


def test_a_worker_that_dies_too_often_ends_the_pool_with_its_last_words(pools):
    pool = pools(restarts=1)
    pool.reset(seed=0)
    act(pool, e0=EXIT)
    act(pool)
    for _ in range(2):
        with pytest.raises(
            RunError, match=r"exited with code 3, 2 times in a row, soon after each start\n"
        ) as told:
            act(pool, e0=EXIT)
        assert "licence server is gone" in str(told.value)


def test_a_worker_that_dies_soon_after_each_start_ends_the_pool_though_it_has_stepped(pools):
    pool = pools(1, restarts=1, workers=1)
    pool.reset(seed=0)
    assert act(pool, e0=KILL).lost.all()
    for _ in range(101):
        act(pool)
    with pytest.raises(RunError, match="2 times in a row, soon after each start"):
        act(pool, e0=KILL)


def test_a_pool_tells_at_its_end_how_often_workers_died(pools, caplog):
    pool = pools()
    pool.reset(seed=0)
    act(pool, e0=KILL)
    act(pool, e3=KILL)
    pool.close()
    assert "worker processes died 2 times, and were started again" in caplog.text


def test_work_in_between_gives_a_worker_its_restarts_back(pools, monkeypatch):
    monkeypatch.setattr("srl.pools.python.processes.handle.PROGRESS_STARTS", 0.0)
    pool = pools(1, restarts=1, workers=1)
    pool.reset(seed=0)
    for _ in range(3):
        assert act(pool, e0=KILL).lost.all()
        for _ in range(101):
            act(pool)


def test_an_environment_that_hangs_is_named_with_its_stack(pools, caplog):
    caplog.set_level(logging.INFO)
    pool = pools(step_timeout=0.5)
    pool.reset(seed=0)
    with pytest.raises(RunError, match=r"environment 3, in worker 1 .* has not finished") as told:
        act(pool, e3=HANG)
    assert "wait_for_ever" in str(told.value)
    assert "it was here:" in str(told.value)
    assert "srl/pools" not in str(told.value)  # the environment's frames alone
    assert "sleeping" in str(told.value)
    pool.close()
    assert caplog.text.count("in wait_for_ever") == 1


def test_a_stopped_process_is_named_as_stopped(pools):
    pool = pools(step_timeout=0.5)
    pool.reset(seed=0)
    with pytest.raises(RunError, match=r"environment 0, in worker 0 .*is stopped by a signal"):
        act(pool, e0=STOP)


def test_a_worker_that_does_not_start_in_time_is_told():
    def make():
        threading.Event().wait()

    with pytest.raises(RunError, match=r"worker 0 .* has not made its environments within 2 s"):
        make_pool(make, 1, workers=1, start_timeout=2)


def test_a_pool_that_gets_no_descriptor_says_so_and_leaves_none_open():
    def open_files():
        gc.collect()
        return [int(fd) for fd in os.listdir("/proc/self/fd")]

    make_pool(Peculiar, 1, workers=1).close()  # loads all modules
    gc.freeze()  # what is there by now is not looked at each time
    limits, held = resource.getrlimit(resource.RLIMIT_NOFILE), []
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(open_files()) + 64, limits[1]))
    try:
        errors = []
        while not errors or errors[-1]:
            gc.collect()
            with suppress(OSError):
                while True:
                    held.append(os.dup(0))
            for _ in range(3 * (len(errors) + 1)):
                os.close(held.pop())
            before = len(open_files())
            try:
                make_pool(Peculiar, 1, workers=1).close()
                errors.append("")
            except RunError as error:
                errors.append(str(error))
            assert len(open_files()) == before, errors
        assert len(errors) > 1, "three descriptors were enough for a pool"
        assert all("cannot start a worker process: " in error for error in errors[:-1])
    finally:
        for fd in held:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        gc.unfreeze()


def test_environments_made_anew_with_other_spaces_are_refused_for_good(pools, tmp_path):
    path = str(tmp_path / "first")

    def make():
        env = Peculiar()
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            env.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (4096,))
        return env

    pool = pools(1, make, workers=1)
    pool.reset(seed=0)
    assert act(pool, e0=KILL).lost[0]
    for _ in range(2):
        with pytest.raises(RunError, match="environment 0 made anew has observation space Box"):
            act(pool)
    with pytest.raises(RunError, match="made anew"):
        pool.reset(seed=0)


def test_a_standard_error_that_was_closed_is_no_longer_watched(pools):
    pool = pools(1, Mute, workers=1)
    stderr = pool._handles[0].stderr
    pool.reset(seed=0)
    act(pool)
    assert stderr not in pool._watched
    with pytest.raises(RunError, match="no such joint"):
        act(pool, e0=RAISE)


class Lacking(Unseen):
    """Renders with a package that is not there."""

    def render(self):
        import a_package_that_nobody_has  # type: ignore[import-not-found]  # noqa: F401


@pytest.mark.parametrize("workers", [0, 1])
def test_a_package_that_rendering_lacks_is_told_in_a_line(pools, workers):
    pool = pools(1, Lacking, workers=workers)
    pool.reset(seed=0)
    told = "^Lacking cannot be rendered: No module named 'a_package_that_nobody_has'$"
    with pytest.raises(UserError, match=told):
        pool.render(0)


@pytest.mark.parametrize("workers", [0, 1])
def test_what_is_no_picture_is_told(pools, workers):
    pool = pools(1, Unseen, workers=workers)
    pool.reset(seed=0)
    with pytest.raises(UserError, match=r'environment 0 gave no picture.*render_mode="rgb_array"'):
        pool.render(0)
    act(pool)
    with pytest.raises(RunError, match=r"environment 0 could not be rendered:(.|\n)*no display"):
        pool.render(0)
    with pytest.raises(UserError, match="environment id 1; expected 0 to 0"):
        pool.render(1)
    assert act(pool).episode_length == 2


# ---- the end ----


def test_closing_ends_the_processes_and_leaves_nothing_open():
    gc.collect()
    files = len(os.listdir("/proc/self/fd"))
    pool = make_pool(Peculiar, 4, workers=2)
    pids = processes(pool.reset(seed=0))
    pool.rows(2)
    pool.close()
    pool.close()
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)
    del pool
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == files


def test_a_forgotten_pool_ends_its_processes():
    pool = make_pool(Peculiar, 2, workers=2)
    pids = processes(pool.reset(seed=0))
    del pool
    gc.collect()
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)


ORPHANS = """
import sys, threading
import numpy as np
from peculiar_envs import Peculiar
from srl import make_pool
pool = make_pool(Peculiar, 2, workers=2)
print(*pool.reset(seed=0).observation[:, 2].astype(int), flush=True)
"""


@pytest.mark.parametrize(
    "end", ["", "import os; os.kill(os.getpid(), 9)", "pool.step(np.array([5, 5]))"]
)
def test_workers_end_with_the_process_that_started_them(end):
    process = subprocess.Popen(
        [sys.executable, "-c", ORPHANS + end],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    with process:
        pids = [int(word) for word in process.stdout.readline().split()]
        assert len(pids) == 2
        if "step" in end:
            process.kill()  # while the workers hang
    assert all(has_ended(pid) for pid in pids)


def test_workers_outlive_an_interrupt_of_the_terminal(pools):
    pool = pools()
    for pid in processes(pool.reset(seed=0)):
        os.kill(pid, 2)
    assert not act(pool).lost.any()


# ---- the rest ----


def test_the_episode_after_an_end_starts_without_an_action(pools):
    pool = pools(2)
    pool.reset(seed=0)
    assert act(pool, e1=END).terminated.tolist() == [False, True]
    assert act(pool, e1=RAISE).observation[:, 0].tolist() == [2, 0]


def resident(pid):
    with open(f"/proc/{pid}/status") as file:
        return int(re.search(r"VmRSS:\s+(\d+)", file.read())[1])


@pytest.mark.parametrize("steps", [3_000, pytest.param(300_000, marks=pytest.mark.slow)])
def test_memory_stays_as_it_is(pools, steps):
    pool = pools(8)
    pids = [os.getpid(), *set(processes(pool.reset(seed=0)))]

    def go(steps):
        for k in range(steps):
            pool.step(np.full(8, END if k % 5 == 0 else FINE))
            if k % 10 == 0:
                pool.step(np.full(8, FINE), into=pool.rows(3)[2])
        gc.collect()
        return_freed_memory()
        return [resident(pid) for pid in pids]

    before = go(500)
    after = go(steps)
    # 1 kB a step would be 3 MB.
    assert all(b - a < 1_500 for a, b in zip(before, after, strict=True)), (before, after)
