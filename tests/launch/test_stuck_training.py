"""Runs in one process whose training makes no progress, or whose process is stopped."""

import os
import signal
import time

import pytest
from tiny_trainer import Program, TinyTrainer
from waiting import wait_until

from srl.api.cli import main
from srl.config.experiment import load_experiment
from srl.launch.local import train
from srl.run.folder import create_run
from srl.system.supervised import process_state


@pytest.mark.parametrize(
    ("how", "number"), [("python", signal.SIGINT), ("released", signal.SIGTERM)]
)
def test_one_signal_ends_a_run_whose_first_update_never_comes(tmp_path, how, number):
    with Program(tmp_path / "run", "updates=60", f"hang={how}", "at=1") as program:
        program.wait_for("it hangs")
        program.process.send_signal(number)
        code, _, errors = program.end()
    assert code == 130
    assert "trainer failed" not in errors
    assert main(["top", str(tmp_path / "run")]) == 130
    assert "stopping after this update" in errors
    assert "ended before this update: no progress for" in errors
    assert "in hang" in errors
    assert "there is no checkpoint yet: `srl resume" in errors
    assert "in hang" in (tmp_path / "run" / "logs" / "trainer.log").read_text()


def test_code_that_holds_pythons_lock_for_good_is_named_and_ends_with_two_interrupts(tmp_path):
    words = ("updates=60", "hang=held", "at=1", "heartbeat-seconds=0.5")
    with Program(tmp_path / "run", *words) as program:
        program.wait_for("in hang", "stderr")
        program.process.send_signal(signal.SIGINT)
        wait_until(lambda: not program.catches(signal.SIGINT))
        program.process.send_signal(signal.SIGINT)
        assert program.end()[0] == -signal.SIGINT


def test_a_run_that_was_stopped_for_longer_than_the_limit_shows_no_stacks(tmp_path):
    words = ("updates=9", "report-every=1", "pause=0.2", "heartbeat-seconds=0.5")
    with Program(tmp_path / "run", *words) as program:
        program.wait_for("updates 2/9")
        os.killpg(program.process.pid, signal.SIGTSTP)
        stopped = time.monotonic()
        wait_until(lambda: process_state(program.process.pid).startswith("stopped"))
        wait_until(lambda: time.monotonic() > stopped + 9)  # 0.5 s, and 6 s to spare
        os.killpg(program.process.pid, signal.SIGCONT)
        code, _, errors = program.end()
    assert code == 0
    assert errors == ""


def test_a_run_that_hangs_is_named_with_its_stack(tmp_path, capsys):
    log = tmp_path / "run" / "logs" / "trainer.log"

    def hang(trainer):
        deadline = time.monotonic() + 60
        while trainer.updates == 3 and time.monotonic() < deadline:
            if log.exists() and "in hang" in log.read_text():
                break

    words = ("--updates", "9", "--heartbeat-seconds", "0.2")
    resolved = load_experiment("Tiny-v0", words)
    folder = create_run(resolved, tmp_path / "run")
    assert train(resolved.experiment, folder, trainer=TinyTrainer(on_update=hang)) == 0
    assert "the training has shown no progress for 0.2 s" in capsys.readouterr().out
    assert "in hang" in log.read_text()
