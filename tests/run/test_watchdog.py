"""What is taken for progress where training cannot report any."""

import time
from types import SimpleNamespace

import pytest
from waiting import wait_until

from srl.loop.stage import Stage
from srl.run import watchdog
from srl.run.terminal import Stop
from srl.run.watchdog import Watchdog
from srl.system.cpu_progress import CpuProgress


@pytest.fixture
def watched(tmp_path, monkeypatch):
    """A watchdog that allows half a second, and the lines that it has shown."""
    monkeypatch.setattr(watchdog, "COMPILE_SECONDS", 0.5)
    said = []
    parts = (said.append, lambda: "", lambda: "", lambda limit: None)
    with Watchdog(0.5, tmp_path / "log", Stop(), *parts) as dog:
        yield dog, said


def compute(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_a_compiler_that_computes_is_not_taken_for_hanging_and_one_that_waits_is(watched):
    dog, said = watched
    dog.stage(Stage.COMPILING)
    compute(1.0)
    assert said == []
    wait_until(lambda: said)
    assert said[0].startswith("the training has shown no progress for 0.5 s, while compiling")
    assert "\n" not in said[0]  # frames would be the compiler's


def test_a_simulator_that_computes_for_ever_is_taken_for_hanging(watched):
    dog, said = watched
    dog.stage(Stage.STEPPING)
    compute(1.0)
    deadline = time.monotonic() + 30
    while not said and time.monotonic() < deadline:
        compute(0.05)
    assert said[0].startswith("the training has shown no progress for 0.5 s")


def test_threads_that_only_look_are_no_progress(monkeypatch):
    def at(passed, computed):
        clocks = {"monotonic": lambda: passed, "process_time": lambda: computed}
        monkeypatch.setattr("srl.system.cpu_progress.time", SimpleNamespace(**clocks))

    at(0.0, 0.0)
    progress = CpuProgress()
    at(10.0, 0.1)
    assert not progress.computes()
    at(20.0, 1.1)
    assert progress.computes()
