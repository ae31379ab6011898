"""`--plan auto` measures plans, and the run keeps its choice."""

import dataclasses
import itertools
import os
import re
import signal
import tempfile

import pytest

from srl.api.cli import main
from srl.config.experiment import load_experiment
from srl.launch import auto
from srl.record.run_record import RunFolder, read_config
from srl.run.folder import continue_run, create_run, open_run

SLOW = """
import time

import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv

from srl import Experiment
from srl.algorithms import PPO
from srl.networks import MLP


class Slow(CartPoleEnv):
    def step(self, action):
        time.sleep(0.01)
        return super().step(action)


experiment = Experiment(
    name="slow",
    env=Slow,
    num_envs=4,
    algorithm=PPO(network=MLP(width=8), unroll_length=8, epochs=1, minibatches=1),
    plan="auto",
    updates=2,
)
"""


@pytest.fixture
def short(monkeypatch, tmp_path):
    """Measures for less long, in a place that is looked at afterwards."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(auto, "SECONDS", 0.5)
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    yield
    assert list(place.iterdir()) == []


@pytest.mark.usefixtures("short")
def test_a_run_keeps_the_plan_that_was_chosen_so_that_resume_measures_nothing(tmp_path, capfd):
    run = tmp_path / "run"
    words = ["--num-envs", "1", "--plan", "auto", "--updates", "2", "--run-dir", str(run)]
    assert main(["run", "CartPole-v1", *words]) == 0
    told = capfd.readouterr().out
    lines = told.splitlines()
    assert lines[0] == "trains for 0.5 s under each of 1 plans, once it is warm:"
    arguments = "--plan replicated --plan.learners.replicas 1"
    assert (found := re.fullmatch(rf"{arguments}: ([\d,]+ env steps/s); .+", lines[1]))
    assert f"chosen: {arguments}, {found[1]};" in lines[2]
    folder, resolved = open_run(run, to_train=True)
    assert resolved.experiment.settled_plan.name == "replicated"
    chosen = ["--plan", "replicated", "--plan.learners.replicas", "1"]
    assert read_config(folder)["overrides"][-4:] == chosen
    assert auto.settled(folder, resolved, pytest.fail) is resolved  # as `srl resume` asks for it
    again = dataclasses.replace(resolved.experiment, plan="auto", updates=3)  # by a program
    going_on = continue_run(folder, dataclasses.replace(resolved, experiment=again))
    assert going_on.experiment.settled_plan.name == "replicated"
    assert open_run(run)[1].experiment.settled_plan.name == "replicated"


@pytest.mark.slow
@pytest.mark.usefixtures("short")
def test_a_slow_simulator_gets_several_actors(tmp_path, capfd):
    file, run = tmp_path / "slow.py", tmp_path / "run"
    file.write_text(SLOW)
    assert main(["run", str(file), "--run-dir", str(run)]) == 0
    told = capfd.readouterr().out
    assert "--plan replicated --plan.learners.replicas 1: " in told
    assert "fused" not in told  # it is not native
    plan = open_run(run)[1].experiment.settled_plan
    assert plan.name in ("threads", "inline")
    assert plan.fragments["actors"].replicas >= 2


@pytest.mark.usefixtures("short")
def test_an_environment_that_cannot_be_made_is_told_and_leaves_no_folder(tmp_path, capfd):
    words = ["run", "NoSuch-v0", "--num-envs", "3", "--plan", "auto"]
    assert main([*words, "--run-dir", str(tmp_path / "run")]) == 2
    assert "NoSuch" in capfd.readouterr().err
    assert not (tmp_path / "run").exists()


def names(*words):
    resolved = load_experiment(words[0], [*words[1:], "--plan", "auto"])
    return [candidate[1] for candidate, _ in auto.candidates(resolved)]


def test_only_plans_that_fit_the_experiment_are_candidates():
    assert names("native:CartPole-v1", "--num-envs", "1") == ["fused", "replicated"]
    assert names("CartPole-v1", "--num-envs", "1") == ["replicated"]
    assert {*"fused replicated threads inline central decoupled".split()} == {
        *names("native:CartPole-v1")
    }
    assert "inline" in names("native:CartPole-v1", "--num-envs", "7")  # with one actor


def test_plans_that_one_process_can_measure_are_neighbours():
    resolved = load_experiment("native:CartPole-v1", ["--plan", "auto"])
    names = [auto._process_of(candidate) for _, candidate in auto.candidates(resolved)]
    assert len([name for name, _ in itertools.groupby(names)]) == len(set(names)) == 3


def test_plans_are_as_large_as_the_number_of_their_processes():
    resolved = load_experiment("native:CartPole-v1", ["--plan", "auto"])
    sizes: dict[str, int] = {}
    for arguments, candidate in auto.candidates(resolved):  # one actor comes first
        sizes.setdefault(arguments[1], candidate.experiment.settled_plan.processes)
    assert sizes["fused"] == sizes["replicated"] == 1
    assert sizes["inline"] == sizes["central"] == 2
    assert sizes["decoupled"] == 3


def test_each_run_of_a_process_has_a_result_or_a_reason(tmp_path):
    (tmp_path / "broken").mkdir()
    (found,) = auto._measured([tmp_path / "broken"])
    assert "broken" in found


PRINTS = """
import os

from srl import Experiment, UserError

print("hello from a library")
os.write(1, b"hello from C++")


def environment():
    raise UserError("this one has none")


experiment = Experiment(name="prints", env=environment, plan="replicated")
"""


def test_what_an_experiment_prints_is_no_result(tmp_path):
    file = tmp_path / "prints.py"
    file.write_text(PRINTS)
    resolved = load_experiment(str(file), ["--plan.learners.replicas", "1"])
    folders = [create_run(resolved, tmp_path / name).path for name in "ab"]
    found = list(auto._measured(folders))
    assert len(found) == 2
    assert all("this one has none" in reason for reason in found)


def test_a_candidate_keeps_the_other_words(tmp_path):
    words = ["--plan=auto", "--seed", "3", "--max-staleness", "1"]
    resolved = load_experiment("CartPole-v1", words)
    for words, candidate in auto.candidates(resolved):
        assert candidate.overrides == ("--seed", "3", "--max-staleness", "1", *words)
        assert candidate.experiment.max_staleness == 1
        assert candidate.experiment.settled_plan.name == words[1]


def test_a_plan_is_measured_without_the_runs_end_and_trackers(tmp_path):
    words = ["--plan=auto", "--pause-at", "500", "--trackers", "wandb"]
    first = next(auto.candidates(load_experiment("CartPole-v1", words)))
    experiment = read_config(RunFolder(auto._folder(first, tmp_path, 0.0)))["experiment"]
    assert (experiment["pause_at"], experiment["trackers"]) == (None, [])


def test_measuring_ends_by_srl_stop_as_by_ctrl_c():
    with pytest.raises(KeyboardInterrupt), auto._interrupted_by_sigterm():
        os.kill(os.getpid(), signal.SIGTERM)
