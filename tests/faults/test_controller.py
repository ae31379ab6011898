"""What a user sees of a run in several processes, and what is left when its controller ends."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import wait_until
from watching import workers_of

from srl.api.cli import main

PROGRAM = Path(__file__).parent / "small_run.py"
DEADLINE = 30


@pytest.fixture
def start(tmp_path):
    """Starts a run; ends it if the test has not."""
    started = []

    def start(*words):
        command = [sys.executable, str(PROGRAM), str(tmp_path), *map(str, words)]
        started.append(subprocess.Popen(command, stdout=-1, stderr=-1, text=True))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def wait(condition, what):
    return wait_until(condition, DEADLINE, lambda: what)


def working(run, tmp_path):
    """Waits until the learner has made updates; gives the workers' process ids."""
    wait((tmp_path / "run" / "checkpoint").exists, "no update was made")
    return workers_of(run.pid)


def test_ctrl_c_ends_a_learner_that_compiles_and_shows_no_frames(start, tmp_path):
    run = start(10**6, "compute-learner-0")
    wait((tmp_path / "run" / "notes-learner-0").exists, "the learner did not begin")
    run.send_signal(signal.SIGINT)
    output, errors = run.communicate(timeout=DEADLINE)
    assert run.returncode == 130, errors
    assert "learner-0 still compiles\n" in output
    assert "File " not in output + errors


def test_srl_stop_lets_the_learner_of_a_run_in_processes_finish(start, tmp_path, capsys):
    run = start(10**6)
    pids = working(run, tmp_path)
    assert sorted(pids) == ["actors-0", "actors-1", "learner-0"]
    assert main(["stop", str(tmp_path / "run")]) == 0
    assert "it ends after a checkpoint" in capsys.readouterr().out
    output, errors = run.communicate(timeout=DEADLINE)
    assert run.returncode == 130, errors
    assert "interrupted; `srl resume" in output
    notes = (tmp_path / "run" / "notes-learner-0").read_text().splitlines()
    assert json.loads(notes[-1])["stopped"] == int((tmp_path / "run" / "checkpoint").read_text())
    assert not [pid for pid in pids.values() if os.path.exists(f"/proc/{pid}")]


def test_a_second_ctrl_c_quits_at_once_and_leaves_no_process(start, tmp_path):
    run = start(10**6)
    pids = working(run, tmp_path)
    os.kill(pids["learner-0"], signal.SIGSTOP)
    run.send_signal(signal.SIGINT)
    wait(lambda: "stopping after" in run.stderr.readline(), "the first Ctrl-C was not heard")
    run.send_signal(signal.SIGINT)
    assert run.wait(DEADLINE) == -signal.SIGINT
    wait(lambda: not [p for p in pids.values() if os.path.exists(f"/proc/{p}")], "workers stay")


def test_workers_end_with_a_killed_controller_even_stopped_ones(start, tmp_path):
    run = start(10**6)
    pids = working(run, tmp_path)
    os.kill(pids["actors-0"], signal.SIGSTOP)
    run.kill()
    run.wait(DEADLINE)
    wait(lambda: not [p for p in pids.values() if os.path.exists(f"/proc/{p}")], "workers stay")


def test_a_mistake_of_the_users_exits_with_2_and_leaves_no_folder(start, tmp_path):
    run = start(10**6, "misuse-actors-0-early")
    shown, errors = run.communicate(timeout=DEADLINE)
    assert run.returncode == 2
    assert "experiment" in shown
    assert "run folder" not in shown
    assert errors == "srl: there is no such environment; take another\n"
    assert not (tmp_path / "run").exists()
