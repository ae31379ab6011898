"""The account of unrolls: it is always right, and survives its writer."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from srl.loop.learning.unroll_ledger import Ledger


@pytest.fixture
def ledger():
    ledger = Ledger.create()
    yield ledger
    ledger.close()


class AccountOfUnrolls(RuleBasedStateMachine):
    """A learner that is granted, learns, loses, and at times falls back to a checkpoint."""

    def __init__(self):
        super().__init__()
        self.ledger = Ledger.create()
        self.granted = self.learned = self.checkpoint = 0

    @rule(count=st.integers(1, 5))
    def grant(self, count):
        self.ledger.grant(count)
        self.granted += count

    @precondition(lambda self: self.ledger.account().in_flight)
    @rule(learned=st.booleans())
    def end_one(self, learned):
        if learned:
            self.ledger.learn()
            self.learned += 1
        else:
            self.ledger.lose()

    @rule()
    def save(self):
        self.checkpoint = self.learned

    @rule()
    def die(self):
        self.ledger.restart(self.checkpoint)
        self.learned = self.checkpoint
        assert self.ledger.account().in_flight == 0

    @invariant()
    def every_unroll_is_somewhere(self):
        seen = Ledger(self.ledger.fd).account()
        assert (seen.produced, seen.learned) == (self.granted, self.learned)
        assert min(seen.in_flight, seen.lost, seen.rolled_back) >= 0
        assert seen.produced == seen.learned + seen.in_flight + seen.lost + seen.rolled_back

    def teardown(self):
        self.ledger.close()


TestAccountOfUnrolls = AccountOfUnrolls.TestCase


def test_a_report_waits_until_each_learner_has_counted_the_same_update(ledger):
    first, second = Ledger(ledger.fd, 0), Ledger(ledger.fd, 1)
    for learner in (first, second):
        learner.grant(4)
    first.learn(2)
    assert not first.wait_for_others(seconds=0.0)
    thread = threading.Timer(0.05, second.learn, (2,))
    thread.start()
    assert first.report()["unrolls/learned"] == 4
    thread.join()


def test_what_an_earlier_run_learned_is_part_of_the_account(ledger):
    ledger.restart(50)
    ledger.grant(10)
    ledger.learn(4)
    ledger.restart(52)
    text = "unrolls: 60 produced = 52 learned + 0 in flight + 6 lost + 2 rolled back"
    assert str(ledger) == text


WRITER = """
import sys
from srl.loop.learning.unroll_ledger import Ledger
ledger = Ledger(int(sys.argv[1]))
while True:
    for _ in range(10):
        ledger.grant(3); ledger.learn(); ledger.lose()
    ledger.restart(ledger.account().learned - 2)
"""


def test_the_account_is_right_whenever_its_writer_is_killed(ledger):
    for _ in range(5):
        before = ledger.account().produced
        command = [sys.executable, "-c", WRITER, str(ledger.fd)]
        writer = subprocess.Popen(command, pass_fds=[ledger.fd])
        deadline = time.monotonic() + 20
        while ledger.account().produced < before + 1000 and time.monotonic() < deadline:
            pass
        os.kill(writer.pid, signal.SIGKILL)
        writer.wait()
        account = ledger.account()
        assert account.produced >= before + 1000
        assert 0 <= account.in_flight <= 30
        assert account.lost + account.rolled_back + account.learned <= account.produced
