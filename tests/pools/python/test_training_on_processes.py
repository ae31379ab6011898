"""Training on environments in worker processes, crashes included."""

import jax
import numpy as np
import pytest

from srl import Experiment
from srl.algorithms import PPO
from srl.api.cli import main
from srl.loop.training import local_training
from srl.networks import MLP
from srl.run.metrics import read_metrics

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


CRASHING = """
from peculiar_envs import Peculiar
from srl import Experiment
from srl.algorithms import PPO
from srl.networks import MLP

experiment = Experiment(
    name="crashing",
    env=lambda: Peculiar(crash_every=55, actions=1),
    num_envs=4,
    algorithm=PPO(network=MLP(width=8), unroll_length=16, epochs=1),
    env_steps=640,
)
"""


@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")
def test_a_run_reaches_its_budget_with_an_environment_that_crashes(tmp_path):
    """There is only the fine action, so that nothing but the crashes disturbs."""
    (tmp_path / "crashing.py").write_text(CRASHING)
    words = ["run", str(tmp_path / "crashing.py"), "--workers", "2"]
    assert main([*words, "--run-dir", str(tmp_path / "run")]) == 0
    reports = read_metrics(tmp_path / "run")
    assert reports[-1]["env_steps"] == 640
    assert reports[-1]["episodes"] == 0  # a lost episode is no result
    assert sum(report["episodes_lost"] for report in reports) >= 8  # each twice
    assert 0 < max(report["time/trainer/skew"] for report in reports) < 1
    log = (tmp_path / "run" / "logs" / "trainer.log").read_text()
    assert log.count("was killed by SIGSEGV") >= 4  # each worker, more than once
    assert "string_at" in log
