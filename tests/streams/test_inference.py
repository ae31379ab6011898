"""The inference stream: who acts may go and come back, and no step is lost."""

import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
from small_runs import CARTPOLE

from srl.core.types import Decision, Timestep
from srl.extras.bench.alone import first_timestep
from srl.loop.acting.taught_acting import TaughtElsewhere, TaughtHere
from srl.loop.policy_set import PolicySet
from srl.streams.group_state import Start
from srl.streams.inference import InferenceMessage, RemoteActing, Session
from srl.streams.layout import Layout
from srl.streams.transport import Disconnected, connect, listen
from srl.streams.transport.message import Identity, Message, Refused

RUN, GROUP, LIMIT, SECONDS = 7, 3, 1 << 16, 20.0


def layout(memory=True):
    """Of areas."""
    numbers = np.zeros(4, np.float32)
    request = {"observation": numbers, "terminated": numbers > 0, "truncated": numbers > 0}
    reply = {"action": numbers, "log_prob": numbers}
    if memory:
        request["memory"] = reply["memory"] = {"counter": numbers}
    return Layout.of({"request": request, "reply": reply})


class Worker:
    """Acts for groups: the action is its own name, and the memory counts the steps."""

    def __init__(self, name, transport, memory=True):
        self.name, self.layout = name, layout(memory)
        self.listener = listen(transport, Identity(RUN, name, 0), limit_bytes=LIMIT)
        self.closed, self.replies, self.arrived = False, True, threading.Event()
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def serve(self):
        sessions = {}
        while not self.closed:
            received = self.listener.receive(SECONDS)
            if received is None:
                continue
            peer, message = received
            if message.kind == InferenceMessage.OPEN:
                sessions[peer] = Session(self.listener, peer, self.layout)
                sessions[peer].open(Start(0, 0, None))
            elif message.kind == InferenceMessage.REQUEST:
                session = sessions[peer]
                session.take_in(message, time.monotonic())
                *_, counter = session.asked
                reply = session.buffers["reply"]
                reply["action"][:] = self.name
                if "memory" in reply:
                    reply["memory"]["counter"][:] = counter + 1
                if self.replies:
                    session.reply(np.zeros(2, np.int32))
                self.arrived.set()

    def close(self):
        self.closed = True
        self.listener.wake()
        self.thread.join()
        self.listener.close()


@pytest.fixture(params=["host", "network", "cluster"])
def workers(request):
    """The workers by number, and the address of each that is there."""
    running = {}

    def start(name, **more):
        running[name] = Worker(name, request.param, **more)

    def stop(name):
        running.pop(name).close()

    def address(name):
        return running[name].listener.address if name in running else None

    yield SimpleNamespace(start=start, stop=stop, address=address, running=running)
    for worker in running.values():
        worker.close()


def group(workers):
    """A group that belongs to worker 0, or asks any other."""

    def to(name):
        identity, host = Identity(RUN, GROUP, 0), ["", "elsewhere"][name % 2]
        return connect(workers.address(name), identity, limit_bytes=LIMIT, host=host)

    def reach():
        for name in sorted(workers.running):
            try:
                return to(name)
            except Disconnected:
                continue
        raise AssertionError("no worker is there")

    def moved(address):
        return None if workers.address(0) in (None, address) else to(0)

    deadline = time.monotonic() + SECONDS

    def alive():
        assert time.monotonic() < deadline, "nobody answers"

    return RemoteActing(reach, dict, alive, moved)


NONE = np.zeros(0)
TIMESTEP = Timestep(*[NONE] * len(Timestep._fields))._replace(
    observation=np.ones(4, np.float32), terminated=np.zeros(4, bool), truncated=np.zeros(4, bool)
)


def steps(acting, memory, number):
    """Who acted in so many steps, and the memory after them."""
    names = set()
    for _ in range(number):
        decision, _ = acting.decide(TIMESTEP, memory, clock=0)
        memory = decision.memory
        names |= set(decision.action)
    return names, memory


def test_a_group_whose_worker_died_asks_another_at_once_and_takes_its_memory_along(workers):
    workers.start(0)
    workers.start(1)
    acting = group(workers)
    acting.begin((0, 0))
    names, kept = steps(acting, {"counter": np.zeros(4, np.float32)}, 3)
    assert names == {0}
    workers.stop(0)
    names, kept = steps(acting, kept, 4)
    assert names == {1}
    assert kept["counter"].tolist() == [7.0] * 4
    acting.close()


def test_a_group_keeps_no_descriptors_of_its_buffers(workers):
    workers.start(0)
    acting = group(workers)
    assert set(acting._buffers.fds) == {-1}  # closed; the memory stays mapped
    acting.close()


