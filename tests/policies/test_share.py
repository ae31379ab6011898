"""Folders of policies to publish: complete, and loaded as runs are."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import yaml

import srl
from srl import Fixed
from srl.api.cli import main
from srl.config.experiment import load_experiment, resolved_value
from srl.core.errors import UserError
from srl.policies.card import _spread
from tests.small_runs import GAME, save

SMALL = ("--algorithm.network.mlp.width", "8")
FILE = """
import gymnasium
import numpy as np

from srl import Experiment


class Walk(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-9, 9, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), {}

    def step(self, action):
        self.steps += 1
        following = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return following, float(action), self.steps == 5, False, {}


mine = Experiment(name="walk", env=Walk)
"""


@pytest.fixture
def share(tmp_path, capsys):
    """Shares a run of a target; gives the run's folder, the shared one, and what is reported."""

    def share(target):
        resolved = load_experiment(target, SMALL)
        run = save(resolved, tmp_path / "run").path
        shared = tmp_path / "shared"
        assert main(["share", str(run), str(shared), "--episodes", "2"]) == 0
        return run, shared, capsys.readouterr().out

    return share


def files_of(folder):
    return {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}


COMMON = {"README.md", "config.json", "specs.json", "results.json", "checkpoints/7.safetensors"}


def test_a_shared_folder_cannot_be_resumed_and_stays_as_it_is(share, capsys):
    _, shared, _ = share("CartPole-v1")
    before = files_of(shared)
    for words in ([], ["--trust"], ["--trust", "--env-steps", "30000"]):
        assert main(["resume", str(shared), *words]) == 2
        assert f"srl run ... --init-from {shared}" in capsys.readouterr().err
    with pytest.raises(UserError, match="cannot be resumed"):
        srl.train("CartPole-v1", run_dir=shared, resume=True, overrides=SMALL)
    assert files_of(shared) == before


def test_a_shared_folder_plays_as_the_run_does(share):
    run, shared, _ = share("CartPole-v1")
    assert files_of(shared) == {*COMMON, "policy.onnx", "replay.mp4"}
    observations = np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32)
    wanted, found = (srl.load(folder).act(observations)[0] for folder in (run, shared))
    assert np.array_equal(wanted, found)
    results = json.loads((shared / "results.json").read_text())["results"]
    assert srl.evaluate(shared, episodes=2)["results"] == results
    assert "`srl eval FOLDER --episodes 2 --seed 0` repeats" in (shared / "README.md").read_text()

    _, metadata, text = (shared / "README.md").read_text().split("---\n", 2)
    metadata = yaml.safe_load(metadata)
    assert {"CartPole-v1", "PPO", "reinforcement-learning"} <= set(metadata["tags"])
    (result,) = metadata["model-index"][0]["results"]
    assert result["task"]["type"] == "reinforcement-learning"
    assert result["dataset"]["name"] == "CartPole-v1"
    mean, between, deviation = result["metrics"][0]["value"].split()
    estimate = results["episode_return"]
    assert float(mean) == pytest.approx(estimate["mean"], abs=0.01)
    assert float(deviation) == pytest.approx(estimate["standard_deviation"], abs=0.01)
    assert between == "+/-"
    assert "replay.mp4" in text
    assert "policy.onnx" in text


def test_an_experiment_file_is_shared_and_what_cannot_be_made_is_reported(share, tmp_path):
    file = tmp_path / "walk.py"
    file.write_text(FILE)
    _, shared, reported = share(f"{file}:mine")
    assert "no film: " in reported
    assert files_of(shared) == {*COMMON, "policy.onnx", "experiment.py"}
    assert "replay.mp4" not in (shared / "README.md").read_text()
    moved = shared.rename(tmp_path / "moved")
    file.unlink()
    with pytest.raises(UserError, match=r"names Walk of its experiment\.py, which is not part of"):
        srl.evaluate(moved, episodes=2)
    found = srl.evaluate(moved, episodes=2, trust=True)
    assert found["results"]["episode_length"]["mean"] == 5
    for name in ("README.md", "config.json", "results.json"):
        assert str(tmp_path) not in (moved / name).read_text()


def test_a_version_that_a_run_removes_while_it_is_evaluated_is_shared(share, tmp_path):
    removed = tmp_path / "run" / "checkpoints" / "7.safetensors"
    file = tmp_path / "walk.py"
    begin = "        self.steps = 0\n"
    remove = f"        __import__('pathlib').Path({str(removed)!r}).unlink(missing_ok=True)\n"
    file.write_text(FILE.replace(begin, begin + remove))
    _, shared, _ = share(f"{file}:mine")
    assert not removed.exists()
    found = json.loads((shared / "results.json").read_text())
    assert (found["run"], found["version"]) == ("run", 7)
    assert files_of(shared) == {*COMMON, "policy.onnx", "experiment.py"}


def test_policies_of_other_runs_that_play_are_shared_too(tmp_path):
    other = save(resolved_value(GAME), tmp_path / "other").path
    policies = {"seeker*": Fixed(other), "hider*": "hiders"}
    run = save(resolved_value(replace(GAME, policies=policies)), tmp_path / "run").path
    shared = tmp_path / "shared"
    assert main(["share", str(run), str(shared), "--episodes", "2"]) == 0
    for folder in (run, other):
        shutil.rmtree(folder)
    moved = shared.rename(tmp_path / "moved")
    wanted = json.loads((moved / "results.json").read_text())
    assert wanted["fixed"]["seeker*"] == {"run": "other", "version": 7}
    assert srl.evaluate(moved, episodes=2)["results"] == wanted["results"]
    texts = [file for file in moved.rglob("*") if file.suffix in (".json", ".md")]
    assert not [file for file in texts if str(tmp_path) in file.read_text()]


def test_arguments_name_other_runs_without_their_paths(tmp_path):
    other = save(load_experiment("CartPole-v1", SMALL), tmp_path / "other").path
    words = (*SMALL, "--init-from", f"{other}:7", f"--teacher={other}", "--tags", f"{other}2")
    run = save(load_experiment("CartPole-v1", words), tmp_path / "run").path
    shared = tmp_path / "shared"
    assert main(["share", str(run), str(shared), "--episodes", "2"]) == 0
    for folder in (run, other):
        shutil.rmtree(folder)
    written = json.loads((shared / "config.json").read_text())["overrides"]
    assert written[2:] == ["--init-from", "other:7", "--teacher=other", "--tags", f"{other}2"]
    assert srl.load(shared, trust=True).version == 7


def test_a_folder_that_holds_something_is_not_shared_into(tmp_path, capsys):
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "notes.txt").write_text("mine")
    assert main(["share", str(tmp_path), str(tmp_path / "shared")]) == 2
    assert "exists already; give a new or an empty folder" in capsys.readouterr().err
    assert main(["share", str(tmp_path), str(tmp_path / "new"), "--episodes", "1"]) == 2
    assert "--episodes" in capsys.readouterr().err
    assert files_of(tmp_path) == {"shared/notes.txt"}


def test_the_card_of_one_episode_has_a_mean_alone():
    assert _spread({"mean": 3.0, "standard_deviation": None}) == "3.00"
    assert _spread({"mean": 3.0, "standard_deviation": 1.0}) == "3.00 +/- 1.00"
