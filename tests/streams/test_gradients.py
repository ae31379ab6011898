"""Sums on their way from workers to a server, and the state on its way back."""

import contextlib
import threading
import time

import numpy as np
import pytest

from srl.errors import RunError
from srl.streams import Disconnected, Identity, Layout, Message, connect, listen
from srl.streams.gradients import (
    GradientLayouts,
    GradientMessage,
    GradientSink,
    GradientSource,
    WorkerLeft,
)
from srl.streams.group_state import Stopped, pack

SECONDS, LIMIT = 20, 1 << 24
STATE, SUMS = {"float32": np.zeros(3, np.float32)}, {"float32": np.zeros(2, np.float32)}
GROUP = {"clock": np.array(7), "pool": np.zeros(5, np.uint8)}
STEPS = (np.zeros((2, 4), np.float32), np.zeros((2, 4), bool))
FORMS = GradientLayouts(Layout.of(STATE), Layout.of((SUMS, STEPS)), Layout.of(SUMS))
TRANSPORTS = ["thread", "host", "network", "cluster"]


class Server:
    """A sink of two workers."""

    def __init__(self, transport="host"):
        self.listener = listen(transport, Identity(1, 0, 0), limit_bytes=LIMIT)
        self.left, self.workers = [], []
        self.sink = GradientSink(
            self.listener,
            FORMS,
            2,
            state_layout=Layout.of({"clock": GROUP["clock"]}),
            on_left=self.left.append,
        )

    def hear_until(self, condition):
        deadline = time.monotonic() + SECONDS
        while not condition():
            assert time.monotonic() < deadline
            self.sink.hear()

    def exchange(self, version, phase, number):
        """The numbers that workers answer a state of one number with."""
        state = {"float32": np.full(3, number, np.float32)}
        answers = self.sink.exchange((0, version), phase, state, lambda: None)
        sums = [answer if phase else answer[0] for answer in answers]
        return [part["float32"].tolist() for part in sums]

    def close(self):
        self.sink.stop()
        for worker in self.workers:
            worker.join(SECONDS)
        self.sink.close()
        self.listener.close()


class Worker(threading.Thread):
    """Answers a state x with [x + its number, phase]; leaves in place of one answer."""

    def __init__(self, server, replica, leave_in=None, layouts=FORMS, incarnation=0):
        super().__init__(daemon=True)
        self.server, self.replica, self.leave_in, self.layouts = server, replica, leave_in, layouts
        self.identity = Identity(1, replica + 1, incarnation)
        self.hold, self.turns, self.error = threading.Event(), [], None
        self.hold.set()
        server.workers.append(self)
        self.start()

    def connect(self):
        host = ["", "elsewhere"][self.replica]  # matters in a cluster
        address = self.server.listener.address
        return connect(address, self.identity, limit_bytes=LIMIT, host=host)

    def run(self):
        try:
            source = GradientSource(self.connect, self.replica, self.layouts, lambda: None)
            self.begun = source.start
            self.answer_all(source)
        except (Stopped, RunError) as error:
            self.error = error

    def save(self, updates):
        return f"{self.replica} after {updates}".encode()

    def answer_all(self, source):
        with contextlib.closing(source):
            while True:
                turn = source.wait(lambda: {str(self.replica): GROUP}, self.save)
                self.turns.append((turn.update, turn.phase))
                if turn.phase == self.leave_in:
                    return
                assert self.hold.wait(SECONDS)
                sums = {"float32": np.add(turn.state["float32"][:2], (self.replica, turn.phase))}
                source.answer(sums if turn.phase else (sums, STEPS))


@pytest.fixture
def server(request):
    server = Server(getattr(request, "param", "host"))
    yield server
    server.close()


@pytest.mark.parametrize("server", TRANSPORTS, indirect=True)
def test_all_workers_get_the_state_and_their_sums_come_in_their_order(server):
    workers = [Worker(server, replica) for replica in (1, 0)]
    server.hear_until(lambda: server.sink.complete)
    assert server.exchange(0, 0, 10) == [[10, 10], [11, 10]]
    assert server.exchange(0, 1, 20) == [[20, 21], [21, 21]]
    assert server.exchange(1, 0, 30) == [[30, 30], [31, 30]]
    for worker in workers:
        assert worker.turns == [((1, 0, 0), 0), ((1, 0, 0), 1), ((1, 0, 1), 0)]


