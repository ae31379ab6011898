"""Long random play: numbers stay numbers, walls hold, and neither threads nor sleep matter."""

import dataclasses
import hashlib

import numpy as np
import pytest

from srl.core.tree import leaves_of
from srl.envs.hide_and_seek.config import HideAndSeek
from srl.envs.hide_and_seek.scene import TASKS
from srl.pools import make_pool

NUM_ENVS = 50
CUBE_HALF = 0.25
AGENT_HALF = 0.15
FLOOR = 6.0
CONFIGS = {
    "quadrant": HideAndSeek(),
    "full": HideAndSeek(scenario="full", outer_walls=1.0),
    **{task: HideAndSeek(task=task) for task in TASKS[1:]},
}


def centers(observation):
    """x and y of the centres of all that moves, [NUM_ENVS, things, 2]."""
    rows = {k: v.reshape(NUM_ENVS, -1, *v.shape[1:]) for k, v in observation.items()}
    agents = rows["observation_self"][..., :2] + AGENT_HALF
    boxes, ramps = rows["box_obs"][:, 0], rows["ramp_obs"][:, 0]
    half = boxes[..., 9:11] / 2 if boxes.shape[-1] == 15 else CUBE_HALF
    there = rows["mask_ab_obs_spoof"][:, 0, :, None] > 0
    # No box is put at an agent; a row of zeros for no ramp is within the walls anyhow.
    boxes = np.where(there, boxes[..., :2] + half, agents[:, :1])
    return np.concatenate([agents, boxes, ramps[..., :2] + CUBE_HALF], axis=1)


def play(config, episodes, threads):
    """Plays that many episodes, half of them with actions that are held for about ten steps.

    Checks that all numbers are finite; gives a digest of them, and in how many episodes something
    left the walls or the physics diverged.
    """
    digest = hashlib.sha256()
    with make_pool(config, NUM_ENVS, threads=threads) as pool:
        chance = np.random.default_rng(0)
        sizes = pool.specs.action.nvec
        shape = (NUM_ENVS * len(pool.specs.agents), len(sizes))
        actions = np.zeros(shape, np.int32)
        timestep = pool.reset(seed=0)
        played, failed, failing = 0, 0, np.zeros(NUM_ENVS, bool)
        while played < episodes:
            change = 1.0 if played < episodes / 2 else 0.1
            new = chance.integers(0, sizes, shape).astype(np.int32)
            actions = np.where(chance.random((shape[0], 1)) < change, new, actions)
            timestep = pool.step(actions)
            for array in leaves_of(timestep):
                assert np.isfinite(array).all()
                digest.update(np.ascontiguousarray(array))
            places = centers(timestep.observation)
            failing |= ((places <= 0.0) | (places >= FLOOR)).any(axis=(1, 2))
            failing |= timestep.statistics[:, pool.specs.statistics.index("diverged")] > 0
            ended = (timestep.terminated | timestep.truncated).reshape(NUM_ENVS, -1)[:, 0]
            played += int(ended.sum())
            failed += int((failing & ended).sum())
            failing &= ~ended
    return digest.hexdigest(), failed


@pytest.mark.parametrize("name", ["quadrant", "full"])
def test_random_play_stays_within_the_walls_at_any_number_of_threads(name):
    config = dataclasses.replace(CONFIGS[name], horizon=80)
    digest, failed = play(config, NUM_ENVS, threads=1)
    assert failed == 0
    assert play(config, NUM_ENVS, threads=3) == (digest, 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGS)
def test_thousands_of_episodes_of_random_play_stay_within_the_walls(name):
    # MuJoCo itself, once in some thousand episodes, throws out an agent that ran into a wall's end
    # so fast that one of its small arms is within the wall.
    episodes = 10_000 if name in ("quadrant", "full") else 1_000
    _, failed = play(CONFIGS[name], episodes, threads=2)
    assert failed <= episodes / 1000
    assert play(CONFIGS[name], 500, threads=1) == play(CONFIGS[name], 500, threads=2)


def statistics_of(config, episodes):
    """What so many episodes' statistics are, [episodes, names], with actions held for a while."""
    with make_pool(config, NUM_ENVS) as pool:
        chance = np.random.default_rng(0)
        sizes = pool.specs.action.nvec
        shape = (NUM_ENVS * len(pool.specs.agents), len(sizes))
        actions = np.zeros(shape, np.int32)
        pool.reset(seed=0)
        rows = []
        while len(rows) < episodes:
            new = chance.integers(0, sizes, shape).astype(np.int32)
            actions = np.where(chance.random((shape[0], 1)) < 0.1, new, actions)
            timestep = pool.step(actions)
            ended = timestep.truncated.reshape(NUM_ENVS, -1)[:, 0]
            rows.extend(timestep.statistics[ended])
        return np.array(rows), pool.specs.statistics


@pytest.mark.parametrize("name", ["quadrant", pytest.param("full", marks=pytest.mark.slow)])
def test_statistics_are_the_same_whether_things_at_rest_sleep_or_not(name):
    episodes = 100 if name == "quadrant" else 500
    asleep, names = statistics_of(CONFIGS[name], episodes)
    awake, _ = statistics_of(dataclasses.replace(CONFIGS[name], sleep=False), episodes)
    error = np.sqrt((asleep.var(0) + awake.var(0)) / episodes)
    apart = np.abs(asleep.mean(0) - awake.mean(0))
    told = {n: (a, b) for n, a, b in zip(names, asleep.mean(0), awake.mean(0), strict=True)}
    assert (apart <= 4 * error + 1e-9).all(), told
    assert asleep.mean(0)[names.index("max_box_move")] > 0.1  # they did play
