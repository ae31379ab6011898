"""Memory does not grow, however long environments are stepped."""

import contextlib
import gc
import re
from pathlib import Path

import numpy as np
import pytest

from srl import Experiment, make_pool
from srl.envs.hide_and_seek.config import HideAndSeek
from srl.extras.bench.actions import random_actions
from srl.loop.garbage import return_freed_memory
from srl.loop.training import local_training

TEN_MILLION = 10_000_000
MEGABYTE = 1024


def resident():
    """This process's memory, in kB."""
    gc.collect()
    return_freed_memory()
    return int(re.search(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())[1])


def growth(step, calls):
    """How much memory `calls` calls of `step` take beyond those of a tenth as many."""
    for _ in range(calls // 10):
        step()
    before = resident()
    for _ in range(calls):
        step()
    return resident() - before


@pytest.mark.parametrize(
    ("env", "batch_size"),
    [("native:CartPole-v1", 64), ("native:MountainCarContinuous-v0", 16)],
)
def test_ten_million_steps_of_a_native_pool_take_no_memory(env, batch_size):
    with make_pool(env, 64, batch_size) as pool:
        rows = pool.rows(2) if batch_size == 64 else None
        space = pool.specs.action
        actions = random_actions(space, batch_size, 64, False)
        turn = 0

        def step():
            nonlocal turn
            turn += 1
            if rows:
                pool.step(actions[turn % 64], rows[turn % 2] if turn % 3 else None)
            else:
                pool.send(actions[turn % 64], pool.recv().env_id)

        pool.reset(seed=0) if rows else pool.async_reset(seed=0)
        assert growth(step, TEN_MILLION // batch_size) < 2 * MEGABYTE


@pytest.mark.parametrize("env", [HideAndSeek(horizon=30), "native:Hopper-v5"])
def test_worlds_that_are_made_anew_take_no_memory(env):
    with make_pool(env, 8) as pool:
        pool.reset(seed=0)
        slots = 8 * len(pool.specs.agents)
        actions = random_actions(pool.specs.action, slots, 64, False)
        turn = 0

        def step():
            nonlocal turn
            turn += 1
            pool.step(actions[turn % 64])

        assert growth(step, 1_000) < 4 * MEGABYTE  # 500 bytes a step would be 4 MB


def test_an_environment_of_hide_and_seek_takes_less_than_a_tenth_of_a_megabyte():
    env, count = HideAndSeek(scenario="full"), 500
    # The only thread of both pools is this one, which has its models once, from the first on.
    with make_pool(env, 8, threads=1) as warm:
        warm.reset(seed=0)
        before = resident()
        with make_pool(env, count, threads=1) as pool:
            pool.reset(seed=0)
            assert resident() - before < count * 0.1 * MEGABYTE


@pytest.mark.slow
def test_ten_million_steps_of_training_take_no_memory():
    experiment = Experiment(name="memory", env="native:CartPole-v1", env_steps=11 * TEN_MILLION)
    with contextlib.closing(local_training(experiment)) as trainer:
        trainer.start()

        def until(env_steps):
            while trainer.learner.progress.env_steps < env_steps:
                trainer.update()
                if trainer.learner.progress.updates % 50 == 0:
                    trainer.report()
            return resident()

        before = until(TEN_MILLION // 10)
        assert until(TEN_MILLION + TEN_MILLION // 10) - before < 16 * MEGABYTE


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
def test_ten_million_steps_of_python_environments_take_no_memory(workers):
    with make_pool("Blackjack-v1", 64, workers=workers, sab=True) as pool:
        pool.reset(seed=0)
        actions = random_actions(pool.specs.action, 64, 64, False)
        turn = 0

        def step():
            nonlocal turn
            turn += 1
            pool.step(np.asarray(actions[turn % 64]))

        assert growth(step, TEN_MILLION // 64) < 8 * MEGABYTE