def test_it_goes_back_when_its_worker_is_there_again_but_not_within_an_unroll(workers):
    workers.start(1)
    acting = group(workers)
    acting.begin((0, 0))
    names, kept = steps(acting, {"counter": np.full(4, 10, np.float32)}, 2)
    workers.start(0)
    names, kept = steps(acting, kept, 2)
    assert names == {1}
    deadline, done = time.monotonic() + SECONDS, 4
    while names != {0}:
        assert time.monotonic() < deadline
        acting.begin((0, 0))  # it answers when it can; until then the other acts
        names, kept = steps(acting, kept, 2)
        assert len(names) == 1
        done += 2
    assert kept["counter"].tolist() == [10.0 + done] * 4
    acting.close()


NUMBERS = np.zeros(4, np.float32)
FOREIGN = {
    "no layout of requests": {"request": {"elsewhere": NUMBERS}, "reply": {"action": NUMBERS}},
    "no layout of req": {"request": {"action": NUMBERS}, "reply": {"action": NUMBERS}},
    "no layout of requests and": {"request": {}, "reply": {"log_prob": NUMBERS}},
    "no layout": {"request": {}, "reply": {"advice": NUMBERS}},
    "of requests and replies": {"request": {}, "reply": {"action": NUMBERS, "value": NUMBERS}},
    "a request with observation of shapes": {
        "request": {"observation": np.zeros(5, np.float32)},
        "reply": {"action": NUMBERS},
    },
}


def test_a_request_is_sent_anew_where_a_worker_goes_before_its_answer_is_waited_for(workers):
    workers.start(1)
    acting = group(workers)
    acting.begin((0, 0))
    memory = {"counter": np.zeros(4, np.float32)}
    workers.stop(1)
    acting.ask(TIMESTEP, memory, clock=0)
    workers.start(2)
    decision, _ = acting.answer()
    assert set(decision.action) == {2}
    assert decision.memory["counter"].tolist() == [1.0] * 4
    acting.close()


def test_a_request_is_sent_anew_where_a_worker_goes_after_it_has_come(workers):
    workers.start(1)
    acting = group(workers)
    acting.begin((0, 0))
    died = workers.running[1]
    first, _ = acting.decide(TIMESTEP, {"counter": np.zeros(4, np.float32)}, clock=0)
    died.arrived.clear()
    died.replies = False  # it writes a reply, which has the place of the memory that is asked of
    acting.ask(TIMESTEP, first.memory, clock=1)
    assert died.arrived.wait(SECONDS)
    workers.stop(1)
    workers.start(2)
    decision, _ = acting.answer()
    assert set(decision.action) == {2}
    assert decision.memory["counter"].tolist() == [2.0] * 4
    acting.close()


class Own:
    """Acts in this process."""

    def begin(self, oldest_version):
        pass

    def decide(self, timestep, memory, clock):
        return Decision(NUMBERS, NUMBERS, memory, ()), np.zeros(2, np.int32)

    def initial_memory(self):
        return ()

    def spent(self, seconds):
        return {"act": seconds}


POLICIES = PolicySet.of_experiment(CARTPOLE, first_timestep(CARTPOLE, 1)[0])
TAUGHT = {
    "act here, teach elsewhere": (lambda remote: TaughtElsewhere(Own(), remote, POLICIES), "act"),
    "act elsewhere, teach here": (
        lambda remote: TaughtHere(remote, lambda seen: (), POLICIES),
        "teach",
    ),
}


@pytest.mark.parametrize("placed", TAUGHT)
def test_a_wait_for_another_worker_alone_counts_as_a_wait(workers, placed):
    make, own = TAUGHT[placed]
    workers.start(1, memory=False)
    remote = group(workers)
    acting = make(remote)
    acting.begin((0, 0))
    acting.decide(TIMESTEP, (), 0)
    spent = acting.spent(100.0)
    assert spent.keys() == {own, "inference wait"}
    assert min(spent.values()) > 0
    assert sum(spent.values()) == pytest.approx(100)
    remote.close()


@pytest.mark.parametrize("told", FOREIGN)
def test_a_group_reports_a_worker_that_acts_for_other_environments(told):
    with listen("network", Identity(RUN, 0, 0), limit_bytes=LIMIT) as listener:
        connection = connect(listener.address, Identity(RUN, GROUP, 0), limit_bytes=LIMIT)
        peer, _ = listener.receive(SECONDS)
        body = Layout.of(FOREIGN[told]).to_json()
        listener.send(peer, Message(InferenceMessage.HANDSHAKE, counts=(0, 0, 0), body=body))
        with connection, pytest.raises(Refused, match=told):
            RemoteActing(lambda: connection, dict).decide(TIMESTEP, (), 0)
