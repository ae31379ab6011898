"""What a vector environment must do, asked of Gymnasium's own and of ours over every pool."""

from functools import partial
from importlib.util import find_spec

import gymnasium
import numpy as np
import pytest
from gymnasium import wrappers
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.vector.utils import batch_space
from walk import Walk

from srl import make_vec

NEXT_STEP, SAME_STEP, DISABLED = AutoresetMode


def gymnasiums(env, num_envs, *, autoreset_mode=NEXT_STEP, **options):
    """Gymnasium's own, with our arguments."""
    made = partial(gymnasium.make, env, **options) if isinstance(env, str) else partial(env)
    return SyncVectorEnv([made] * num_envs, autoreset_mode=autoreset_mode)


PYTHON = {
    "gymnasium": gymnasiums,
    "serial": make_vec,
    "processes": partial(make_vec, workers=2),
}
FREELY_SEEDED = {
    **{name: partial(make, "CartPole-v1") for name, make in PYTHON.items()},
    "native": partial(make_vec, "native:CartPole-v1"),
}
CARTPOLES = dict(FREELY_SEEDED)
if find_spec("envpool") and find_spec("srl.pools.envpool"):
    # It makes all environments anew for a seed, from neighbouring seeds alone.
    CARTPOLES["envpool"] = partial(make_vec, "envpool:CartPole-v1")


def closing(request, makers):
    made = []

    def make(*arguments, **named):
        made.append(makers[request.param](*arguments, **named))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture(params=PYTHON)
def make(request):
    """Makes vector environments of any environment in Python."""
    yield from closing(request, PYTHON)


@pytest.fixture(params=CARTPOLES)
def make_cartpole(request):
    """Makes vector environments of CartPole."""
    yield from closing(request, CARTPOLES)


def at(tree, i):
    """Row i of everything in a tree, as nested tuples of lists, which compare by value."""
    if isinstance(tree, dict):
        return tuple((name, at(part, i)) for name, part in sorted(tree.items()))
    if isinstance(tree, tuple):
        return tuple(at(part, i) for part in tree)
    return tree[i].tolist()


def choose(envs, observation):
    """Actions that depend on the observation alone, and seem random."""
    first = envs.single_action_space.start
    values = observation["place"] if isinstance(observation, dict) else observation
    return first + (np.abs(values[:, 0]) * 1e4).astype(np.int64) % 2


def episodes(envs, count, seed=3):
    """The first `count` episodes of each environment: observations, and what actions brought."""
    mode, numbers = envs.metadata["autoreset_mode"], range(envs.num_envs)
    observation, _ = envs.reset(seed=seed)
    done = np.zeros(envs.num_envs, bool)
    present = [[at(observation, i)] for i in numbers]
    finished = [[] for _ in numbers]
    while min(map(len, finished)) < count:
        action = choose(envs, observation)
        observation, reward, terminated, truncated, info = envs.step(action)
        resets = done if mode is NEXT_STEP else np.zeros_like(done)
        done = terminated | truncated
        for i in numbers:
            if resets[i]:
                assert (reward[i], terminated[i], truncated[i]) == (0, False, False)
                present[i] = [at(observation, i)]
                continue
            result = action[i], reward[i], terminated[i], truncated[i]
            if mode is SAME_STEP and done[i]:
                final = at(batched(info["final_obs"][i]), 0)
            else:
                final = at(observation, i)
            present[i] += [tuple(x.item() for x in result), final]
            if done[i]:
                finished[i].append(present[i])
                present[i] = [at(observation, i)]
        if mode is DISABLED and done.any():
            observation, _ = envs.reset(options={"reset_mask": done})
            for i in np.flatnonzero(done):
                present[i] = [at(observation, i)]
    return [one[:count] for one in finished]


def batched(observation):
    """A batch of one."""
    if isinstance(observation, dict):
        return {name: batched(part) for name, part in observation.items()}
    if isinstance(observation, tuple):
        return tuple(batched(part) for part in observation)
    return np.asarray(observation)[None]


# ---- spaces, dtypes, seeds ----


