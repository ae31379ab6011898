"""Training from a script, a test and a thread does what the command does."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import gymnasium
import numpy as np
import pytest

import srl
from srl import SelfPlay, UserError, plans
from srl.algorithms import ALGORITHMS, DQN, PPO, Mixer
from srl.config.experiment import load_experiment
from srl.core.config_values import config_values, made_from
from srl.dataflow.plans import PLANS
from srl.networks import MLP
from srl.pools import NamedEnv
from srl.record.checkpoint import Checkpoints, Damaged
from tests.small_runs import CARTPOLE, GAME

SMALL = replace(CARTPOLE, updates=2, report_every=1)

# ---- an experiment as values ----

OWN_CODE = ("foraging", "overcooked", "robot", "smax")
"""Experiments with classes or functions of their file, which only a run's folder can import."""
SHIPPED = [file for file in Path("experiments").glob("*.py") if file.stem not in OWN_CODE]


@pytest.mark.parametrize(
    "experiment",
    [
        GAME,
        replace(CARTPOLE, env=NamedEnv("Taxi-v3", {"is_rainy": True}), self_play=SelfPlay()),
        *(replace(CARTPOLE, plan=plan()) for plan in PLANS.values()),
        *(replace(CARTPOLE, algorithm=kind().settled()) for kind in ALGORITHMS),
        *(load_experiment(str(file)).experiment for file in SHIPPED),
    ],
    ids=lambda experiment: type(experiment.algorithm).__name__,
)
def test_an_experiment_made_of_its_values_is_the_same(experiment):
    values = json.loads(json.dumps(config_values(experiment)))
    made = made_from(values)
    assert made == experiment
    assert repr(made) == repr(experiment)


# ---- runs ----

_SCRIPT = """
import sys
import srl
from tests.small_runs import CARTPOLE

run = srl.train(CARTPOLE, run_dir=sys.argv[1], plan=srl.plans.inline(1))
print("trained", run.last["updates"])
"""


def test_a_script_without_a_guard_trains_with_workers_and_only_once(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        _SCRIPT.replace("CARTPOLE,", "__import__('dataclasses').replace(CARTPOLE, updates=2),")
    )
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "run")],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("trained 2") == 1
    assert "done; the run is in" in done.stdout


def test_a_run_in_a_thread_gives_its_metrics_its_policies_and_goes_on(tmp_path, capfd):
    found = []
    run_dir = tmp_path / "run"
    thread = threading.Thread(
        target=lambda: found.append(srl.train(SMALL, run_dir=run_dir, quiet=True))
    )
    thread.start()
    thread.join()
    (run,) = found
    assert run.path == srl.Run(run_dir).path == run_dir
    assert [row["updates"] for row in run.metrics] == [1, 2]
    assert run.columns()["env_steps"] == [128, 256]
    assert run.last["episodes"] > 0
    assert run.load().act(np.zeros(4))[0] in (0, 1)
    assert run.resume(env_steps=384, quiet=True).last["env_steps"] == 384
    out, err = capfd.readouterr()
    assert (out, err) == ("", "")


class Mine(gymnasium.Wrapper):
    """CartPole that can interrupt this process, or fail, at its 20th step."""

    steps, action = 0, None

    def __init__(self):
        super().__init__(gymnasium.make("CartPole-v1"))

    def step(self, action):
        Mine.steps += 1
        if Mine.steps == 20 and Mine.action is not None:
            Mine.action()
        return super().step(action)


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)


def fail():
    raise ValueError("the simulator is out of fuel")


def mine(**settings):
    Mine.steps, Mine.action = 0, None
    return replace(SMALL, env=lambda: Mine(), num_envs=2, **settings)


def test_what_other_processes_cannot_import_is_named_and_runs_in_one_process(tmp_path):
    experiment = mine()
    with pytest.raises(
        UserError, match=r"^env is a lambda, which no other process can import"
    ) as e:
        srl.train(experiment, run_dir=tmp_path / "run", plan="inline")
    assert "the plan inline has workers" in str(e.value)
    assert not (tmp_path / "run").exists()
    evaluated = replace(experiment, evaluation=srl.Evaluation())
    with pytest.raises(UserError, match=r"evaluation plays .* or leave out evaluation$"):
        srl.train(evaluated, run_dir=tmp_path / "run")
    run = srl.train(experiment, run_dir=tmp_path / "run", quiet=True)
    with pytest.raises(UserError, match=r"env is a lambda.* resume=True.* top level of a module"):
        srl.Run(run.path).resume()
    assert run.evaluate(episodes=1)["results"]
    more = replace(experiment, updates=3)
    assert srl.train(more, run_dir=run.path, resume=True, quiet=True).last["updates"] == 3
    other = replace(more, algorithm=PPO(unroll_length=8))
    with pytest.raises(UserError, match="began with algorithm"):
        srl.train(other, run_dir=run.path, resume=True)


def test_a_run_in_one_process_that_lost_its_checkpoints_begins_again(tmp_path):
    experiment = mine()
    run = srl.train(experiment, tmp_path / "run", quiet=True)
    shutil.rmtree(run.path / "checkpoints")
    with pytest.raises(UserError, match=r"\(in Python anew=True\) trains from the beginning"):
        srl.train(experiment, run.path, resume=True)
    assert srl.train(experiment, run.path, resume=True, anew=True, quiet=True).last["updates"] == 2


