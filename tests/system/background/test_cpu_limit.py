"""A process that works beside others keeps to its share of the processors."""

import os
import subprocess
import sys
from contextlib import contextmanager
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srl.system.background.cpu_limit import CpuLimit, cores_granted


class Machine:
    """A clock that goes on as long as one works or sleeps."""

    def __init__(self):
        self.now = self.spent = 0.0

    def work(self, seconds, threads=1):
        self.now += seconds
        self.spent += seconds * threads

    def monotonic(self):
        return self.now

    def process_time(self):
        return self.spent

    def sleep(self, seconds):
        assert seconds > 0
        self.now += seconds


@contextmanager
def begun(machine, share, cores):
    with mock.patch("srl.system.background.cpu_limit.time", machine):
        yield CpuLimit(share, cores)


@given(
    st.floats(0.01, 1),
    st.integers(1, 64),
    st.lists(st.tuples(st.floats(0.001, 3), st.integers(1, 4), st.floats(0, 100)), max_size=30),
)
def test_the_share_is_never_passed_but_by_the_work_between_two_rests(share, cores, works):
    machine = Machine()
    with begun(machine, share, cores) as limit:
        for seconds, threads, pause in works:
            machine.now += pause  # there is nothing to do
            machine.work(seconds, threads)
            limit.rest()
            assert machine.spent <= share * cores * machine.now * (1 + 1e-9)


def test_what_it_took_to_start_counts():
    machine = Machine()
    with begun(machine, 0.05, 2) as limit:
        machine.work(8)
        limit.rest()
        assert machine.now == pytest.approx(80)


def test_a_long_pause_is_not_made_up_for():
    machine = Machine()
    with begun(machine, 0.05, 2) as limit:
        machine.now = 10_000
        limit.rest()
        for _ in range(1000):
            machine.work(0.1)
            limit.rest()
        assert machine.now - 10_000 == pytest.approx((100 - 1) / 0.1, rel=0.01)


def test_a_process_below_its_share_never_rests():
    machine = Machine()
    with begun(machine, 1.0, 2) as limit:
        machine.work(5)
        limit.rest()
        assert machine.now == 5


@pytest.mark.parametrize(
    ("above", "own", "cores"),
    [("max 100000", "50000 100000", 0.5), ("25000 100000", "max 100000", 0.25), (None, None, None)],
)
def test_a_quota_of_the_control_group_or_of_one_above_it_bounds_the_cores(
    tmp_path, monkeypatch, above, own, cores
):
    group = tmp_path / "jobs" / "one"
    group.mkdir(parents=True)
    for folder, quota in ((group.parent, above), (group, own)):
        if quota:
            (folder / "cpu.max").write_text(quota + "\n")
    bound = len(os.sched_getaffinity(0))
    (tmp_path / "own").write_text("0::/jobs/one\n")
    monkeypatch.setattr("srl.system.control_group.ROOT", tmp_path)
    monkeypatch.setattr("srl.system.control_group.OWN", tmp_path / "own")
    assert cores_granted() == (cores or bound)


def test_what_programs_take_counts_when_they_have_ended():
    machine = Machine()
    with begun(machine, 0.5, 1) as limit:
        busy = "import time\nwhile time.process_time() < 0.1: pass"
        subprocess.run([sys.executable, "-S", "-c", busy], check=True)
        limit.rest()
    assert machine.now > 0.1
