"""A mixture's environments are those of its tasks, behind padded spaces."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from srl import Mixture, UserError, make_pool
from srl.config.experiment import load_experiment
from srl.core.tree import leaves_of
from srl.pools import NamedEnv
from srl.pools.lessons import LessonPool
from srl.pools.mixture import mixture_of
from srl.pools.pool import seed_offset

BODIES = Mixture({"swing": "native:Pendulum-v1", "hop": "native:Hopper-v5"}, {"hop": 2})
"""Of 1 and 3 numbers of an action, within 2 and 1, and of 3 and 11 numbers observed."""
GAMES = "mixture:cart=native:CartPole-v1,climb=native:MountainCar-v0"


@pytest.fixture
def bodies():
    with make_pool(BODIES, 6) as pool:
        yield pool


def actions(count=6):
    return np.random.default_rng(0).uniform(-1, 1, (count, 3)).astype(np.float32)


def test_each_task_steps_as_it_does_alone(bodies):
    """The seeds of a task are neighbours: those of the first period, and so on."""
    observed = bodies.reset(7).observation
    np.testing.assert_array_equal(observed["task"], [0, 1, 1, 0, 1, 1])
    alone = [make_pool(env, n) for env, n in (("native:Pendulum-v1", 2), ("native:Hopper-v5", 4))]
    slots, offsets = ([0, 3], [1, 2, 4, 5]), [seed_offset(f"task {k} of 1") for k in (0, 1)]
    first = [alone[k].reset(7 // 3 * share + offsets[k]) for k, share in enumerate((1, 2))]
    for own, timestep, size in zip(slots, first, (3, 11), strict=True):
        np.testing.assert_array_equal(observed["observation"][own, :size], timestep.observation)
        assert not observed["observation"][own, size:].any()
    together = bodies.step(actions())
    swung = alone[0].step(2 * actions()[slots[0], :1])  # between -2 and 2
    hopped = alone[1].step(actions()[slots[1]])
    np.testing.assert_array_equal(together.reward[slots[0]], swung.reward)
    np.testing.assert_array_equal(together.reward[slots[1]], hopped.reward)
    names = alone[1].specs.statistics
    assert bodies.specs.statistics == names
    np.testing.assert_array_equal(together.statistics[slots[1]], hopped.statistics)
    assert np.isnan(together.statistics[slots[0]]).all()
    for pool in alone:
        pool.close()


def test_masks_leave_out_the_numbers_and_choices_that_a_task_does_not_have(bodies):
    masks = bodies.reset(0).observation["action_mask"]
    assert masks.tolist() == [[1, 0, 0], [1, 1, 1], [1, 1, 1]] * 2
    with make_pool(GAMES, 2) as games:
        assert games.specs.action.n == 3
        assert games.reset(0).observation["action_mask"].tolist() == [[1, 1, 0], [1, 1, 1]]
    with make_pool("mixture:one=native:CartPole-v1,other=CartPole-v1", 2) as same:
        assert "action_mask" not in same.reset(0).observation


def test_seeds_do_not_depend_on_the_groups_that_environments_are_divided_into(bodies):
    whole = bodies.reset(8).observation["observation"]
    with make_pool(BODIES, 3) as half:
        np.testing.assert_array_equal(whole[:3], half.reset(8).observation["observation"])
        np.testing.assert_array_equal(whole[3:], half.reset(8 + 3).observation["observation"])
        assert not np.array_equal(whole[:3], half.reset(9).observation["observation"])


class Drawn(gymnasium.Env):
    """An environment that draws by NumPy's generator of old, which takes seeds of 32 bits."""

    observation_space = spaces.Box(0, 1, (1,), np.float64)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        np.random.seed(seed)
        return np.random.rand(1), {}


def test_the_seeds_of_tasks_and_lessons_fit_simulators_and_do_not_meet():
    """Of a lesson's mixture with the largest seed of a run; seeds modulo 2**31 differ, too."""
    mixture = Mixture({"a": Drawn, "b": Drawn}, {"a": 3})
    with LessonPool([lambda n: make_pool(mixture, n)] * 2, 8) as pool:
        drawn = list(pool.reset(2**31 - 1).observation["observation"].ravel())
        pool.enter(1)
        drawn += list(pool.reset().observation["observation"].ravel())
        assert len(set(drawn)) == 16
    tasks = ["vector:CartPole-v1", "CartPole-v1"]
    for task in tasks:
        with make_pool(Mixture({"a": task, "b": task}), 4) as pool:
            observed = [pool.reset(seed).observation["observation"] for seed in (0, 1)]
            assert len(np.unique(np.concatenate(observed), axis=0)) == 8


