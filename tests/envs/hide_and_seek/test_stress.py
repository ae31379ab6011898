"""Long random play: numbers stay numbers, walls hold, and threads change nothing."""

import dataclasses
import hashlib

import numpy as np
import pytest

from srl.envs.hide_and_seek import HideAndSeek
from srl.envs.hide_and_seek.scene import TASKS
from srl.pools import make_pool
from srl.tree import leaves_of

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
    """x and y of the centres of all that moves, [..., 2]; padding has that of the first agent."""
    agents = observation["observation_self"][..., :2] + AGENT_HALF
    boxes, ramps = observation["box_obs"], observation["ramp_obs"]
    half = boxes[..., 9:11] / 2 if boxes.shape[-1] == 15 else CUBE_HALF
    there = observation["mask_ab_obs_spoof"][..., None] > 0
    boxes = np.where(there, boxes[..., :2] + half, agents[:1, None])
    # A row of zeros stands for no ramp, and is within the walls anyhow.
    return np.concatenate(
        [agents, boxes.reshape(-1, 2), (ramps[..., :2] + CUBE_HALF).reshape(-1, 2)]
    )


def play(config, episodes, threads):
    """Plays that many episodes, half of them with actions that are held for about ten steps.

    Checks all numbers, and that nothing leaves the walls; gives a digest of all of them.
    """
    digest = hashlib.sha256()
    with make_pool(config, NUM_ENVS, threads=threads) as pool:
        chance = np.random.default_rng(0)
        sizes = pool.specs.action.nvec
        shape = (NUM_ENVS * len(pool.specs.agents), len(sizes))
        actions = np.zeros(shape, np.int32)
        timestep = pool.reset(seed=0)
        played = 0
        while played < episodes:
            change = 1.0 if played < episodes / 2 else 0.1
            new = chance.integers(0, sizes, shape).astype(np.int32)
            actions = np.where(chance.random((shape[0], 1)) < change, new, actions)
            timestep = pool.step(actions)
            for array in leaves_of(timestep):
                assert np.isfinite(array).all()
                digest.update(np.ascontiguousarray(array))
            places = centers(timestep.observation)
            assert places.min() > 0.0
            assert places.max() < FLOOR
            ended = (timestep.terminated | timestep.truncated).reshape(NUM_ENVS, -1)[:, 0]
            played += int(ended.sum())
            diverged = timestep.statistics[:, pool.specs.statistics.index("diverged")]
            assert not diverged.any()
    return digest.hexdigest()


@pytest.mark.parametrize("name", ["quadrant", "full"])
def test_random_play_stays_within_the_walls_at_any_number_of_threads(name):
    config = dataclasses.replace(CONFIGS[name], horizon=80)
    assert play(config, NUM_ENVS, threads=1) == play(config, NUM_ENVS, threads=3)


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGS)
def test_thousands_of_episodes_of_random_play_stay_within_the_walls(name):
    play(CONFIGS[name], 10_000 if name in ("quadrant", "full") else 1_000, threads=2)
    assert play(CONFIGS[name], 500, threads=1) == play(CONFIGS[name], 500, threads=2)