@pytest.mark.parametrize("server", TRANSPORTS, indirect=True)
def test_an_update_begins_again_when_a_worker_has_died_in_its_middle(server):
    stays, dies = Worker(server, 0), Worker(server, 1, leave_in=2)
    server.hear_until(lambda: server.sink.complete)
    server.exchange(5, 0, 10)
    server.exchange(5, 1, 20)
    stays.hold.clear()  # its answer comes after the update has begun again
    with pytest.raises(WorkerLeft):
        server.exchange(5, 2, 30)
    dies.join(SECONDS)
    assert server.left == [1]
    follows = Worker(server, 1, incarnation=1)
    server.hear_until(lambda: server.sink.complete)
    threading.Timer(0.1, stays.hold.set).start()
    assert server.exchange(5, 0, 10) == [[10, 10], [11, 10]]
    assert server.exchange(5, 1, 20) == [[20, 21], [21, 21]]
    assert stays.turns == [((1, 0, 5), phase) for phase in (0, 1, 2, 0, 1)]
    assert follows.turns == [((1, 0, 5), phase) for phase in (0, 1)]
    assert (follows.begun.restarts, follows.begun.seed_salt) == (1, "environments 0.1")


def test_workers_that_lose_their_server_begin_another_update_with_the_next(server):
    survivors = [Worker(server, replica) for replica in range(2)]
    server.hear_until(lambda: server.sink.complete)
    server.exchange(3, 0, 10)
    following = Server()
    following.sink.epoch = 1
    for worker in survivors:
        worker.server = following
    server.listener.close()
    following.hear_until(lambda: following.sink.complete)
    assert following.exchange(3, 0, 10) == [[10, 10], [11, 10]]
    assert [worker.turns for worker in survivors] == [[((1, 0, 3), 0), ((2, 0, 3), 0)]] * 2
    following.workers = survivors
    following.close()


def test_what_workers_keep_is_asked_for_and_given_to_who_begins(server):
    server.sink.saved = {1: {"1": {"clock": np.array(3)}}}
    workers = [Worker(server, replica) for replica in range(2)]
    server.hear_until(lambda: server.sink.complete)
    states = server.sink.groups(lambda: None)
    assert sorted(name for part in states for name in part) == ["0", "1"]
    assert all(state["clock"] == 7 for part in states for state in part.values())
    assert sorted(server.sink.replays(3, lambda: None)) == [b"0 after 3", b"1 after 3"]
    assert workers[0].begun.saved is None
    assert workers[1].begun.saved["1"]["clock"] == 3


def test_no_further_update_ends_the_workers(server):
    workers = [Worker(server, replica) for replica in range(2)]
    server.hear_until(lambda: server.sink.complete)
    server.sink.stop()
    for worker in workers:
        worker.join(SECONDS)
        assert isinstance(worker.error, Stopped)


@pytest.mark.parametrize(
    "message",
    [
        Message(GradientMessage.OPEN, counts=(2,)),
        Message(GradientMessage.OPEN),
        Message(GradientMessage.PARTIAL_SUMS),
        Message(99),
    ],
    ids=["no such worker", "no number", "sums before open", "unknown"],
)
def test_who_says_what_does_not_belong_is_cut_off(server, message):
    address, identity = server.listener.address, Identity(1, 9, 0)
    with connect(address, identity, limit_bytes=LIMIT) as stranger:
        stranger.send(message)

        def cut_off():
            try:
                return stranger.receive(0)
            except Disconnected:
                return True

        server.hear_until(cut_off)
    assert not server.sink.complete


BAD_ANSWERS = {
    "another worker as well": Message(GradientMessage.OPEN, counts=(1,)),
    "negative time": Message(GradientMessage.PARTIAL_SUMS, counts=(-1,)),
    "states without names": Message(GradientMessage.STATES, body=pack((np.zeros(2),))),
    "states of another worker": Message(GradientMessage.STATES, body=pack({"1": GROUP})),
    "a group without its pool": Message(
        GradientMessage.STATES, body=pack({"0": {"clock": np.array(7)}})
    ),
    "a clock of -1": Message(
        GradientMessage.STATES, body=pack({"0": {**GROUP, "clock": np.array(-1)}})
    ),
    "nothing": Message(GradientMessage.STATES),
    "files that were not asked for": Message(GradientMessage.REPLAY, body=b"[]"),
}


@pytest.mark.parametrize("message", BAD_ANSWERS.values(), ids=BAD_ANSWERS)
def test_a_worker_that_answers_what_cannot_be_is_cut_off_and_its_place_is_free(server, message):
    with connect(server.listener.address, Identity(1, 9, 0), limit_bytes=LIMIT) as stranger:
        stranger.send(Message(GradientMessage.OPEN, counts=(0,)))
        server.hear_until(lambda: server.sink._sessions)
        server.sink._sessions[0].asked = GradientMessage.STATES
        before = server.listener.refused
        stranger.send(message)
        server.hear_until(lambda: not server.sink._sessions)
    assert server.listener.refused == before + 1
    for replica in range(2):
        Worker(server, replica)
    server.hear_until(lambda: server.sink.complete)


def test_another_experiment_is_told_apart(server):
    other = FORMS._replace(state=Layout.of({"float32": np.zeros(4, np.float32)}))
    worker = Worker(server, 0, layouts=other)
    server.hear_until(lambda: not worker.is_alive())
    assert "not those of this experiment" in str(worker.error)