def test_a_mixture_goes_on_from_a_saved_state(bodies):
    bodies.reset(0)
    state = bodies.save()
    first = [bodies.step(actions()) for _ in range(3)]
    bodies.restore(state)
    again = [bodies.step(actions()) for _ in range(3)]
    for a, b in zip(leaves_of(tuple(first)), leaves_of(tuple(again)), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_masked_reset_leaves_the_other_environments_alone(bodies):
    rows = bodies.rows(1)
    bodies.reset(0, rows[0])
    before = rows[0].timestep.observation["observation"].copy()
    for _ in range(2):
        bodies.step(actions(), rows[0])
    stepped = rows[0].timestep.observation["observation"].copy()
    mask = np.array([0, 1, 0, 0, 0, 0], bool)
    bodies.reset(0, rows[0], mask)
    after = rows[0].timestep.observation["observation"]
    np.testing.assert_array_equal(after[mask], before[mask])
    np.testing.assert_array_equal(after[~mask], stepped[~mask])


def test_environments_of_a_mixture_are_sent_to_in_any_order(bodies):
    first = bodies.reset(0).observation["observation"].copy()
    stepped = bodies.step(actions()).observation["observation"].copy()
    bodies.async_reset(0)
    np.testing.assert_array_equal(bodies.recv().observation["observation"], first)
    bodies.send(actions()[::-1], np.arange(6)[::-1])
    np.testing.assert_array_equal(bodies.recv().observation["observation"], stepped)


def test_a_compiled_program_steps_a_mixture_as_the_pool_does(bodies):
    bodies.reset(0)
    state, xla = bodies.save(), bodies.xla()
    _, compiled = jax.jit(xla.step)(xla.init(), jnp.asarray(actions()))
    compiled = jax.tree.map(np.array, compiled)
    bodies.restore(state)
    plain = bodies.step(actions())
    for a, b in zip(leaves_of(compiled), leaves_of(plain), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, atol=1e-6)


def test_a_command_line_names_tasks_and_their_options():
    text = "mixture:run=native:HalfCheetah-v5,native:Hopper-v5"
    options = {"shares": "2,1", "run.reset_noise_scale": 0.2}
    mixture = mixture_of(NamedEnv(text, options))
    assert mixture.task_of == (0, 0, 1)
    run = NamedEnv("native:HalfCheetah-v5", {"reset_noise_scale": 0.2})
    assert mixture.tasks == {"run": run, "Hopper-v5": "native:Hopper-v5"}
    with make_pool(text, 2, only="run", **{"run.reset_noise_scale": 0.0}) as pool:
        assert pool.specs.tasks == ("run", "Hopper-v5")
        assert pool.reset(0).observation["task"].tolist() == [0, 0]
        first = pool.reset(0).observation["observation"]
        np.testing.assert_array_equal(first[0], first[1])  # nothing is drawn


def test_a_command_line_changes_the_mixture_of_a_file(tmp_path):
    file = tmp_path / "bodies.py"
    file.write_text(
        "from srl import Experiment, Mixture\n"
        "env = Mixture({'run': 'native:HalfCheetah-v5', 'hop': 'native:Hopper-v5'})\n"
        "experiment = Experiment(name='bodies', env=env, num_envs=6)\n"
    )
    words = ["--env.shares", "2,1", "--env.run.reset-noise-scale", "0.2"]
    words += ["--env.tasks.hop", "native:Walker2d-v5"]
    mixture = load_experiment(str(file), words).experiment.env
    assert mixture.task_of == (0, 0, 1)
    run = NamedEnv("native:HalfCheetah-v5", {"reset_noise_scale": 0.2})
    assert mixture.tasks == {"run": run, "hop": "native:Walker2d-v5"}
    with pytest.raises(UserError, match=r"an option is 'jump\.x'; expected TASK\.OPTION"):
        load_experiment(str(file), ["--env.jump.x", "1"])


def test_a_task_with_a_dash_takes_options_with_either_sign():
    mixture = mixture_of("mixture:native:HalfCheetah-v5,native:Hopper-v5")
    for name in ("Hopper-v5", "Hopper_v5"):
        changed = mixture.with_options({f"{name}.reset_noise_scale": 0.2})
        assert changed.tasks["Hopper-v5"] == NamedEnv(
            "native:Hopper-v5", {"reset_noise_scale": 0.2}
        )


def test_tasks_that_differ_by_their_dashes_keep_their_own_options():
    mixture = Mixture({"a-b": "CartPole-v1", "a_b": "CartPole-v1"})
    changed = NamedEnv("CartPole-v1", {"x": 1})
    assert mixture.with_options({"a-b.x": 1}).tasks == {"a-b": changed, "a_b": "CartPole-v1"}
    assert mixture.with_options({"a_b.x": 1}).tasks == {"a-b": "CartPole-v1", "a_b": changed}


def test_agents_of_several_tasks_observe_the_keys_that_they_would_alone():
    game = NamedEnv("native:HideAndSeek-v1", {"horizon": 20})
    with make_pool(Mixture({"a": game, "b": game}), 4) as pool, make_pool(game, 2) as one:
        parts = dict(pool.specs.observation.spaces)
        assert parts.pop("task").n == 2
        assert parts == dict(one.specs.observation.spaces)
        assert (pool.specs.action, pool.specs.agents) == (one.specs.action, one.specs.agents)
        agents = len(one.specs.agents)
        observed = pool.reset(0).observation
        alone = one.reset(seed_offset("task 1 of 0")).observation
        assert (
            observed["task"].tolist() == [0] * agents + [1] * agents + [0] * agents + [1] * agents
        )
        second = np.arange(4 * agents).reshape(4, agents)[1::2].ravel()
        for name, rows in alone.items():
            np.testing.assert_array_equal(observed[name][second], rows)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Mixture({}), "tasks is {}"),
        (lambda: Mixture({"a.b": "CartPole-v1"}), "a task's name is 'a.b'"),
        (lambda: Mixture({"a": "CartPole-v1"}, {"b": 1}), "shares is 'b'; expected one of a"),
        (lambda: Mixture({"a": "CartPole-v1"}, only="b"), "only is 'b'; expected one of a"),
        (lambda: Mixture({"a": Mixture({"b": "CartPole-v1"})}), "task 'a' is a mixture"),
        (lambda: Mixture({"a": "evil:X=CartPole-v1"}), "an id without , and ="),
        (lambda: Mixture({"a": "CartPole-v1,b=evil:X"}), "an id without , and ="),
        (lambda: make_pool("mixture:Pendulum-v1,native:Pendulum-v1", 2), "have the same name"),
        (lambda: make_pool(GAMES, 2, shares="1"), "shares is '1'; expected 2 numbers"),
        (lambda: make_pool(GAMES, 2, **{"hop.x": 1}), "an option is 'hop.x'"),
        (lambda: make_pool(GAMES, 2, **{"cart.x": 1}), "CartPole-v1: unknown option 'x'"),
        (lambda: make_pool(GAMES, 2, batch_size=1), "batch_size=1 does nothing"),
        (lambda: make_pool(GAMES, 2, wrappers=()), "gives such options to tasks"),
        (
            lambda: make_pool(Mixture({"a": "native:Pendulum-v1", "b": "native:CartPole-v1"}), 2),
            "a has action space Box",
        ),
        (
            lambda: make_pool(
                Mixture({"a": "native:HideAndSeek-v1", "b": "native:CartPole-v1"}), 2
            ),
            "b has agents agent, and a hider_0",
        ),
    ],
)
def test_what_makes_no_mixture_is_refused(make, message):
    with pytest.raises(UserError) as error:
        make()
    assert message in str(error.value)