@pytest.mark.parametrize("env", [Walk, "Pendulum-v1", "CartPole-v1"])
def test_the_batched_spaces_hold_what_is_given_and_taken(make, env):
    envs = make(env, 3)
    assert isinstance(envs, gymnasium.vector.VectorEnv)
    assert envs.num_envs == 3
    assert envs.observation_space == batch_space(envs.single_observation_space, 3)
    assert envs.action_space == batch_space(envs.single_action_space, 3)
    observation, info = envs.reset(seed=0)
    assert observation in envs.observation_space
    assert info == {}
    envs.action_space.seed(0)
    for _ in range(7):
        observation, reward, terminated, truncated, _ = envs.step(envs.action_space.sample())
        assert observation in envs.observation_space
        assert reward.shape == terminated.shape == truncated.shape == (3,)
        assert np.issubdtype(reward.dtype, np.floating)
        assert terminated.dtype == truncated.dtype == bool


def test_environment_i_gets_the_seed_plus_i(make_cartpole):
    envs = make_cartpole(3)
    first, _ = envs.reset(seed=5)
    second, _ = envs.reset(seed=7)
    np.testing.assert_array_equal(first[2], second[0])
    assert (first[0] != first[1]).any()


@pytest.mark.parametrize("make_cartpole", FREELY_SEEDED, indirect=True)
def test_environment_i_gets_seed_i_of_a_list(make_cartpole):
    envs = make_cartpole(3)
    first, _ = envs.reset(seed=5)
    second, _ = envs.reset(seed=7)
    listed, _ = envs.reset(seed=[7, 5, 0])
    np.testing.assert_array_equal(listed[:2], [second[0], first[0]])
    np.testing.assert_array_equal(envs.reset(seed=0)[0][0], listed[2])


def test_the_same_seed_gives_the_same_future_and_no_seed_another(make_cartpole):
    envs = make_cartpole(2)
    one, other = (episodes(envs, 3, seed=11) for _ in range(2))
    assert one == other
    assert episodes(envs, 3, seed=None) != one
    starts = [tuple(make_cartpole(1).reset()[0][0]) for _ in range(2)]
    assert starts[0] != starts[1]


def test_what_was_returned_stays_as_it_is(make_cartpole):
    envs = make_cartpole(2)
    results = [envs.reset(seed=0)[0]]
    for _ in range(60):
        results += envs.step(choose(envs, results[0]))[:4]
    kept = [result.copy() for result in results]
    for _ in range(60):
        envs.step(choose(envs, results[0]))
    for result, copy in zip(results, kept, strict=True):
        np.testing.assert_array_equal(result, copy)


# ---- the three modes ----


def test_all_modes_give_the_episodes_that_gymnasium_gives(make):
    expected = episodes(gymnasiums(Walk, 3), 8)
    ways = {episode[-2][2:] for one in expected for episode in one}
    assert ways == {(True, False), (False, True)}
    for mode in AutoresetMode:
        assert episodes(make(Walk, 3, autoreset_mode=mode), 8) == expected


def test_all_modes_give_the_same_episodes_of_cartpole(make_cartpole):
    expected, *others = (episodes(make_cartpole(3, autoreset_mode=m), 3) for m in AutoresetMode)
    assert all(other == expected for other in others)
    assert len({len(episode) for one in expected for episode in one}) > 1


def masks_fit(info, num_envs):
    names = [name for name in info if not name.startswith("_")]
    assert {f"_{name}" for name in names} == {name for name in info if name.startswith("_")}
    for name in names:
        mask = info[f"_{name}"]
        assert (mask.shape, mask.dtype) == ((num_envs,), bool)
        if isinstance(info[name], dict):
            masks_fit(info[name], num_envs)
        else:
            assert len(info[name]) == num_envs


@pytest.mark.parametrize("mode", AutoresetMode)
def test_the_mode_is_told_and_every_name_in_info_has_its_mask(make_cartpole, mode):
    envs = make_cartpole(4, autoreset_mode=mode)
    assert envs.metadata["autoreset_mode"] is mode
    observation, _ = envs.reset(seed=0)
    ends = 0
    for _ in range(100):
        observation, _, terminated, truncated, info = envs.step(choose(envs, observation))
        masks_fit(info, 4)
        done = terminated | truncated
        ends += done.sum()
        if mode is SAME_STEP and done.any():
            np.testing.assert_array_equal(info["_final_obs"], done)
            np.testing.assert_array_equal(info["_final_info"], done)
            assert [one is not None for one in info["final_obs"]] == done.tolist()
        else:
            assert not info.keys() & {"final_obs", "final_info"}
        if mode is DISABLED and done.any():
            observation, _ = envs.reset(options={"reset_mask": done})
    assert ends


