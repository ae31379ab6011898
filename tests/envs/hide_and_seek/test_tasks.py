"""The transfer tasks and the variants through their pools: chance, state, options and pictures."""

import dataclasses

import jax
import numpy as np
import pytest

from srl.core.errors import UserError
from srl.core.tree import leaves_of
from srl.envs.hide_and_seek.config import HideAndSeek
from srl.envs.hide_and_seek.drawing import draw
from srl.envs.hide_and_seek.render import Painter
from srl.envs.hide_and_seek.scene import TASKS, Scene
from srl.networks import EntityAttention
from srl.pools import make_pool

VARIANTS = {
    **{task: HideAndSeek(task=task) for task in TASKS},
    "food": HideAndSeek(scenario="full", food=4, reward_type="selfish"),
    "odd": HideAndSeek(
        boxes_min=1,
        boxes_max=5,
        elongated_max=2,
        ramps=0,
        grab_selective=True,
        grab_exclusive=True,
        lock_type="any_lock_specific",
        lidar_scale=2.0,
    ),
}


def play(config, threads, steps=60):
    """What a pool of three gives under random actions, as one list of arrays."""
    results = []
    with make_pool(config, 3, threads=threads) as pool:
        timestep = pool.reset(seed=1)
        chance = np.random.default_rng(0)
        sizes = pool.specs.action.nvec
        for step in range(steps):
            if step % 5 == 0:
                actions = chance.integers(0, sizes, (3 * len(pool.specs.agents), len(sizes)))
            timestep = pool.step(actions.astype(np.int32))
            results.append(np.concatenate([np.ravel(x) for x in leaves_of(timestep)]))
        state = pool.save()
        last = leaves_of(pool.step(actions.astype(np.int32)))
    return results, state, actions.astype(np.int32), last


@pytest.mark.parametrize("name", VARIANTS)
def test_play_is_the_same_at_any_number_of_threads_and_after_a_restore(name):
    config = VARIANTS[name]
    results, state, actions, last = play(config, threads=1)
    others, *_ = play(config, threads=3)
    for result, other in zip(results, others, strict=True):
        assert np.isfinite(result).all()
        np.testing.assert_array_equal(result, other)
    with make_pool(config, 3, threads=1) as pool:
        pool.restore(state)
        for expected, actual in zip(last, leaves_of(pool.step(actions)), strict=True):
            np.testing.assert_array_equal(expected, actual)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"task": "shelter", "scenario": "full"}, "'scenario' means nothing in task 'shelter'"),
        ({"task": "blueprint", "food": 3}, "'food' means nothing in task 'blueprint'"),
        ({"rooms_max": 2}, "'rooms_max' means nothing in scenario 'quadrant'"),
        ({"food_health": 3}, "without food"),
        ({"boxes_max": 10}, "expected 1 to 9"),
        ({"lock_type": "some_lock"}, "expected 'any_lock' or 'all_lock'"),
    ],
)
def test_options_that_cannot_be_are_refused_in_a_sentence(options, words):
    with pytest.raises(UserError, match=words):
        make_pool(HideAndSeek(**options))


def parameter_shapes(config):
    """Of the network of the paper, by path."""
    with make_pool(config, threads=1) as pool:
        network = EntityAttention(width=16, heads=2).build(pool.specs.observation, 37)
    params = jax.eval_shape(network.init, jax.random.key(0))
    leaves = jax.tree_util.tree_leaves_with_path(params)
    return {jax.tree_util.keystr(path): leaf.shape for path, leaf in leaves}


@pytest.mark.parametrize("task", TASKS[1:])
def test_a_policy_of_the_full_game_fits_every_task(task):
    full = parameter_shapes(HideAndSeek(scenario="full"))
    fitted = parameter_shapes(HideAndSeek(task=task))
    # Sites are what no policy of the game has met.
    assert full == {k: v for k, v in fitted.items() if "construction_site_obs" not in k}
    assert (full != fitted) == (task == "blueprint")


def test_what_boxes_are_to_be_counted_is_no_input_of_the_network():
    with make_pool(HideAndSeek(task="object_counting"), threads=1) as pool:
        network = EntityAttention(width=16, heads=2).build(pool.specs.observation, 37)
        observation = dict(pool.reset(0).observation)
    params = network.init(jax.random.key(0))
    before, _ = network.policy(params["policy"], observation)
    observation["count_target"] = observation["count_target"] + 3
    after, _ = network.policy(params["policy"], observation)
    np.testing.assert_array_equal(before, after)


def drawn(before, after):
    """Where two drawings differ below the caption, in metres."""
    rows, columns = np.nonzero((draw(before) != draw(after)).any(-1)[64:832])
    scale = (before.floor_size + 2 * 0.35) / 768
    return columns * scale - 0.35, before.floor_size + 0.35 - rows * scale


@pytest.mark.parametrize(
    ("config", "part", "columns"),
    [
        (HideAndSeek(task="blueprint"), "sites", 2),
        (HideAndSeek(task="shelter"), "cylinders", 3),
        (HideAndSeek(food=1), "food", 4),
    ],
)
def test_what_a_task_adds_is_drawn_where_it_is(config, part, columns):
    with make_pool(config, threads=1) as pool:
        pool.reset(2)
        agents = len(pool.specs.agents)
        scene = Scene.of(pool.inspect(0), np.zeros(agents), np.zeros(agents))
    things = getattr(scene, part)
    assert len(things)
    assert things.shape[1] == columns
    x, y = drawn(dataclasses.replace(scene, **{part: things[:0]}), scene)
    # Everything that differs is near one of them, and each of them makes a difference.
    distances = np.hypot(x[:, None] - things[:, 0], y[:, None] - things[:, 1])
    size = things[0, 2] if part == "cylinders" else 0.4
    assert distances.min(axis=1).max() < size + 0.05
    assert (distances.min(axis=0) < size).all()


@pytest.mark.parametrize("task", TASKS)
def test_every_task_has_its_picture(task):
    with make_pool(HideAndSeek(task=task), threads=1) as pool:
        picture = Painter().paint(pool, 0, pool.reset(0))
    assert picture.dtype == np.uint8
    assert picture.shape == (862, 768, 3)
