"""A policy worker, to which a process with the run's keys says what no group would."""

import threading
import time
from contextlib import closing, suppress
from dataclasses import replace

import numpy as np
import pytest
from small_runs import CARTPOLE as SMALL

from srl.core.errors import RunError
from srl.extras.bench.act_peer import serve
from srl.extras.bench.alone import first_timestep
from srl.loop.acting.parameters import Published, Received
from srl.loop.learning.learner import Learner
from srl.streams.group_state import STATE_BYTES
from srl.streams.inference import InferenceMessage, RemoteActing
from srl.streams.transport import Disconnected, connect, listen
from srl.streams.transport.message import Identity, Message

RUN, GROUPS, SECONDS = 1, 2, 60
CARTPOLE = replace(SMALL, groups=GROUPS)
SPECS, _ = first_timestep(CARTPOLE, 1)
OPEN = Message(InferenceMessage.OPEN, counts=(0,))
FUTURE = (0, 10**6)


class Worker(threading.Thread):
    """Acts for groups in a thread; given a learner, with the parameters that this publishes."""

    def __init__(self, learner_address=None):
        super().__init__(daemon=True)
        self.server, self.listener = serve(CARTPOLE, SPECS, "host")
        self.stop, self.error, self.received = threading.Event(), None, None
        if learner_address:
            at = Identity(RUN, 7, 0)
            policy_set = Learner(CARTPOLE, SPECS).policy_set
            self.received = Received(
                lambda: connect(learner_address, at, limit_bytes=STATE_BYTES),
                policy_set,
                self.alive,
            )
            self.server._parameters = self.received
        self.start()

    def alive(self):
        if self.stop.is_set():
            raise RunError("it waits while it is to end")

    def run(self):
        try:
            self.server.serve(self.stop.is_set)
        except BaseException as error:
            self.error = error

    def to(self, group):
        at = Identity(RUN, group, 0)
        return connect(self.listener.address, at, limit_bytes=STATE_BYTES)

    def close(self):
        if self.stop.is_set():
            return
        self.stop.set()
        self.listener.wake()
        self.join(SECONDS)
        self.listener.close()
        if self.received:
            self.received.close()
        assert not self.is_alive()
        assert self.error is None


@pytest.fixture(scope="module")
def worker():
    with closing(Worker()) as worker:
        yield worker


def good_group(worker, number=0):
    """A group's end, which fails where it is not answered."""
    deadline = time.monotonic() + SECONDS

    def alive():
        assert worker.is_alive(), worker.error
        assert time.monotonic() < deadline, "it is not answered"

    return RemoteActing(lambda: worker.to(number), dict, alive)


def step(acting):
    _, timestep = first_timestep(CARTPOLE, CARTPOLE.num_envs // GROUPS)
    return acting.decide(timestep, acting.initial_memory(), 0)


def ended(connection, worker):
    """Why the worker has ended a connection."""
    deadline = time.monotonic() + SECONDS
    with connection:
        while time.monotonic() < deadline and worker.is_alive():
            try:
                if message := connection.receive(0.1):
                    message.close_fds()
            except Disconnected as reason:
                return str(reason)
    raise AssertionError(f"the connection stands; {worker.error}")


def request(clock=0, version=(0, 0)):
    return Message(InferenceMessage.REQUEST, 1, version, counts=(clock,))


BAD = {
    "clock -1": (1, [OPEN, request(clock=-1)]),
    "clock 4294967296": (1, [OPEN, request(clock=1 << 32)]),
    "1 counts; expected 0": (1, [OPEN, Message(InferenceMessage.WANT_STATE, counts=(1,))]),
    "0 counts; expected 1": (1, [OPEN, Message(InferenceMessage.REQUEST)]),
    "requests -1": (1, [Message(InferenceMessage.OPEN, counts=(-1,))]),
    "group 2147483648": (1 << 31, [OPEN]),
    "group 2 ": (GROUPS, [OPEN]),
    "version (-1, 0)": (1, [OPEN, request(version=(-1, 0))]),
    "version (0, 2147483648)": (1, [OPEN, request(version=(0, 1 << 31))]),
    "version (0, 1000000) is wanted": (1, [OPEN, request(version=FUTURE)]),
    "kind 99": (1, [OPEN, Message(99)]),
}


@pytest.mark.parametrize("reason", BAD)
def test_a_message_with_numbers_out_of_range_is_refused_and_the_worker_acts_on(
    worker, reason, caplog
):
    with closing(good_group(worker)) as acting:
        step(acting)
        sender, messages = BAD[reason]
        connection, before = worker.to(sender), worker.listener.refused
        with suppress(Disconnected):  # the first may have ended the connection
            for message in messages:
                connection.send(message)
        assert reason in ended(connection, worker)
        assert worker.listener.refused > before
        assert f"refused from sender {sender}" in caplog.text or before >= 20
        step(acting)


def learner():
    """Policies, and where a learner publishes them."""
    listener = listen("host", Identity(RUN, 9, 0), limit_bytes=STATE_BYTES)
    policies = Learner(CARTPOLE, SPECS).policies
    return listener.address, Published(policies, listener), policies


def test_a_request_for_a_version_of_the_future_is_refused_and_holds_up_no_others():
    address, published, policies = learner()
    published.publish(np.array((0, 3), np.int32), policies)
    with closing(published), closing(Worker(address)) as worker:
        with closing(good_group(worker)) as acting:
            acting.begin((0, 3))
            connection = worker.to(1)
            for message in (OPEN, request(version=FUTURE)):
                connection.send(message)
            _, version = step(acting)
            assert version.tolist() == [0, 3]
            reason = ended(connection, worker)
            assert "version (0, 1000000) is wanted, but (0, 3) is the newest" in reason
            step(acting)


def test_a_worker_ends_at_once_while_a_version_that_is_to_come_is_wanted():
    address, published, policies = learner()
    published.publish(np.array((0, 3), np.int32), policies)
    with closing(published), closing(Worker(address)) as worker:
        with closing(good_group(worker)) as acting:
            step(acting)
        with worker.to(1) as connection:
            for message in (OPEN, request(version=FUTURE)):
                connection.send(message)
            connection.receive(SECONDS).close_fds()
            worker.close()


def test_a_request_for_a_version_that_is_on_its_way_is_answered_as_soon_as_it_comes():
    address, published, policies = learner()
    published.publish(np.array((0, 3), np.int32), policies)
    with closing(published), closing(Worker(address)) as worker:

        def publish_when_asked(n):
            deadline = time.monotonic() + SECONDS
            while not worker.server._early and time.monotonic() < deadline:
                pass
            published.publish(np.array((0, n), np.int32), policies)

        with closing(good_group(worker)) as acting:
            for n in range(4, 10):
                acting.begin((0, n))
                publishing = threading.Thread(target=publish_when_asked, args=(n,))
                publishing.start()
                assert step(acting)[1].tolist() == [0, n]
                publishing.join()


def test_who_acts_itself_does_not_wait_for_a_version_of_the_future():
    address, published, policies = learner()
    published.publish(np.array((0, 3), np.int32), policies)
    deadline = time.monotonic() + SECONDS

    def alive():
        assert time.monotonic() < deadline, "it waits"

    at = Identity(RUN, 7, 0)
    received = Received(
        lambda: connect(address, at, limit_bytes=STATE_BYTES),
        Learner(CARTPOLE, SPECS).policy_set,
        alive,
    )
    with closing(published), closing(received):
        with pytest.raises(RunError, match="the newest that is published"):
            received.newest(FUTURE)
        assert received.newest((0, 2))[0].tolist() == [0, 3]