@pytest.mark.parametrize("make_cartpole", FREELY_SEEDED, indirect=True)
def test_a_masked_reset_leaves_the_others_where_they_are(make_cartpole):
    envs = make_cartpole(3, autoreset_mode=DISABLED)
    start, _ = envs.reset(seed=0)
    before = envs.step(choose(envs, start))[0]
    mask = np.array([False, True, False])
    after, _ = envs.reset(seed=[None, 0, None], options={"reset_mask": mask})
    np.testing.assert_array_equal(after[[0, 2]], before[[0, 2]])
    np.testing.assert_array_equal(after[1], start[0])


def test_an_ended_episode_is_not_stepped_where_the_caller_resets(make):
    envs = make(partial(Walk, lengths=(2,)), 2, autoreset_mode=DISABLED)
    envs.reset(seed=0)
    for _ in range(2):
        envs.step(np.array([1, 1]))
    with pytest.raises(Exception, match=r"ended|_autoreset_envs"):
        envs.step(np.array([1, 1]))
    envs.reset(options={"reset_mask": np.array([True, True])})
    envs.step(np.array([1, 1]))


def test_a_reset_mask_that_does_not_fit_is_refused(make_cartpole):
    envs = make_cartpole(2, autoreset_mode=DISABLED)
    envs.reset(seed=0)
    for mask in ([True, False], np.ones(3, bool), np.ones(2), np.array([1, 0])):
        with pytest.raises(Exception, match="reset_mask"):
            envs.reset(options={"reset_mask": mask})


# ---- Gymnasium's wrappers ----


@pytest.mark.parametrize("mode", AutoresetMode)
def test_three_steps_are_reported_as_three_every_time(make, mode):
    if mode is SAME_STEP and gymnasium.__version__ < "1.4":
        pytest.skip("Gymnasium's RecordEpisodeStatistics counted wrongly here before 1.4")
    envs = make(partial(Walk, lengths=(3,)), 2, autoreset_mode=mode)
    envs = wrappers.vector.RecordEpisodeStatistics(envs)
    envs.reset(seed=0)
    lengths, returns = [], []
    while len(lengths) < 3:
        _, _, terminated, truncated, info = envs.step(np.array([1, 2]))
        if (terminated | truncated).any():
            np.testing.assert_array_equal(info["_episode"], [True, True])
            lengths.append(info["episode"]["l"].tolist())
            returns.append(info["episode"]["r"].tolist())
            if mode is DISABLED:
                envs.reset(options={"reset_mask": terminated | truncated})
    assert lengths == [[3, 3]] * 3
    assert returns == [[3, 6]] * 3


STACKS = {
    "normalised": ("CartPole-v1", ["NormalizeObservation", "NormalizeReward"]),
    "clipped": (
        "Pendulum-v1",
        [("ClipReward", -1, 1), ("RescaleAction", np.float32(-1), np.float32(1))],
    ),
    "transformed": ("CartPole-v1", [("TransformObservation", lambda x: 2 * x)]),
    "flat": (Walk, ["FlattenObservation"]),
    "listed": ("CartPole-v1", ["DictInfoToList"]),
}


@pytest.mark.parametrize("stack", STACKS)
def test_gymnasiums_wrappers_do_the_same_on_top(make, stack):
    env, names = STACKS[stack]
    both = [maker(env, 3) for maker in (make, gymnasiums)]
    for wrapper in names:
        name, *arguments = (wrapper,) if isinstance(wrapper, str) else wrapper
        both = [getattr(wrappers.vector, name)(envs, *arguments) for envs in both]
    ours, theirs = both
    ours.action_space.seed(0)
    results = [ours.reset(seed=0)[:1], theirs.reset(seed=0)[:1]]
    for _ in range(30):
        for one, other in zip(*results, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
        action = ours.action_space.sample()
        results = [ours.step(action)[:4], theirs.step(action)[:4]]
    theirs.close()


def test_pictures_come_from_every_environment(make):
    envs = make("CartPole-v1", 2, render_mode="rgb_array")
    envs.reset(seed=0)
    pictures = envs.render()
    assert envs.render_mode == "rgb_array"
    assert [(p.ndim, p.shape[-1], p.dtype) for p in pictures] == [(3, 3, np.uint8)] * 2
    assert (pictures[0] != pictures[1]).any()
