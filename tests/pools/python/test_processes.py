"""Pools of Python environments in worker processes."""

import os
import subprocess
import sys
import textwrap
import threading
import time
from functools import partial

import gymnasium
import numpy as np
import peculiar_envs as peculiar
import pytest
from gymnasium import spaces
from peculiar_envs import FINE, Peculiar, act, processes

from srl import RunError, UserError, make_pool

SPACES = {
    "box": spaces.Box(-1, 1, (3,), np.float32),
    "box of doubles": spaces.Box(-1, 1, (2, 2), np.float64),
    "image": spaces.Box(0, 255, (5, 5, 3), np.uint8),
    "discrete": spaces.Discrete(5, start=2),
    "multi-discrete": spaces.MultiDiscrete([3, 4]),
    "multi-binary": spaces.MultiBinary(4),
    "nested": spaces.Dict(
        {
            "one": spaces.Tuple((spaces.Discrete(3), spaces.Box(0, 9, (2,), np.int64))),
            "two": spaces.Dict({"inner": spaces.MultiBinary(2)}),
        }
    ),
}
ACTIONS = [
    spaces.Discrete(3, start=1),
    spaces.MultiDiscrete([2, 3]),
    spaces.Box(-1, 1, (2,), np.float32),
]


def flat(timestep):
    """All arrays of a timestep, copied."""
    found = []

    def walk(tree):
        if isinstance(tree, dict):
            for part in tree.values():
                walk(part)
        elif isinstance(tree, tuple):
            for part in tree:
                walk(part)
        else:
            found.append(tree.copy())

    walk(tuple(timestep))
    return found


def trajectory(pool, steps=12):
    """Timesteps from a reset on, with actions that are drawn anew each step."""
    pool.specs.action.seed(0)
    seen = [flat(pool.reset(seed=5))]
    for _ in range(steps):
        actions = np.stack([pool.specs.action.sample() for _ in range(pool.num_envs)])
        seen.append(flat(pool.step(actions)))
    return seen


def assert_same(some, others):
    for a, b in zip(some, others, strict=True):
        for x, y in zip(a, b, strict=True):
            np.testing.assert_array_equal(x, y)


# ---- the same as in this process ----


@pytest.mark.parametrize("kind", SPACES)
def test_every_space_gives_the_same_trajectories_as_in_this_process(pools, kind):
    number = list(SPACES).index(kind)
    env = partial(peculiar.Chancy, SPACES[kind], ACTIONS[number % len(ACTIONS)])
    here = trajectory(pools(5, env, workers=0))
    assert any(x.any() for x in here[-1])
    assert_same(here, trajectory(pools(5, env, workers=2)))


def test_the_number_of_workers_changes_nothing(pools):
    assert_same(
        trajectory(pools(3, "CartPole-v1", workers=1), 60),
        trajectory(pools(3, "CartPole-v1", workers=9), 60),
    )


def test_two_runs_with_a_seed_are_the_same(pools):
    pool = pools(3, "CartPole-v1")
    assert_same(trajectory(pool), trajectory(pool))


@pytest.mark.parametrize("workers", [0, 2])
def test_asynchronous_batches_hold_each_environments_own_trajectory(pools, workers):
    env = partial(peculiar.Chancy, SPACES["nested"], spaces.Discrete(2))
    together = pools(5, env, workers=0)
    expected = {i: [] for i in range(5)}
    for timestep in [together.reset(seed=3)] + [together.step(np.ones(5, int)) for _ in range(9)]:
        for i in range(5):
            expected[i].append(timestep.observation["one"][1][i].tolist())
    pool = pools(5, env, batch_size=2, workers=workers)
    pool.async_reset(seed=3)
    seen = {i: [] for i in range(5)}
    while min(len(rows) for rows in seen.values()) < 8:
        timestep = pool.recv()
        for row, i in enumerate(timestep.env_id.tolist()):
            seen[i].append(timestep.observation["one"][1][row].tolist())
        # Those that are behind go on; the others may pause.
        wanted = [i for i in timestep.env_id if len(seen[i]) < 10]
        pool.send(np.ones(len(wanted), int), np.array(wanted, int))
    for i, rows in seen.items():
        assert rows == expected[i][: len(rows)]


