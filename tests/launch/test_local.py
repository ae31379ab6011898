import collections
import contextlib
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
import tiny_trainer
from tiny_trainer import STEPS, Program, TinyTrainer
from waiting import wait_until

from srl.api.cli import main
from srl.config.experiment import load_experiment
from srl.core.errors import RunError, UserError
from srl.launch.local import train
from srl.record.checkpoint import Checkpoints
from srl.record.run_record import read_config
from srl.run.folder import create_run, open_run
from srl.run.metrics import read_metrics
from srl.run.resume import made_ready
from srl.run.train_loop import report_interval


def run(folder, *words, trainer=None, resume=False):
    if resume:
        opened, resolved = open_run(folder)
    else:
        resolved = load_experiment("Tiny-v0", words)
        opened = create_run(resolved, folder)
    trainer = trainer or TinyTrainer()
    return train(resolved.experiment, opened, resume=resume, trainer=trainer)


def curve(folder):
    return [{k: v for k, v in line.items() if k != "time"} for line in read_metrics(folder)]


def weights(folder):
    tree, _ = Checkpoints(folder / "checkpoints").restore()
    return tree["learners"]["policy"]["params"]["policy"]["kernel"].tobytes()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run of 60 updates that was never stopped."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    assert run(folder, "--updates", "60", "--report-every", "7") == 0
    return folder


def assert_same_run(folder, whole):
    assert curve(folder) == curve(whole)
    assert weights(folder) == weights(whole)


def test_a_run_ends_at_its_updates(whole):
    assert [line["updates"] for line in curve(whole)] == [7, 14, 21, 28, 35, 42, 49, 56, 60]
    assert Checkpoints(whole / "checkpoints").latest() == 60


def test_a_run_ends_at_its_env_steps(tmp_path):
    trainer = TinyTrainer()
    assert run(tmp_path / "run", "--env-steps", "1050", trainer=trainer) == 0
    assert trainer.env_steps == 1100
    assert trainer.closed
    assert curve(tmp_path / "run")[-1]["env_steps"] == 1100


@pytest.mark.parametrize(
    ("words", "interval"),
    [
        ("--updates 10", 1),
        ("--updates 1000", 20),
        ("--updates 1000000", 100),
        ("--env-steps 1000000 --num-envs 10 --algorithm.unroll-length 100", 20),
        ("--updates 1000 --report-every 3", 3),
    ],
)
def test_reports_come_every_so_many_updates(words, interval):
    assert report_interval(load_experiment("Tiny-v0", words.split()).experiment) == interval


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_run_goes_on_as_if_it_never_was(tmp_path, whole, number):
    folder = tmp_path / "run"
    with Program(folder, "updates=60", "report-every=7", "pause=0.01") as program:
        program.wait_for("updates 21/60")
        program.process.send_signal(number)
        code, output, errors = program.end()
    assert code == 130
    assert f"`srl resume {os.path.relpath(folder)}` goes on" in output or str(folder) in output
    assert "stopping after this update" in errors
    assert "Traceback" not in errors
    assert 21 <= Checkpoints(folder / "checkpoints").latest() < 60
    assert run(folder, resume=True) == 0
    assert_same_run(folder, whole)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_to_a_simulators_forks_end_them_and_not_the_run(tmp_path, number):
    with Program(tmp_path / "run", "updates=3", f"fork={number.value}") as program:
        code, output, errors = program.end()
    assert code == 0, errors
    assert output.count(f"the fork has ended with -{number.value}") == 3
    assert "stopping" not in errors


def test_a_killed_run_goes_on_from_its_last_checkpoint(tmp_path, whole):
    folder = tmp_path / "run"
    words = ("updates=60", "report-every=7", "pause=0.01", "checkpoint-minutes=0.002")
    with Program(folder, *words) as program:
        program.wait_for("updates 35/60")
        program.process.kill()
        assert program.end()[0] == -signal.SIGKILL
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"torn')
    assert run(folder, resume=True) == 0
    assert_same_run(folder, whole)


def test_a_run_killed_before_its_first_checkpoint_starts_from_the_beginning(
    tmp_path, whole, capsys
):
    folder = tmp_path / "run"
    with Program(folder, "updates=60", "report-every=7", "pause=3600") as program:
        program.wait_for("policy ")
        program.process.kill()
        program.end()
    assert run(folder, resume=True) == 0
    assert "the run starts from the beginning" in capsys.readouterr().out
    assert_same_run(folder, whole)


