"""Training on environments in worker processes, crashes included."""

import json
import logging
import textwrap
from functools import partial

import jax
import numpy as np
import pytest
from peculiar_envs import Peculiar

from srl import Experiment
from srl.algorithms import PPO
from srl.api.cli import main
from srl.loop.training import local_training
from srl.networks import MLP

ALGORITHM = PPO(network=MLP(width=8), unroll_length=16, epochs=1)


def trained(**fields):
    """The parameters after three updates."""
    trainer = local_training(Experiment(name="tiny", num_envs=4, algorithm=ALGORITHM, **fields))
    try:
        trainer.start()
        for _ in range(3):
            trainer.update()
        return jax.tree.leaves(jax.device_get(trainer.state()["learners"]["policy"]["params"]))
    finally:
        trainer.close()


def test_training_is_bitwise_the_same_with_any_number_of_workers():
    here = trained(env="CartPole-v1")
    for workers in (1, 3):
        for a, b in zip(here, trained(env="CartPole-v1", workers=workers), strict=True):
            np.testing.assert_array_equal(a, b)


def test_training_goes_on_past_segmentation_faults(caplog):
    # Only the fine action, so that nothing but the crashes disturbs.
    env = partial(Peculiar, crash_every=55, actions=1)
    experiment = Experiment(name="tiny", env=env, num_envs=4, workers=2, algorithm=ALGORITHM)
    trainer = local_training(experiment)
    try:
        trainer.start()
        with caplog.at_level(logging.WARNING, logger="srl"):
            for _ in range(10):
                trainer.update()
        report = trainer.report()
    finally:
        trainer.close()
    assert caplog.text.count("SIGSEGV") >= 4  # each worker, more than once
    assert report["env_steps"] == 10 * 16 * 4
    assert report["episodes"] == 0  # a lost episode is no result
    assert report["episodes_lost"] >= 8  # both of each worker's, more than once


@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")
def test_srl_run_reaches_its_budget_with_an_environment_that_crashes(tmp_path):
    (tmp_path / "crashing.py").write_text(
        textwrap.dedent(
            """
            from functools import partial
            from peculiar_envs import Peculiar
            from srl import Experiment
            from srl.algorithms import PPO
            from srl.networks import MLP

            experiment = Experiment(
                name="crashing",
                env=lambda: Peculiar(crash_every=60, actions=1),
                num_envs=4,
                algorithm=PPO(network=MLP(width=8), unroll_length=16, epochs=1),
                env_steps=320,
            )
            """
        )
    )
    words = ["run", str(tmp_path / "crashing.py"), "--workers", "2"]
    assert main([*words, "--run-dir", str(tmp_path / "run")]) == 0
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["env_steps"] == 320
    waits = [json.loads(line)["time/trainer/skew"] for line in lines]
    assert 0 < max(waits) < 1
    log = (tmp_path / "run" / "logs" / "trainer.log").read_text()
    assert "was killed by SIGSEGV" in log
    assert "string_at" in log