def test_a_masked_reset_starts_only_what_it_names(pools):
    pool = pools()
    row = pool.rows(1)[0]
    pool.reset(seed=0, into=row)
    pool.step(np.full(4, FINE), into=row)
    pool.reset(seed=7, into=row, mask=np.array([False, True, True, False]))
    assert row.timestep.observation[:, 0].tolist() == [1, 0, 0, 1]
    assert row.timestep.episode_length.tolist() == [1, 0, 0, 1]


def test_rows_are_written_in_place_and_aligned(pools):
    pool = pools()
    rows = pool.rows(3)
    pool.reset(seed=0, into=rows[0])
    for t in (1, 2):
        assert pool.step(np.full(4, FINE), into=rows[t]) is rows[t].timestep
    assert rows.timesteps.observation[:, :, 0].tolist() == [[0] * 4, [1] * 4, [2] * 4]
    assert all(leaf.ctypes.data % 64 == 0 for leaf in rows.timesteps)
    with pytest.raises(UserError, match="row of another pool"):
        pool.step(np.full(4, FINE), into=pools(4, workers=0).rows(1)[0])


def test_memory_that_is_not_there_is_refused_before_it_is_used(pools):
    pool = pools(2)
    with pytest.raises(
        RunError, match=r"cannot reserve .* bytes of shared memory.*shorter unrolls"
    ):
        pool.rows(10**11)
    assert pool.reset(seed=0).observation[0, 0] == 0


def test_what_a_call_returned_stays_as_it_is(pools):
    pool = pools()
    first = pool.reset(seed=0)
    part = pool.step(np.full(4, FINE)).observation[1:2]
    for _ in range(3):
        pool.step(np.full(4, FINE))
    assert first.observation[:, 0].tolist() == [0] * 4
    assert part[0, 0] == 1


# ---- asynchronous use ----


def opened(folder, count):
    """Pipes by which Gated environments are let go on."""
    gates = []
    for i in range(count):
        os.mkfifo(folder / str(i))
        gates.append(os.open(folder / str(i), os.O_RDWR))
    return gates


def test_a_slow_environment_does_not_hold_back_the_rest(pools, tmp_path):
    gates = opened(tmp_path, 4)
    for gate in gates[1:]:
        os.write(gate, b"." * 50)
    pool = pools(4, env=partial(peculiar.Gated, str(tmp_path)), batch_size=1, workers=4)
    pool.async_reset(seed=0)
    pool.send(np.full(4, FINE), np.concatenate([pool.recv().env_id for _ in range(4)]))
    seen = []
    for _ in range(30):
        seen += (ids := pool.recv().env_id.copy()).tolist()
        pool.send(np.array([FINE]), ids)
    assert 0 not in seen  # which of the others come, and how often, is up to the machine
    os.write(gates[0], b".")
    while 0 not in seen:
        timestep = pool.recv()
        seen += timestep.env_id.tolist()
    assert timestep.observation[0, 0] == 1
    for gate in gates:
        os.write(gate, b"." * 50)
        os.close(gate)


def test_a_batch_holds_those_that_were_ready_first(pools, tmp_path):
    gates = opened(tmp_path, 3)
    pool = pools(3, env=partial(peculiar.Gated, str(tmp_path)), batch_size=1, workers=3)
    pool.async_reset(seed=0)
    pool.send(np.full(3, FINE), np.concatenate([pool.recv().env_id for _ in range(3)]))
    for i in (1, 2, 0):
        os.write(gates[i], b".")
        assert pool.recv().env_id.tolist() == [i]
    for gate in gates:
        os.close(gate)