def test_a_run_without_its_checkpoints_is_not_replaced_by_a_new_one(tmp_path, whole, capsys):
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    shutil.rmtree(folder / "checkpoints")
    recorded = (folder / "metrics.jsonl").read_text()
    film = folder / "videos" / "env_steps_000000002100.mp4"
    film.parent.mkdir()
    film.write_bytes(b"a film")
    assert main(["resume", str(folder)]) == 2
    assert "no checkpoint to go on from, and its metrics reach 6,000 env" in capsys.readouterr().err
    assert (folder / "metrics.jsonl").read_text() == recorded
    assert run(folder, resume=True) == 0  # as --anew does it
    assert_same_run(folder, whole)
    assert (folder / "metrics.reverted.jsonl").read_text() == recorded
    assert (folder / "videos" / "reverted" / film.name).read_bytes() == b"a film"


def test_a_run_goes_on_to_more_updates(tmp_path, whole):
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    opened, resolved = open_run(folder)
    with pytest.raises(UserError, match="--updates 60: 60 are done already"):
        made_ready(opened, resolved, print, updates=60)
    made_ready(opened, resolved, print, updates=67)
    assert run(folder, resume=True) == 0
    assert curve(folder)[-1]["updates"] == 67
    assert read_config(opened)["overrides"][-2:] == ["--updates", "67"]


def test_a_run_killed_in_its_first_minutes_goes_on_from_one_of_its_first_updates(tmp_path, whole):
    folder = tmp_path / "run"
    with Program(folder, "updates=60", "report-every=7", "pause=0.01") as program:
        program.wait_for("updates 7/60")
        wait_until(lambda: Checkpoints(folder / "checkpoints").versions())
        program.process.kill()
        program.end()
    assert Checkpoints(folder / "checkpoints").latest() == 1
    assert run(folder, resume=True) == 0
    assert_same_run(folder, whole)


def test_a_second_interrupt_quits_at_once(tmp_path):
    with Program(tmp_path / "run", "updates=60", "pause=3600") as program:
        program.wait_for("policy ")
        program.process.send_signal(signal.SIGINT)
        program.wait_for("again quits at once", "stderr")
        program.process.send_signal(signal.SIGINT)
        assert program.end()[0] == -signal.SIGINT
    assert run(tmp_path / "run", resume=True) == 0


def test_a_second_interrupt_during_the_last_checkpoint_loses_nothing_that_was_written(tmp_path):
    folder, width = tmp_path / "run", 20_000_000
    with Program(folder, "updates=60", f"width={width}") as program:
        wait_until(lambda: Checkpoints(folder / "checkpoints").versions())
        program.process.send_signal(signal.SIGINT)
        program.wait_for("is whole, it goes on after update 1")
        program.process.send_signal(signal.SIGINT)
        assert program.end()[0] == -signal.SIGINT
    assert Checkpoints(folder / "checkpoints").versions() == [1]
    opened, resolved = open_run(folder)
    shorter = dataclasses.replace(resolved.experiment, updates=2)
    assert train(shorter, opened, resume=True, trainer=TinyTrainer(width=width)) == 0
    assert Checkpoints(folder / "checkpoints").versions() == [1, 2]


def test_a_run_of_this_machine_is_stopped_from_elsewhere_after_a_checkpoint(tmp_path, capsys):
    folder = tmp_path / "run"
    with Program(folder, "updates=60", "report-every=7", "pause=0.5") as program:
        program.wait_for("updates 7/60")
        assert main(["stop", str(folder)]) == 0
        assert program.end()[0] == 130
    assert "it ends after a checkpoint" in capsys.readouterr().out
    assert Checkpoints(folder / "checkpoints").latest() >= 7
    assert main(["stop", str(folder)]) == 0
    assert main(["top", str(folder)]) == 130
    shown = capsys.readouterr().out
    assert shown.count(f"has ended; `srl resume {folder}` goes on with it") == 2


def test_a_run_of_this_machine_is_shown_elsewhere_until_it_ends(tmp_path, capsys):
    folder = tmp_path / "run"
    with Program(folder, "updates=21", "report-every=7", "pause=0.3") as program:
        program.wait_for("updates 7/21")
        assert main(["top", str(folder)]) == 0
    shown = capsys.readouterr().out
    for line in ("updates 7/21", "updates 14/21", "updates 21/21", "is finished: 2,100 env steps"):
        assert line in shown


def failures(folder, capsys):
    """What `srl top` shows of a run that has failed."""
    assert main(["top", str(folder)]) == 1
    return capsys.readouterr().out


def test_srl_top_shows_why_a_run_failed(tmp_path, capsys):
    folder = tmp_path / "run"
    trainer = TinyTrainer(fail_at=3, error=RunError("the reward of environment 2 is NaN"))
    assert run(folder, "--updates", "9", trainer=trainer) == 1
    reason = "has failed: the reward of environment 2 is NaN; its logs are in"
    assert reason in failures(folder, capsys)
    with Program(folder, "resume", "hang=python", "at=4") as program:
        program.wait_for("it hangs")
        program.process.kill()
        program.end()
    assert "has failed: the process was killed, or an environment" in failures(folder, capsys)
    assert run(folder, resume=True) == 0
    assert main(["top", str(folder)]) == 0


