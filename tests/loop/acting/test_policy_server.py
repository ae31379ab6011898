"""A policy worker by itself, between threads: when it answers, and whom it waits for."""

import threading
import time
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
from small_runs import CARTPOLE
from waiting import wait_until

from srl.dataflow.plans import decoupled, serving
from srl.extras.bench.alone import first_timestep
from srl.loop.acting.parameters import Published
from srl.loop.acting.policy_server import PolicyServer
from srl.loop.binding import batch_specs
from srl.loop.learning.learner import Learner
from srl.loop.wiring import Endpoints
from srl.streams.group_state import STATE_BYTES
from srl.streams.inference import RemoteActing
from srl.streams.sample_sink import SampleSink
from srl.streams.tickets import StalenessLimiter
from srl.streams.transport import connect, listen
from srl.streams.transport.message import Identity

RUN, GROUPS, SECONDS = 1, 2, 60
ENVS = CARTPOLE.num_envs // GROUPS
SPECS, _ = first_timestep(CARTPOLE, 1)
NEVER = 10_000.0


@pytest.fixture(scope="module")
def learner():
    return Learner(CARTPOLE, SPECS)


class Worker:
    """A policy worker in a thread, and groups that ask it in threads of their own."""

    def __init__(self, learner, deadline, *, sink=None):
        self.listener = listen("thread", Identity(RUN, 0, 0), limit_bytes=STATE_BYTES)
        published = self.published = Published(learner.policies, None)
        published.publish(learner.progress.version, learner.policies)
        plan = decoupled(actors=1) if sink is None else serving(actors=1)
        policies = replace(plan.fragments["policies"], batch=GROUPS, deadline=deadline)
        plan = replace(plan, fragments={**plan.fragments, "policies": policies})
        experiment, stop = replace(CARTPOLE, plan=plan, groups=GROUPS), threading.Event()
        at = Endpoints(experiment, "policies", 0, Identity(RUN, 0, 0), dict, stop, "thread")
        self.server = PolicyServer(at, learner.policy_set, published, self.listener, sink)
        self.stop, self.error = threading.Event(), None
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()
        self.groups = []

    def serve(self):
        try:
            self.server.serve(self.stop.is_set)
        except BaseException as error:
            self.error = error

    def group(self, number):
        made = Group(self, number)
        self.groups.append(made)
        return made

    def close(self):
        self.stop.set()
        self.listener.wake()
        self.thread.join(SECONDS)
        self.listener.close()
        for group in self.groups:
            group.acting.close()
        assert self.error is None


class Group:
    """A group of environments that asks for actions."""

    def __init__(self, worker, number):
        def to_worker():
            at = Identity(RUN, number, 0)
            return connect(worker.listener.address, at, limit_bytes=STATE_BYTES)

        deadline = time.monotonic() + SECONDS

        def alive():
            assert worker.thread.is_alive(), worker.error
            assert time.monotonic() < deadline, "it is not answered"

        self.acting = RemoteActing(to_worker, lambda: {"clock": np.zeros(1)}, alive)
        _, self.timestep = first_timestep(CARTPOLE, ENVS)
        self.answered = threading.Event()
        self.result = None

    def step(self, clock=0):
        return self.acting.decide(self.timestep, self.acting.initial_memory(), clock)

    def ask(self, clock=0):
        """Asks in a thread; `answered` is set once the answer is there."""

        def asking():
            decision, version = self.step(clock)
            self.result = np.array(decision.action), version
            self.answered.set()

        threading.Thread(target=asking, daemon=True).start()


@pytest.fixture
def workers(learner):
    made = []

    def make(deadline, **settings):
        made.append(Worker(learner, deadline, **settings))
        return made[-1]

    yield make
    for worker in made:
        worker.close()


def test_requests_are_answered_together_once_every_place_is_taken(workers):
    worker = workers(NEVER)
    one, other = (worker.group(number) for number in range(GROUPS))
    one.ask()
    wait_until(lambda: worker.server._waiting)
    assert not one.answered.wait(0.05)
    other.ask()
    assert one.answered.wait(SECONDS)
    assert other.answered.wait(SECONDS)
    wait_until(lambda: worker.server.answered == 2)  # it counts after it has sent the answers


def test_a_request_waits_no_longer_than_the_deadline_for_others(workers):
    worker = workers(0.01)
    one, _ = (worker.group(number) for number in range(GROUPS))
    one.ask()
    assert one.answered.wait(SECONDS)
    wait_until(lambda: worker.server.answered == 1)


def test_a_worker_with_one_group_does_not_wait_for_groups_that_never_came(workers):
    worker = workers(NEVER)
    one = worker.group(1)
    one.ask()
    assert one.answered.wait(SECONDS)


def test_a_group_that_leaves_is_not_waited_for(workers):
    worker = workers(NEVER)
    one, other = (worker.group(number) for number in range(GROUPS))
    one.ask()
    wait_until(lambda: worker.server._waiting)
    other.acting.close()
    assert one.answered.wait(SECONDS)


def test_a_groups_actions_do_not_depend_on_which_others_ask(workers):
    together, alone = workers(NEVER), workers(0.0)
    groups = [together.group(number) for number in range(GROUPS)]
    for group in groups:
        group.ask(clock=3)
    for group in groups:
        assert group.answered.wait(SECONDS)
    for number, group in enumerate(groups):
        single = alone.group(number)
        single.ask(clock=3)
        assert single.answered.wait(SECONDS)
        assert (single.result[0] == group.result[0]).all()


def test_a_group_that_comes_again_is_answered_in_its_new_place(workers):
    worker = workers(0.01)
    first = worker.group(0)
    first.ask()
    assert first.answered.wait(SECONDS)
    first.acting.close()
    again = worker.group(0)
    again.ask(clock=1)
    assert again.answered.wait(SECONDS)


@pytest.fixture
def collecting(learner, workers):
    """A worker that writes the unrolls of its groups, and what they are gathered in."""
    listener = listen("thread", Identity(RUN, 9, 0), limit_bytes=STATE_BYTES)
    sink = SampleSink(
        listener, StalenessLimiter(GROUPS), batch_specs(CARTPOLE, learner.policy_set, ENVS)
    )
    with closing(sink):
        sink.start()
        yield workers(0.0, sink=sink), sink


def test_a_worker_that_collects_gives_a_batch_once_all_unrolls_are_whole(collecting):
    worker, sink = collecting
    groups = [worker.group(number) for number in range(GROUPS)]
    length = CARTPOLE.algorithm.unroll_length
    for clock in range(length):
        for group in groups:
            group.step(clock)
    assert sink.gather(0, 0.05) is None  # the bootstrap rows are still to come
    for group in groups:
        group.ask(length)
    batch = sink.gather(0, SECONDS)
    assert batch.action.shape[:2] == (length, CARTPOLE.num_envs)
    assert (batch.version == 0).all()
    assert not any(group.answered.is_set() for group in groups)  # until the next version is there
    worker.published.publish(np.array([0, 1], np.int32), worker.published.newest((0, 0))[1])
    sink.learned()
    for group in groups:
        assert group.answered.wait(SECONDS)


def test_an_unroll_that_a_dead_group_had_begun_is_lost_and_begun_anew(collecting):
    worker, sink = collecting
    first = worker.group(0)
    first.step(0)
    first.acting.close()
    wait_until(lambda: sink.limiter.counts.lost == 1)
    again = worker.group(0)
    again.step(0)
    assert sink.limiter.counts.granted == 2
    assert again.acting.start.restarts == 1