@pytest.mark.parametrize("workers", [1, 4])
def test_a_step_measures_how_long_its_workers_wait_for_the_slowest(pools, tmp_path, workers):
    gates = opened(tmp_path, 4)
    for gate in gates[:3]:
        os.write(gate, b".")
    pool = pools(4, env=partial(peculiar.Gated, str(tmp_path)), workers=workers)
    pool.reset(seed=0)
    others = [(handle, handle.stepped) for handle in pool._handles[:-1]]

    def open_last():
        """Lets the last environment go on once all other workers are known to be done."""
        deadline = time.monotonic() + 60
        while any(handle.stepped == before for handle, before in others):
            if time.monotonic() > deadline:
                break
            threading.Event().wait(0.001)
        os.write(gates[3], b".")

    opening = threading.Thread(target=open_last)
    opening.start()
    begin = time.monotonic()
    act(pool)
    elapsed = time.monotonic() - begin
    opening.join()
    # A mean of four that is furthest from the last one if three end at once.
    assert pool.skew == 0 if workers == 1 else 0 < pool.skew <= 0.75 * elapsed
    for gate in gates:
        os.close(gate)


# ---- what the workers make ----


def test_workers_load_neither_jax_nor_flax_and_take_one_thread_each(pools):
    timestep = pools(2, peculiar.Surroundings).reset(seed=0)
    assert timestep.observation[:, :2].tolist() == [[0, 1], [0, 1]]
    assert len({os.getpid(), *processes(timestep)}) == 3


class CoreCounting(gymnasium.Env):
    """Observes on how many cores it may run."""

    observation_space, action_space = spaces.Box(0, 1e4, (1,)), spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return self._observed(), {}

    def step(self, action):
        return self._observed(), 0.0, False, False, {}

    def _observed(self):
        return np.array([len(os.sched_getaffinity(0))], np.float32)


CORES = os.sched_getaffinity(0)


def test_workers_sleep_on_a_core_each_where_they_are_as_many(pools):
    pool = pools(len(CORES), workers=len(CORES))
    pids = processes(pool.reset(seed=0)).tolist()
    own, deadline = [{core} for core in sorted(CORES)], time.monotonic() + 60
    while [os.sched_getaffinity(pid) for pid in pids] != own:
        assert time.monotonic() < deadline
        act(pool)  # one that began this late, as others keep its core busy, sleeps anywhere
        threading.Event().wait(0.01)


def test_more_workers_sleep_on_any_core(pools):
    workers = len(CORES) + 1
    pool = pools(workers, workers=workers)
    pids = processes(pool.reset(seed=0)).tolist()
    for _ in range(20):
        act(pool)
        assert [os.sched_getaffinity(pid) for pid in pids] == [CORES] * workers


def test_environments_may_use_all_cores_though_workers_wait_on_their_own(pools):
    cores = len(CORES)
    pool = pools(cores, CoreCounting, workers=cores)
    seen = [pool.reset(seed=0), *(pool.step(np.zeros(cores, int)) for _ in range(3))]
    assert all((timestep.observation == cores).all() for timestep in seen)


@pytest.mark.parametrize(
    "env", ["peculiar_envs:Peculiar-v0", "peculiar_envs.Peculiar", Peculiar, lambda: Peculiar()]
)
def test_ids_paths_classes_and_lambdas_are_made_in_the_workers(pools, env):
    timestep = pools(2, env).reset(seed=0)
    assert os.getpid() not in processes(timestep)


def test_a_closure_with_a_wrapper_is_made_in_the_workers(pools):
    limit = 2

    def make():
        return gymnasium.wrappers.TimeLimit(Peculiar(), limit)

    pool = pools(2, make)
    pool.reset(seed=0)
    act(pool)
    assert act(pool).truncated.all()


def test_an_id_that_only_this_process_registered_is_known_to_the_workers(pools):
    class Local(Peculiar):
        pass

    gymnasium.register("LocalToTheTest-v0", Local)
    try:
        assert pools(2, "LocalToTheTest-v0").reset(seed=0).observation[0, 0] == 0
    finally:
        del gymnasium.registry["LocalToTheTest-v0"]