def test_the_folder_and_the_version_are_the_second_argument(tmp_path):
    run = srl.train(SMALL, tmp_path / "run", quiet=True)
    assert run.path == tmp_path / "run"
    assert srl.load(run, 2).version == 2
    assert srl.evaluate(run.path, 2, episodes=1)["version"] == 2
    with pytest.raises(UserError, match="there is no version 7"):
        run.evaluate(7, episodes=1)


def test_a_run_goes_on_without_damaged_blocks_of_its_replay(tmp_path, capsys):
    learns = DQN(network=MLP(width=8), unroll_length=4, batch_size=16, warm_up=0, replay=5 * 32)
    run = srl.train(replace(SMALL, algorithm=learns), tmp_path / "run", quiet=True)
    (block,) = (run.path / "checkpoints" / "replay").glob("*-2.*")
    os.truncate(block, 100)
    with pytest.raises(Damaged, match=r"partial_replay=True\) goes on without 1 of"):
        run.resume(updates=3, version=2)
    run.resume(partial_replay=True)
    assert "checkpoint 2 goes on without 1 of" in capsys.readouterr().out
    Checkpoints(run.path / "checkpoints").check_replay(2)


def test_a_folder_without_a_run_is_refused_as_it_is_named(tmp_path):
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(UserError, match="is not a run folder"):
            srl.Run(folder)


SETS = """
from dataclasses import dataclass

from srl import Experiment
from srl.pools.config import NamedEnv


@dataclass(frozen=True)
class Sets(NamedEnv):
    parts: frozenset = frozenset({"alpha", "beta", "gamma", "delta"})
    limit: float = float("nan")


experiment = Experiment(name="sets", env=Sets("CartPole-v1"), num_envs=2)
"""


def test_settings_that_hold_a_set_or_nan_are_the_same_in_every_process(tmp_path):
    (tmp_path / "sets.py").write_text(SETS)
    make = "import sys; from pathlib import Path; from srl.run.folder import {0}; {1}"
    create = "create_run(load_experiment('sets.py'), Path('run'))"
    made = make.format("create_run", f"from srl.config.experiment import load_experiment; {create}")
    opened = make.format("open_run", "open_run(Path('run'), to_train=True)")
    for seed, code in (("1", made), ("2", opened), ("3", opened)):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, check=True)


def test_an_interrupted_run_goes_on_from_its_checkpoint(tmp_path):
    experiment = mine(report_every=1)
    Mine.action = interrupt
    with pytest.raises(KeyboardInterrupt, match="after a checkpoint"):
        srl.train(replace(experiment, updates=5), run_dir=tmp_path / "run", quiet=True)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    done = srl.Run(tmp_path / "run")
    assert done.last["updates"] < 5
    experiment = replace(experiment, updates=5)
    assert srl.train(experiment, run_dir=done.path, resume=True, quiet=True).last["updates"] == 5


def test_a_failure_raises_what_the_command_prints(tmp_path, capfd):
    experiment = mine()
    Mine.action = fail
    with pytest.raises(srl.RunError, match="out of fuel") as error:
        srl.train(experiment, run_dir=tmp_path / "run", quiet=True)
    assert "trainer.log" in str(error.value)
    assert capfd.readouterr().out == ""


def test_a_file_is_trained_as_by_the_command(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "from dataclasses import replace\nfrom tests.small_runs import CARTPOLE\n"
        "experiment = replace(CARTPOLE, updates=1)\n"
    )
    overrides = ["--seed", "3"]
    run = srl.train(file, plan="threads", overrides=overrides, run_dir=tmp_path / "run", quiet=True)
    config = json.loads((run.path / "config.json").read_text())
    assert (config["target"], config["experiment"]["seed"]) == (str(file), 3)
    assert config["overrides"] == ["--plan", "threads", "--seed", "3"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"experiment": "CartPole-v1", "overrides": "--seed 1"},
            r"expected a list, such as \['--seed', '1'\]",
        ),
        ({"experiment": "CartPole-v1", "overrides": ["--seed", 1]}, "overrides has 1; expected"),
        ({"experiment": SMALL, "on_evaluation": print}, "on_evaluation would never be called"),
        ({"experiment": SMALL, "overrides": ["--seed", "1"]}, "overrides are for"),
        ({"experiment": "CartPole-v1", "plan": plans.inline()}, "is given by its name"),
        ({"experiment": SMALL, "resume": True}, "give its folder as run_dir"),
        ({"experiment": replace(SMALL, num_envs=0)}, "num_envs is 0"),
        ({"experiment": replace(SMALL, name=3)}, "name is 3; expected letters"),
        (
            {"experiment": replace(SMALL, algorithm=PPO(network="mlp"))},
            "algorithm.network is 'mlp'; expected a Network",
        ),
        (
            {"experiment": replace(SMALL, algorithm=PPO(mirror=1))},
            r"algorithm.mirror is 1; expected a Mirror, or none",
        ),
        (
            {"experiment": replace(SMALL, algorithm=DQN(mixer=Mixer("vdn")))},
            "algorithm.mixer mixes the values of a team, and the environment has one agent",
        ),
    ],
)
def test_mistakes_are_refused_before_anything_is_made(arguments, message):
    with pytest.raises(UserError, match=message):
        srl.train(**arguments)
