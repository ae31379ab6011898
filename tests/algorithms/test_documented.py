"""The algorithms of docs/write_an_algorithm.md: written outside srl, they run and learn as any."""

import contextlib
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from srl import Experiment
from srl.loop.training import local_training
from srl.networks import MLP

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def documented():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(DOCS)
        import reinforce
        import replayed_q

        yield {"Reinforce": reinforce.Reinforce, "ReplayedQ": replayed_q.ReplayedQ}


@pytest.fixture
def reinforce(documented):
    return documented["Reinforce"]


@pytest.fixture
def start():
    with contextlib.ExitStack() as stack:

        def start(algorithm, env_steps=1_000_000):
            env, name = "native:CartPole-v1", "documented"
            experiment = Experiment(
                name=name, env=env, num_envs=32, algorithm=algorithm, env_steps=env_steps
            )
            trainer = stack.enter_context(contextlib.closing(local_training(experiment)))
            trainer.start()
            return trainer

        yield start


def test_importing_them_loads_no_jax():
    heavy = {"jax", "flax", "optax"}
    code = f"import sys, reinforce, replayed_q\nassert not {heavy} & set(sys.modules)\n"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=DOCS)


def test_it_learns_to_balance_a_pole(reinforce, start):
    trainer = start(reinforce(unroll_length=16))
    for _ in range(20):
        trainer.update()
    before = trainer.report()["episode_return"]
    for _ in range(130):
        trainer.update()
    after = trainer.report()["episode_return"]
    assert before < 100
    assert after > 150


def test_it_learns_to_balance_a_pole_from_a_replay(documented, start):
    trainer = start(documented["ReplayedQ"](), env_steps=50_000)
    returns = []
    for _ in range(8):
        for _ in range(24):
            trainer.update()
        returns.append(trainer.report()["episode_return"])
    assert returns[0] < 60
    assert max(returns) > 110


def test_it_learns_with_memory(reinforce, start):
    trainer = start(reinforce(unroll_length=8, network=MLP(width=8, memory=4)))
    before = jax.device_get(trainer.state()["learners"]["policy"]["params"]["policy"])
    for _ in range(2):
        trainer.update()
    after = jax.device_get(trainer.state()["learners"]["policy"]["params"]["policy"])
    changed = jax.tree.map(lambda x, y: bool((x != y).any()), before, after)
    assert all(jax.tree.leaves(changed))
    assert np.isfinite(trainer.report()["loss/policy_loss"])
