"""Versions are evaluated beside a real run, and change nothing of its training."""

import json

import numpy as np
import pytest

from srl import evaluate
from srl.api.cli import main
from srl.core.episodes import evaluated_metrics
from srl.core.types import Specs
from srl.record import array_file
from srl.record.checkpoint import BEST, Checkpoints
from srl.record.run_record import RunFolder, read_specs

EXPERIMENT = """
from srl import Evaluation, Experiment
from srl.algorithms import PPO
from srl.networks import MLP

experiment = Experiment(
    name="balance",
    env="native:CartPole-v1",
    num_envs=8,
    algorithm=PPO(network=MLP(width=16), unroll_length=16, epochs=2),
    evaluation=Evaluation(episodes=4, share=1.0),
    updates=20,
    keep_checkpoints=1,
)
"""
SIZED = """
import gymnasium, numpy

class Sized(gymnasium.Env):
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, size=2):
        self.observation_space = gymnasium.spaces.Box(0, 1, (size,))

    def reset(self, seed=None, options=None):
        return numpy.zeros(self.observation_space.shape, numpy.float32), {}

    def step(self, action):
        return self.reset()[0], 1.0, True, False, {}
"""
PLAIN = EXPERIMENT.replace("    evaluation=Evaluation(episodes=4, share=1.0),\n", "")


def run(tmp_path, text, *words, name="run"):
    """Trains; gives the exit code and the folder."""
    (tmp_path / f"{name}.py").write_text(text)
    folder = tmp_path / name
    return main(["run", str(tmp_path / f"{name}.py"), "--run-dir", str(folder), *words]), folder


def evaluations(folder):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if "eval/return" in line]


def parameters(folder, version):
    arrays, _ = array_file.read(folder / "checkpoints" / f"{version}.safetensors")
    return arrays


def test_the_last_version_is_evaluated_and_training_stays_the_same(tmp_path, capsys):
    code, folder = run(tmp_path, EXPERIMENT)
    assert code == 0
    last = evaluations(folder)[-1]
    assert (last["updates"], last["env_steps"]) == (20, 20 * 8 * 16)
    assert last["eval/return"] == last["eval/length"] > 5
    assert last["eval/return_std"] == pytest.approx(2 * last["eval/return_error"])  # of 4
    out = capsys.readouterr().out
    assert "evaluating the last version, 20, for at most 120 s" in out
    assert "evaluated version 20: return" in out

    best = Checkpoints(folder / "checkpoints").metadata(BEST)
    assert best["evaluation"]["eval/return"] == max(e["eval/return"] for e in evaluations(folder))
    again = evaluate(folder, version="best", episodes=4)
    assert again["version"] == best["updates"]
    assert again["results"]["episode_return"]["mean"] == best["evaluation"]["eval/return"]
    assert (
        again["results"]["episode_return"]["standard_deviation"]
        == best["evaluation"]["eval/return_std"]
    )
    assert main(["export", str(folder), str(tmp_path / "best.safetensors"), "--version", BEST]) == 0

    code, plain = run(tmp_path, PLAIN, name="plain")
    assert code == 0
    with_evaluation, without = parameters(folder, 20), parameters(plain, 20)
    assert with_evaluation.keys() == without.keys()
    assert all(np.array_equal(without[name], array) for name, array in with_evaluation.items())
    assert main(["eval", str(plain), "--version", "best"]) == 2
    assert "there is no version best" in capsys.readouterr().err


def test_a_run_that_ends_before_its_last_version_is_filmed_reports_that(tmp_path, capsys):
    code, folder = run(tmp_path, EXPERIMENT, "--updates", "2", "--evaluation.video", "true")
    assert code == 0
    assert evaluations(folder)[-1]["updates"] == 2
    text = (
        f"version 2 was not filmed, as a run does not wait for films; `srl eval {folder} --video`"
    )
    assert text in capsys.readouterr().out
    assert text in (folder / "logs" / "trainer.log").read_text()


