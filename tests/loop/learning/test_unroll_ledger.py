"""The account of unrolls: it is always right, and survives its writer."""

import os
import re
import signal
import subprocess
import sys
import threading
import time

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from srl.core.errors import RunError
from srl.loop.learning.unroll_ledger import Ledger
from srl.streams.tickets import Counts


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
        self.counts = Counts(0, 0, 0, 0)

    def count(self, **changes):
        counts = self.counts._asdict()
        self.counts = Counts(**{word: n + changes.get(word, 0) for word, n in counts.items()})
        self.ledger.write(self.counts)

    @rule(count=st.integers(1, 5))
    def grant(self, count):
        self.count(granted=count, in_flight=count)
        self.granted += count

    @precondition(lambda self: self.counts.in_flight)
    @rule(learned=st.booleans())
    def end_one(self, learned):
        self.count(in_flight=-1, learned=int(learned), lost=int(not learned))
        self.learned += learned

    @rule()
    def save(self):
        self.checkpoint = self.learned

    @rule()
    def die(self):
        lost, in_flight = self.ledger.account().lost, self.counts.in_flight
        self.ledger = Ledger(self.ledger.fd)  # of the learner's next process
        self.ledger.restart(self.checkpoint)
        self.learned, self.counts = self.checkpoint, Counts(0, 0, 0, 0)
        assert self.ledger.account().lost == lost + in_flight
        assert self.ledger.account().in_flight == 0

    @invariant()
    def every_unroll_is_somewhere(self):
        seen = Ledger(self.ledger.fd).account()
        assert (seen.produced, seen.learned) == (self.granted, self.learned)
        assert seen.in_flight == self.counts.in_flight
        assert min(seen.in_flight, seen.lost, seen.rolled_back) >= 0
        assert seen.produced == seen.learned + seen.in_flight + seen.lost + seen.rolled_back

    def teardown(self):
        self.ledger.close()


TestAccountOfUnrolls = AccountOfUnrolls.TestCase


def test_a_report_waits_until_each_learner_has_counted_the_same_update(ledger):
    first, second = Ledger(ledger.fd, 0), Ledger(ledger.fd, 1)
    first.write(Counts(granted=4, learned=2, in_flight=2, lost=0))
    second.write(Counts(granted=4, learned=0, in_flight=4, lost=0))
    assert not first.wait_for_others(seconds=0.0)
    thread = threading.Timer(0.05, second.write, (Counts(4, 2, 2, 0),))
    thread.start()
    assert first.report()["unrolls/learned"] == 4
    thread.join()


def test_what_an_earlier_run_learned_is_part_of_the_account(ledger):
    ledger.restart(50)
    ledger.write(Counts(granted=10, learned=4, in_flight=6, lost=0))
    ledger.restart(52)
    text = "unrolls: 60 produced = 52 learned + 0 in flight + 6 lost + 2 rolled back"
    assert str(ledger) == text


@pytest.mark.parametrize("term", Counts._fields)
@pytest.mark.parametrize("off", [-1, 1])
def test_a_term_that_is_off_by_one_is_an_error_that_names_all_terms(ledger, term, off):
    learner = Ledger(ledger.fd, 1)
    right = Counts(granted=9, learned=4, in_flight=3, lost=2)
    learner.write(right)
    assert sum(learner.report().values()) == 18
    wrong = right._replace(**{term: right._asdict()[term] + off})
    learner.write(wrong)
    text = (
        f"learner 1 does not add up: {wrong.granted} produced, but {wrong.learned} learned + "
        f"{wrong.in_flight} in flight + {wrong.lost} lost + 0 rolled back = {sum(wrong[1:])}"
    )
    for read in (learner.report, ledger.report, ledger.account, ledger.__str__):
        with pytest.raises(RunError, match=re.escape(text)):
            read()
    learner.restart(4)  # which no new start ends
    with pytest.raises(RunError, match="does not add up"):
        ledger.report()


def test_errors_of_two_learners_do_not_make_up_for_each_other(ledger):
    Ledger(ledger.fd, 0).write(Counts(3, 1, 1, 0))
    Ledger(ledger.fd, 1).write(Counts(3, 1, 2, 1))
    with pytest.raises(RunError, match="learner 0 does not add up"):
        ledger.report()


WRITER = """
import sys
from srl.loop.learning.unroll_ledger import Ledger
from srl.streams.tickets import Counts
ledger = Ledger(int(sys.argv[1]))
ledger.restart(0)
while True:
    for k in range(10):
        ledger.write(Counts(3 * k + 3, k, k + 3, k))
    ledger.restart(ledger.account().learned - 2)
"""


def test_the_account_is_right_while_its_writer_writes_and_when_it_is_killed(ledger):
    for _ in range(5):
        before = ledger.part(0).produced
        command = [sys.executable, "-c", WRITER, str(ledger.fd)]
        writer = subprocess.Popen(command, pass_fds=[ledger.fd])
        deadline = time.monotonic() + 20
        while ledger.part(0).produced < before + 1000 and time.monotonic() < deadline:
            assert ledger.part(0).adds_up
        os.kill(writer.pid, signal.SIGKILL)
        writer.wait()
        account = ledger.account()
        assert account.produced >= before + 1000
        assert 0 <= account.in_flight <= 12
