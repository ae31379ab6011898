"""A run with a budget of minutes ends well, and goes on for as many again."""

import json
import math
import re

from tiny_trainer import TinyTrainer

from srl.api.cli import main
from srl.config.experiment import load_experiment
from srl.launch.local import train
from srl.record.checkpoint import Checkpoints
from srl.run.folder import create_run, open_run
from srl.run.resume import made_ready

SECONDS = 0.3
WORDS = ("--minutes", str(SECONDS / 60), "--updates", "1000000", "--keep-checkpoints", "1")


def outcome(folder):
    return json.loads((folder / "outcome.json").read_text())


def test_a_run_ends_after_its_minutes_with_a_checkpoint_and_goes_on(tmp_path, capsys):
    folder = create_run(load_experiment("Tiny-v0", WORDS), tmp_path / "run")
    done = []
    for resume in (False, True):
        _, resolved = open_run(folder.path, to_train=True)
        trainer = TinyTrainer(pause=0.01)
        assert train(resolved.experiment, folder, resume=resume, trainer=trainer) == 0
        out = capsys.readouterr().out
        assert "1,000,000 updates, at most 0.005 minutes" in out
        assert f"the 0.005 minutes of this start are over; `srl resume {folder.path}` goes" in out
        done.append(Checkpoints(folder.checkpoints).latest())
        assert done[-1] == trainer.updates > 0
        assert outcome(folder.path) == {
            "code": 0,
            "reason": "the 0.005 minutes of this start are over",
        }
    assert done[0] < done[1]
    assert main(["top", str(folder.path)]) == 0
    assert "has ended: the 0.005 minutes of this start are over;" in capsys.readouterr().out

    _, resolved = open_run(folder.path, to_train=True)
    assert made_ready(folder, resolved, print, minutes=math.inf).experiment.minutes is None
    assert open_run(folder.path, to_train=True)[1].experiment.minutes is None


def test_a_run_in_processes_ends_after_its_minutes(tmp_path, capsys):
    words = "--plan inline --plan.actors.replicas 1 --num-envs 8 --updates 1000000 --report-every 1"
    small = "--algorithm.unroll-length 16 --algorithm.network.mlp.width 16 --algorithm.epochs 2"
    command = ["run", "native:CartPole-v1", *words.split(), *small.split()]
    assert main([*command, "--minutes", "0.1", "--run-dir", str(tmp_path / "run")]) == 0
    assert "the 0.1 minutes of this start are over" in capsys.readouterr().out
    assert outcome(tmp_path / "run")["code"] == 0
    assert outcome(tmp_path / "run")["reason"].startswith("the 0.1 minutes")


def test_a_limit_of_no_minutes_is_refused(capsys):
    assert main(["run", "CartPole-v1", "--minutes", "0", "--dry-run"]) == 2
    assert re.search(r"minutes is 0.0; expected a number from 0.001", capsys.readouterr().err)
    assert main(["resume", "nowhere", "--minutes", "soon"]) == 2
    assert "'soon'; expected a number of minutes, or none" in capsys.readouterr().err