# ---- lessons ----


def mazes(num_envs, *lengths):
    def maker(length):
        return lambda n: make_pool("jax:srl.envs.t_maze:TMaze", n, length=length)

    return LessonPool([maker(length) for length in lengths], num_envs)


def test_another_lesson_begins_new_episodes_with_its_options():
    with mazes(2, 2, 4) as pool:
        rows = pool.rows(2)
        pool.reset(0, rows[0])
        ends = [pool.step(np.zeros(2, np.int32), rows[1]).terminated.all() for _ in range(3)]
        assert ends == [False, True, False]
        pool.enter(1)
        pool.reset(into=rows[0])
        ends = [pool.step(np.zeros(2, np.int32), rows[1]).terminated.all() for _ in range(4)]
        assert ends == [False, False, False, True]
        state, first = pool.save(), rows[0].timestep.observation.copy()
    with mazes(2, 2, 4) as again:
        again.restore(state)
        assert again.lesson == 1
        again.reset(0)
        again.enter(1)
        np.testing.assert_array_equal(again.reset().observation, first)


@pytest.mark.parametrize("changed", [{"only": "climb"}, {"shares": "2,1"}])
def test_lessons_that_change_the_tasks_of_a_mixture_are_refused(changed):
    makers = [lambda n: make_pool(GAMES, n), lambda n: make_pool(GAMES, n, **changed)]
    with pytest.raises(UserError, match="lesson 2 changes a mixture's tasks or their shares"):
        LessonPool(makers, 2)


def test_another_thread_may_look_at_the_progress_of_environments_that_a_lesson_replaces():
    with LessonPool([lambda n: make_pool("native:CartPole-v1", n)] * 2, 2) as pool:
        pool.reset(0)
        calls = pool.xla()
        pool.enter(1)
        assert calls.progress == 0
        with pytest.raises(UserError, match="is closed"):
            calls.init()


def test_lessons_of_other_spaces_are_refused():
    makers = [lambda n: make_pool("native:CartPole-v1", n), lambda n: make_pool(GAMES, n)]
    with pytest.raises(UserError, match="lesson 2 have the observation"):
        LessonPool(makers, 2)