def test_a_script_needs_no_guard_and_its_own_class_and_folder_are_found(tmp_path):
    (tmp_path / "beside.py").write_text("NUMBER = 7\n")
    (tmp_path / "script.py").write_text(
        textwrap.dedent(
            """
            import os
            import gymnasium
            import numpy as np
            from gymnasium import spaces
            from srl import make_pool

            class Mine(gymnasium.Env):
                observation_space, action_space = spaces.Discrete(10), spaces.Discrete(2)

                def reset(self, *, seed=None, options=None):
                    from beside import NUMBER
                    assert os.path.exists("script.py")
                    return NUMBER, {}

            pool = make_pool(Mine, 2, workers=2)
            print(pool.reset(seed=0).observation.tolist())
            """
        )
    )
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "[7, 7]\n", "")


def test_a_function_of_an_experiment_file_is_made_in_the_workers(pools, tmp_path):
    from srl.config.experiment import load_experiment

    (tmp_path / "file.py").write_text(
        "from srl import Experiment\n"
        "from peculiar_envs import Peculiar\n"
        "class Mine(Peculiar):\n    pass\n"
        "def make():\n    return Mine()\n"
        "experiment = Experiment(name='mine', env=make)\n"
    )
    env = load_experiment(str(tmp_path / "file.py")).experiment.env
    assert pools(2, env).reset(seed=0).observation[0, 0] == 0


def test_what_cannot_be_pickled_is_told_with_what_to_do():
    lock = threading.Lock()

    def make():
        return Peculiar() if lock else None

    with pytest.raises(UserError, match=r"cannot be sent to a worker process.*workers=0"):
        make_pool(make, 2, workers=1)


def test_an_environment_that_cannot_be_made_comes_with_its_whole_traceback():
    with pytest.raises(RunError, match="making environment 0 raised ValueError") as told:
        make_pool(peculiar.Unmade, 2, workers=1)
    assert "self.find_licence()" in str(told.value)
    assert "ValueError: no licence" in str(told.value)


def test_environments_whose_spaces_differ_are_named(tmp_path):
    path = str(tmp_path / "first")

    def make():
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL))
            size = 2
        except FileExistsError:
            size = 3
        return peculiar.Chancy(spaces.Discrete(size), spaces.Discrete(2))

    with pytest.raises(UserError, match=r"environment 1 has observation space Discrete\(3\)"):
        make_pool(make, 2, workers=1)
    os.remove(path)
    with pytest.raises(UserError, match="environment 1 has observation space Discrete"):
        make_pool(make, 2, workers=2)


# ---- wrong calls ----


@pytest.mark.parametrize("workers", [0, 1])
def test_actions_that_are_not_finite_are_refused(pools, workers):
    env = partial(peculiar.Chancy, SPACES["box"], ACTIONS[2])
    pool = pools(2, env, workers=workers)
    pool.reset(seed=0)
    with pytest.raises(UserError, match=r"environment 1: the action .* is not finite"):
        pool.step(np.array([[0, 0], [0, np.nan]]))


def test_a_second_thread_is_refused(pools, tmp_path):
    gates = opened(tmp_path, 1)
    pool = pools(1, partial(peculiar.Gated, str(tmp_path)), render_mode="rgb_array", workers=1)
    pool.reset(seed=0)
    inside = threading.Event()
    actions = np.array([FINE])

    def step():
        inside.set()
        pool.step(actions)

    thread = threading.Thread(target=step)
    thread.start()
    inside.wait()

    def render_until_refused():
        while thread.is_alive():  # until it has come in
            pool.render(0)

    with pytest.raises(UserError, match="used by another thread"):
        render_until_refused()
    with pytest.raises(UserError, match="used by another thread"):
        pool.close()
    os.write(gates[0], b".")
    thread.join()
    os.close(gates[0])
    assert pool.render(0)[0, 0, 0] == 1  # still open
