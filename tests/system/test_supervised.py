"""Children are started, watched and ended by one class, with all that they start."""

import os
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from waiting import wait_until

from srl.system import started
from srl.system.supervised import Child, Presence

ACTS = """
import os, signal, subprocess, sys

def crash():
    os.abort()

def leave():
    left = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    print(left.pid, flush=True)

def wait():
    print("here", flush=True)
    while True:
        signal.pause()

def main(arguments):
    globals()[arguments[0]]()
    return 3
"""


@pytest.fixture
def child(tmp_path, monkeypatch):
    """Starts a child that does one of the acts; gives it with the reading end of its output."""
    (tmp_path / "acting.py").write_text(ACTS)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    output, theirs = os.pipe()
    started = []

    def start(act):
        started.append(Child("acting", act, stdout=theirs, dies_with_parent=True))
        os.close(theirs)
        return started[0], file

    with os.fdopen(output) as file:
        yield start
    for each in started:
        with each:
            each.kill()


def test_a_crash_is_described_with_its_stack(child):
    process, _ = child("crash")
    code, how, dump = process.reap()
    assert (code, how) == (-6, "was killed by SIGABRT")
    assert dump.startswith("Fatal Python error: Aborted")
    assert "in crash" in dump
    assert process.reap() == (code, how, dump)


def test_all_that_a_child_leaves_ends_with_it(child):
    before = os.listdir("/proc/self/fd")
    process, output = child("leave")
    left = int(output.readline())
    assert process.reap()[:2] == (3, "exited with code 3")
    with suppress(FileNotFoundError), open(f"/proc/{left}/stat") as stat:
        assert stat.read().rpartition(")")[2].split()[0] == "Z"
    output.close()
    assert set(os.listdir("/proc/self/fd")) <= set(before)


def test_all_that_a_child_leaves_ends_though_the_look_for_it_takes_long(child, monkeypatch):
    process, output = child("leave")
    left = int(output.readline())
    monkeypatch.setattr(started, "_END_SECONDS", 0.0)
    process.reap()
    stat = Path(f"/proc/{left}/stat")
    with suppress(FileNotFoundError):
        wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "Z")


def test_a_child_shows_its_stack_and_its_state_until_it_is_killed(child):
    process, output = child("wait")
    assert output.readline() == "here\n"
    assert "in wait" in process.stack(seconds=60)
    assert not process.ended
    assert process.state() == "sleeping"
    process.kill()
    assert process.wait(60)
    assert process.ended
    assert process.reap() == (-9, "was killed by SIGKILL", "")  # what was shown is not given again
    process.kill()  # which reaches nobody any more


def test_more_time_than_this_process_lets_pass_is_that_of_a_stop():
    assert Presence(0.0).was_stopped()
    assert not Presence(60.0).was_stopped()
