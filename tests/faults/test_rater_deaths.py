"""The process that rates a run's versions, beside a real run: its work, its death, its end."""

import json
import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest
from real_runs import RealRun
from waiting import wait_until

from srl.config.experiment import load_experiment
from srl.evaluation.background import processes_beside
from srl.run.folder import create_run

GAME = """
from srl import Experiment, SelfPlay
from srl.algorithms import PPO
from srl.envs.hide_and_seek import HideAndSeek
from srl.networks import MLP

experiment = Experiment(
    name="game",
    env=HideAndSeek(horizon=8),
    num_envs=8,
    algorithm=PPO(network=MLP(width=8), unroll_length=8, epochs=1, minibatches=1),
    self_play=SelfPlay(past=0.25, every=100, keep=3, evaluate=1.0),
    env_steps=1_000_000_000,
    report_every=10,
)
"""


SECONDS = 900  # on a machine that is busy, for who has the lowest priority


def rater_of(run_folder):
    """The rater's process id."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (folder / "cmdline").read_bytes()
            if b"srl.evaluation.rater" in words and str(run_folder).encode() in words:
                return int(folder.name)
    return None


def test_the_rater_is_started_again_when_it_dies_and_ended_with_the_run(tmp_path):
    (tmp_path / "experiment.py").write_text(GAME)
    resolved, told = load_experiment(str(tmp_path / "experiment.py")), []
    run = create_run(resolved, tmp_path / "run")
    with processes_beside(resolved.experiment, run.path, told.append):
        first = wait_until(lambda: rater_of(run.path))
        os.kill(first, signal.SIGKILL)
        second = wait_until(lambda: rater_of(run.path) not in (None, first) and rater_of(run.path))
        wait_until(lambda: os.getpriority(os.PRIO_PROCESS, second) == 19)
    assert rater_of(run.path) is None
    assert told == [
        "the rater was killed by SIGKILL; it is started again; "
        f"its log is {run.path / 'logs' / 'rater.log'}"
    ]


def games_of(run):
    """How many games were played, as the newest report has it."""
    lines = run.metrics()
    return lines[-1].get("elo/games", 0) if lines else 0


@pytest.mark.slow
def test_versions_are_rated_beside_the_run_whatever_becomes_of_the_rater(tmp_path):
    (tmp_path / "experiment.py").write_text(GAME)
    with RealRun(tmp_path) as run:
        run.wait(lambda: games_of(run) >= 16, SECONDS)
        rater = run.wait(lambda: rater_of(run.folder))
        os.kill(rater, signal.SIGKILL)
        run.wait(lambda: rater_of(run.folder) not in (None, rater))
        before = games_of(run)
        run.wait(lambda: games_of(run) > before, SECONDS)
        run.process.send_signal(signal.SIGINT)
        assert run.end() == 130, run.told
        assert "the rater was killed by SIGKILL; it is started again; its log is" in run.told
        assert rater_of(run.folder) is None
    line = run.metrics()[-1]
    assert {"elo/hider", "elo/seeker", "elo/version", "past/version"} <= line.keys()
    ratings = json.loads((run.folder / "opponents" / "ratings.json").read_text())
    anchor = {"points": 0.0, "error": 0.0}
    assert ratings["elo"]["0"] == {"hider": anchor, "seeker": anchor}
    assert ratings["games"] == sum(match["games"] for match in ratings["matches"])
    pool = {path.name for path in (run.folder / "opponents").glob("*.safetensors")}
    assert "0.safetensors" in pool
    assert len(pool) <= 4  # one more where a checkpoint needs it