def test_a_second_training_of_a_run_is_told_how_to_end_the_first(tmp_path):
    folder = tmp_path / "run"
    with Program(folder, "updates=60", "pause=3600") as program:
        program.wait_for("policy ")
        with pytest.raises(UserError, match=f"`srl stop {folder}` ends it after a checkpoint"):
            run(folder, resume=True)


def test_an_update_that_never_comes_loses_nothing_before_the_newest_checkpoint(tmp_path, whole):
    folder = tmp_path / "run"
    words = ("updates=60", "report-every=7", "checkpoint-minutes=0", "hang=released", "at=30")
    with Program(folder, *words) as program:
        program.wait_for("it hangs")
        program.process.send_signal(signal.SIGINT)
        code, _, errors = program.end()
    assert code == 130
    version = Checkpoints(folder / "checkpoints").latest()
    assert version is not None
    assert f"goes on after update {version}" in errors
    assert run(folder, resume=True) == 0
    assert_same_run(folder, whole)


def test_a_finished_run_says_so_and_can_be_extended(tmp_path, capsys):
    assert run(tmp_path / "run", "--env-steps", "1000") == 0
    assert run(tmp_path / "run", resume=True, trainer=TinyTrainer(fail_at=1)) == 0
    assert "is finished: 1,000 env steps, 10 updates; extend it" in capsys.readouterr().out
    folder, resolved = open_run(tmp_path / "run")
    longer = dataclasses.replace(resolved.experiment, env_steps=2000)
    assert train(longer, folder, resume=True, trainer=TinyTrainer()) == 0
    steps = [line["env_steps"] for line in curve(tmp_path / "run")]
    assert steps == list(range(STEPS, 2001, STEPS))


def test_an_error_names_the_worker_and_its_log(tmp_path, capsys):
    trainer = TinyTrainer(fail_at=5, error=ValueError("a bug"))
    words = ("--updates", "9", "--checkpoint-minutes", "0")
    assert run(tmp_path / "run", *words, trainer=trainer) == 1
    errors = capsys.readouterr().err
    log = (tmp_path / "run" / "logs" / "trainer.log").read_text()
    for text in (errors, log):
        assert "Traceback" in text
        assert "ValueError: a bug" in text
    assert "trainer failed; its log is" in errors
    assert "logs/trainer.log" in errors
    assert "goes on after update 4" in errors
    assert trainer.closed


def test_an_error_with_a_cause_shows_the_traceback_of_the_cause(tmp_path, capsys):
    def fail(_):
        try:
            raise KeyError("deep in the simulator")
        except KeyError as error:
            raise RunError("environment 3 raised") from error

    assert run(tmp_path / "run", "--updates", "9", trainer=TinyTrainer(on_update=fail)) == 1
    errors = capsys.readouterr().err
    assert "KeyError: 'deep in the simulator'" in errors
    assert "environment 3 raised" in errors


def test_a_foreseen_failure_is_told_without_a_traceback(tmp_path, capsys):
    trainer = TinyTrainer(fail_at=3, error=RunError("the reward of environment 2 is NaN"))
    assert run(tmp_path / "run", "--updates", "9", trainer=trainer) == 1
    errors = capsys.readouterr().err
    assert "the reward of environment 2 is NaN" in errors
    assert "Traceback" not in errors
    assert "Traceback" in (tmp_path / "run" / "logs" / "trainer.log").read_text()


def test_a_checkpoint_that_cannot_be_written_ends_the_run_with_a_message(tmp_path, capsys):
    folder = tmp_path / "run"

    def spoil(trainer):
        if trainer.updates != 5:
            return
        (folder / "file").write_text("")
        for attempt in range(100):  # a save at work may make the folder anew in between
            (folder / "checkpoints").rename(folder / f"moved {attempt}")
            with contextlib.suppress(FileExistsError):
                os.link(folder / "file", folder / "checkpoints")
                return

    words = ("--updates", "9", "--checkpoint-minutes", "0")
    assert run(folder, *words, trainer=TinyTrainer(on_update=spoil)) == 1
    errors = capsys.readouterr().err
    assert "cannot save a checkpoint in" in errors
    assert "Traceback" not in errors


def test_a_diverged_state_is_not_saved(tmp_path, capsys):
    def diverge(trainer):
        if trainer.updates == 5:
            trainer.weights[:] = np.nan

    words = ("--updates", "9", "--report-every", "9", "--checkpoint-minutes", "0")
    assert run(tmp_path / "run", *words, trainer=TinyTrainer(on_update=diverge)) == 1
    assert "training has diverged" in capsys.readouterr().err
    assert Checkpoints(tmp_path / "run" / "checkpoints").latest() == 4