def test_a_run_ends_at_its_target_and_goes_on_if_its_budget_is_extended(tmp_path, capsys):
    code, folder = run(
        tmp_path, EXPERIMENT, "--env-steps", "500_000_000", "--evaluation.target", "5"
    )
    assert code == 0
    out = capsys.readouterr().out
    assert "has reached the target: its eval/return is" in out
    checkpoints = Checkpoints(folder / "checkpoints")
    steps = checkpoints.newest_counts()["env_steps"]
    assert steps < 500_000_000
    assert main(["resume", str(folder)]) == 0
    assert "is finished: version" in capsys.readouterr().out
    assert checkpoints.newest_counts()["env_steps"] == steps

    more = str(steps + 5 * 8 * 16)
    assert main(["resume", str(folder), "--env-steps", more]) == 0
    assert checkpoints.newest_counts()["env_steps"] == int(more)
    assert evaluations(folder)[-1]["env_steps"] == int(more)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--evaluation.metric", "retrun"], "evaluation.metric is 'retrun', which is none: did"),
        (["--evaluation.metric", "sampled/return"], "did you mean return?"),
        (["--env", "CartPole-v1", "--evaluation.metric", "retrun"], "did you mean return?"),
    ],
)
def test_a_metric_that_evaluation_does_not_have_is_refused_before_training(
    words, error, tmp_path, capsys
):
    code, folder = run(tmp_path, EXPERIMENT, *words)
    assert code == 2
    assert error in capsys.readouterr().err
    assert not list(folder.glob("checkpoints/*.safetensors"))


@pytest.mark.parametrize(
    ("policies", "groups"),
    [
        ({"all": (0, 1, 2)}, {"hider", "seeker"}),
        ({"hiders": (0, 1), "seekers": (2,)}, {"hiders", "seekers"}),
        ({"one": (0,), "others": (1, 2)}, {"hider", "seeker", "one", "others"}),
        ({"hiders": (0, 1)}, {"hider", "seeker"}),
    ],
)
def test_returns_of_an_evaluation_are_those_of_policies_and_of_kinds_of_agents(policies, groups):
    specs = Specs(None, None, ("hider_0", "hider_1", "seeker_0"), statistics=("boxes",))
    names = evaluated_metrics(specs, policies)
    assert {"return", "length", "return_error", "return_std", "env/boxes"} < set(names)
    assert {x.removeprefix("return/") for x in names if x.startswith("return/")} == groups


def test_metrics_of_an_evaluation_are_known_before(tmp_path, capsys):
    env = "mixture:swing=native:Pendulum-v1,roll=native:MountainCarContinuous-v0"
    words = ("--env", env, "--updates", "1", "--evaluation.actions", "both")
    code, folder = run(tmp_path, EXPERIMENT, *words)
    assert code == 0, capsys.readouterr().err
    names = evaluated_metrics(read_specs(RunFolder(folder)), {"policy": (0,)})
    assert {"length/swing", "return/roll"} < set(names)
    (found,) = evaluations(folder)
    expected = {f"eval/{x}{name}" for name in names for x in ("", "sampled/")}
    assert {x for x in found if x.startswith("eval/")} == {*expected, "eval/episodes"}
    assert found["eval/return"] != found["eval/sampled/return"]


def test_a_run_whose_versions_cannot_be_evaluated_reports_that_and_ends_well(tmp_path, capsys):
    (tmp_path / "sized.py").write_text(SIZED)
    text = EXPERIMENT.replace("native:CartPole-v1", "sized:Sized")
    code, folder = run(tmp_path, text, "--evaluation.options.size", "3")
    assert code == 0
    out = capsys.readouterr().out
    reason = "evaluation.options {'size': 3} make environments in which the policies cannot play"
    assert f"the evaluator cannot play here ({reason}" in out
    assert "); versions are not evaluated; its log is" in out
    assert "version 20 was not evaluated; `srl eval` can do so" in out
    assert "the last versions were not evaluated; " in out  # though that was long ago
    log = (folder / "logs" / "evaluator.log").read_text()
    assert reason in log
    assert not evaluations(folder)
