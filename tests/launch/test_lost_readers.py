"""Runs whose terminal is closed, or whose output nobody reads any more."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
import tiny_trainer
from tiny_trainer import Program
from waiting import wait_until

from srl.record.checkpoint import Checkpoints
from srl.run.status import read_outcome, read_reason

HERE = Path(__file__).parent


def assert_done(folder, updates):
    assert (read_outcome(folder), read_reason(folder)) == (0, "")
    assert Checkpoints(folder / "checkpoints").latest() == updates


@pytest.mark.parametrize(
    "words",
    ["--workers 2", pytest.param("--plan threads", marks=pytest.mark.slow), "--plan inline"],
)
def test_a_reader_that_leaves_ends_no_run(tmp_path, words):
    command = f"-m srl run talking_env:Talks --num-envs 4 --updates 3 {words} --run-dir".split()
    with subprocess.Popen(
        [sys.executable, *command, str(tmp_path / "run")],
        cwd=HERE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:
        assert process.stdout.readline()
        process.stdout.close()
        assert process.wait(300) == 0
    assert_done(tmp_path / "run", 3)


def test_a_failure_that_nobody_can_read_of_is_recorded(tmp_path):
    with Program(tmp_path / "run", "updates=9", "fail_at=3", "pause=0.1", "error=run") as program:
        program.wait_for("policy ")
        program.process.stdout.close()
        program.process.stderr.close()
        assert program.process.wait(60) == 1
    assert read_reason(tmp_path / "run") == "the simulator raised"


def test_a_terminal_that_is_closed_ends_no_run(tmp_path):
    terminal, inner = pty.openpty()
    words = ("updates=30", "report-every=1", "pause=0.1")
    program = [sys.executable, tiny_trainer.__file__, str(tmp_path / "run"), *words]
    command = ["setsid", "--ctty", *program]  # whose terminal this is
    process = subprocess.Popen(command, stdin=inner, stdout=inner, stderr=inner)
    os.close(inner)
    shown = b""
    while b"policy " not in shown:
        shown += os.read(terminal, 1000)
    os.close(terminal)
    assert process.wait(60) == 0
    assert_done(tmp_path / "run", 30)


def test_a_stop_after_the_terminal_was_closed_still_writes_a_checkpoint(tmp_path):
    folder = tmp_path / "run"
    with Program(folder, "updates=600", "report-every=1", "pause=0.05") as program:
        program.wait_for("updates 1/600")
        program.process.stdout.close()
        program.process.stderr.close()
        wait_until(lambda: (folder / "metrics.jsonl").read_text().count("\n") > 3)
        program.process.terminate()
        assert program.process.wait(60) == 130
    assert read_outcome(folder) == 130
    assert Checkpoints(folder / "checkpoints").latest() > 3