def test_the_first_of_two_errors_is_told(tmp_path, capsys):
    class Fragile(TinyTrainer):
        def close(self):
            raise RunError("the environments hang")

    trainer = Fragile(fail_at=5, error=RunError("the simulator raised"))
    assert run(tmp_path / "run", "--updates", "9", trainer=trainer) == 1
    errors = capsys.readouterr().err
    assert "the simulator raised\ntrainer failed" in errors
    log = (tmp_path / "run" / "logs" / "trainer.log").read_text()
    assert "the environments hang" in log
    trainer = Fragile(fail_at=0, error=UserError("there is no such environment"))
    with pytest.raises(UserError, match="no such environment"):
        run(tmp_path / "other", trainer=trainer)


def test_metrics_that_cannot_be_written_end_the_run_with_a_message(tmp_path):
    folder = tmp_path / "run"
    program = f"{sys.executable} {tiny_trainer.__file__}"
    command = f"ulimit -f 20; exec {program} {folder} updates=500 report-every=1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "cannot write metrics to" in done.stderr
    assert "metrics.jsonl: File too large" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_users_mistake_found_at_the_start_leaves_no_folder_and_names_none(tmp_path, capsys):
    trainer = TinyTrainer(fail_at=0, error=UserError("there is no environment Tiny-v0"))
    with pytest.raises(UserError, match="there is no environment"):
        run(tmp_path / "run", trainer=trainer)
    assert not (tmp_path / "run").exists()
    shown = capsys.readouterr().out
    assert "experiment" in shown
    assert "run folder" not in shown
    assert trainer.closed


def test_a_users_mistake_in_the_first_update_leaves_the_folder_that_was_shown(tmp_path, capsys):
    trainer = TinyTrainer(fail_at=1, error=UserError("an observation does not fit its space"))
    with pytest.raises(UserError, match="does not fit"):
        run(tmp_path / "run", trainer=trainer)
    assert f"run folder   {tmp_path / 'run'}\n" in capsys.readouterr().out
    assert (tmp_path / "run" / "config.json").exists()


def test_a_users_mistake_found_later_loses_nothing(tmp_path):
    trainer = TinyTrainer(fail_at=5, error=UserError("an observation does not fit its space"))
    with pytest.raises(UserError, match="does not fit"):
        run(tmp_path / "run", "--updates", "9", "--checkpoint-minutes", "0", trainer=trainer)
    assert Checkpoints(tmp_path / "run" / "checkpoints").latest() == 4
    assert len(curve(tmp_path / "run")) == 4


def test_another_network_is_refused_on_resume_and_nothing_is_lost(tmp_path):
    folder = tmp_path / "run"
    assert run(folder, "--updates", "3") == 0
    opened, resolved = open_run(folder)
    longer = dataclasses.replace(resolved.experiment, updates=9)
    before = curve(folder), weights(folder)
    with pytest.raises(UserError, match=r"policy/kernel is float64\[4\] in it and float64\[5\]"):
        train(longer, opened, resume=True, trainer=TinyTrainer(width=5))
    assert (curve(folder), weights(folder)) == before


def test_environments_that_start_anew_are_told(tmp_path, capsys):
    assert run(tmp_path / "run", "--updates", "3") == 0
    folder, resolved = open_run(tmp_path / "run")
    longer = dataclasses.replace(resolved.experiment, updates=9)
    assert train(longer, folder, resume=True, trainer=TinyTrainer(exact=False)) == 0
    assert "their episodes start anew" in capsys.readouterr().out


def test_the_first_update_is_reported_where_the_run_chooses_how_often(tmp_path):
    assert run(tmp_path / "run", "--updates", "200") == 0
    assert run(tmp_path / "given", "--updates", "60", "--report-every", "7") == 0
    first = {
        name: json.loads((tmp_path / name / "metrics.jsonl").read_text().partition("\n")[0])
        for name in ("run", "given")
    }
    assert first["run"]["updates"] == 1
    assert first["given"]["updates"] == 7


def test_the_loop_asks_for_little_beside_the_updates(tmp_path):
    trainer = TinyTrainer()
    asked = collections.Counter()
    for name in ("update", "report", "check", "state"):
        setattr(trainer, name, counting(getattr(trainer, name), name, asked))
    assert run(tmp_path / "run", "--updates", "2000", trainer=trainer) == 0
    assert asked == {"update": 2000, "report": 51, "check": 2, "state": 3}


def counting(call, name, asked):
    def counted():
        asked[name] += 1
        return call()

    return counted
