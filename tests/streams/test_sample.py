"""The sample stream by itself, between threads: tickets, batches, deaths, states and the end."""

import threading
import time
from contextlib import closing
from functools import cache

import numpy as np
import pytest
from waiting import wait_until

from srl.core.errors import RunError
from srl.core.tree import map_tree
from srl.core.types import Decision
from srl.pools import make_pool
from srl.streams.batch import batch_spec
from srl.streams.sample import SampleMessage, SampleSource
from srl.streams.sample_sink import SampleSink
from srl.streams.tickets import StalenessLimiter
from srl.streams.transport import Disconnected, connect, listen
from srl.streams.transport.message import Identity, Message

RUN, GROUPS, ENVS, LENGTH, LIMIT, SECONDS = 7, 2, 3, 4, 1 << 20, 20.0


@cache
def one_form(length=LENGTH):
    """Of one group's unroll."""
    with make_pool("native:CartPole-v1", ENVS) as pool:
        decision = Decision(np.zeros(ENVS, np.int32), np.zeros(ENVS, np.float32), ())
        return batch_spec(pool.specs, ENVS, decision, length, length)


@pytest.fixture
def form():
    return one_form()


class Ends:
    """A learner's end, and groups that connect to it."""

    def __init__(self, form, max_staleness, first_group=0, transport="thread"):
        self.listener = listen(transport, Identity(RUN, 0, 0), limit_bytes=LIMIT)
        self.limiter = StalenessLimiter(GROUPS, max_staleness)
        self.sink = SampleSink(self.listener, self.limiter, [form], first_group=first_group)
        self.sink.start()
        self.sources = []

    def connect(self, group):
        return connect(self.listener.address, Identity(RUN, group, 0), limit_bytes=LIMIT)

    def group(self, number):
        self.sources.append(SampleSource(self.connect(number), lessons=9))
        return self.sources[-1]

    def gather(self, seconds, batch=None):
        """The batch of the present version, unless another one is named."""
        return self.sink.gather(self.limiter.batch_of(0) if batch is None else batch, seconds)

    def close(self):
        for source in self.sources:
            source.close()
        self.sink.close()


@pytest.fixture
def ends(form):
    made = []

    def make(max_staleness=0, **settings):
        made.append(Ends(form, max_staleness, **settings))
        return made[-1]

    yield make
    for each in made:
        each.close()


def state(clock=5):
    """Of a group between two unrolls."""
    row = map_tree(lambda f: np.zeros(f.shape[1:], f.dtype), one_form().timesteps)
    return {
        "clock": np.array(clock),
        "memory": (),
        "pool": np.zeros(4, np.uint8),
        "timestep": row._asdict(),
    }


def granted(source):
    """The next grant of a group, which there is now."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        grant = source.take(0.1)
        if grant is not None:
            return grant
    raise AssertionError("no ticket was granted")


def none_granted(source, ends):
    """Whether the learner has heard that a group wants a ticket, and gives it none."""
    assert source.take(0.0) is None
    wait_until(lambda: ends.sink._asking)
    return source.take(0.05) is None


def unroll(source, value):
    """Makes an unroll that holds a number everywhere, and delivers it."""
    grant = granted(source)
    grant.columns.action[...] = value
    source.deliver()
    return grant


def test_the_batch_has_each_groups_unroll_in_its_own_columns(ends):
    end = ends()
    groups = [end.group(number) for number in (1, 0)]
    for number, source in zip((1, 0), groups, strict=True):
        unroll(source, 10 + number)
    batch = end.gather(SECONDS)
    assert batch.action.tolist() == [[10] * ENVS + [11] * ENVS] * LENGTH


def test_unrolls_from_another_host_are_written_in_one_place_one_after_the_other():
    ends = Ends(one_form(3000), 3, transport="network")  # so large that they are sent in place
    with closing(ends):
        groups, places = [ends.group(number) for number in range(GROUPS)], set()
        for number in range(30):
            for source in groups:
                grant = granted(source)
                places.add(grant.columns.action.ctypes.data)
                for leaf in (grant.columns.action, grant.columns.timesteps.observation):
                    leaf[...] = number
                source.deliver()
            batch = ends.gather(SECONDS)
            assert (batch.action == number).all()
            assert (batch.timesteps.observation == number).all()
            ends.sink.learned()
    assert len(places) == GROUPS


def test_there_is_no_batch_before_every_group_has_delivered(ends):
    end = ends()
    unroll(end.group(0), 1)
    assert end.gather(0.05) is None
    unroll(end.group(1), 1)
    assert end.gather(SECONDS) is not None


def test_the_lesson_of_an_unroll_is_that_of_its_ticket(ends):
    end = ends(max_staleness=1)
    groups = [end.group(number) for number in range(GROUPS)]
    end.sink.lesson = 4
    lost = granted(groups[1])
    groups[1].close()
    first = unroll(groups[0], 0)
    end.sink.lesson = 5
    again = unroll(end.group(1), 0)
    second = unroll(groups[0], 0)
    assert [grant.lesson for grant in (lost, first, again, second)] == [4, 4, 5, 5]
    assert end.gather(SECONDS) is not None
    assert end.sink.lessons(0).tolist() == [4, 5]


@pytest.mark.parametrize("max_staleness", [0, 1, 3])
def test_unrolls_begin_as_far_ahead_as_the_bound_allows_and_no_further(ends, max_staleness):
    end = ends(max_staleness)
    source = end.group(0)
    grants = [unroll(source, 0) for _ in range(max_staleness + 1)]
    # A group may fill any free place of an update where staleness is allowed.
    if max_staleness:
        grants += [unroll(source, 0) for _ in range(max_staleness + 1)]
    assert max(grant.ticket.batch for grant in grants) == max_staleness
    assert {grant.oldest_version for grant in grants} == {(0, 0)}
    assert none_granted(source, end)


def test_after_an_update_the_next_unrolls_are_to_act_with_the_new_version(ends):
    end = ends()
    groups = [end.group(number) for number in range(GROUPS)]
    for source in groups:
        unroll(source, 0)
    end.gather(SECONDS)
    end.sink.learned()
    for source in groups:
        grant = unroll(source, 0)
        assert (grant.ticket.batch, grant.oldest_version) == (1, (0, 1))


def test_the_following_batch_can_be_had_while_one_is_learned_from(ends):
    end = ends(max_staleness=1)
    groups = [end.group(number) for number in range(GROUPS)]
    for value in (3, 4):
        for source in groups:
            unroll(source, value)
    assert end.gather(SECONDS).action.flat[0] == 3
    assert end.gather(SECONDS, batch=1).action.flat[0] == 4


def test_a_group_that_dies_loses_its_ticket_to_the_next_start_of_it(ends):
    end = ends()
    first = end.group(0)
    lost = granted(first).ticket
    first.close()
    wait_until(lambda: end.limiter.counts.lost == 1)
    again = end.group(0)
    assert (again.start.restarts, again.start.seed_salt) == (1, "environments 0.1")
    assert unroll(again, 2).ticket == lost
    counts = end.limiter.counts
    assert (counts.granted, counts.lost, counts.in_flight) == (2, 1, 1)


def test_a_delivery_that_comes_after_its_ticket_was_taken_away_is_refused(ends):
    end = ends()
    late = end.group(0)
    grant = granted(late)
    end.sink.leave(0)  # as when its lease has ended
    grant.columns.action[...] = 3
    late.deliver()
    with pytest.raises(Disconnected):
        granted(late)
    assert end.gather(0.0) is None
    assert end.limiter.counts.lost == 1
    for number in range(GROUPS):
        unroll(end.group(number), 8)
    assert (end.gather(SECONDS).action == 8).all()


def test_a_group_of_another_learner_is_cut_off(ends):
    end = ends(first_group=4)
    with pytest.raises(Disconnected, match="group 0 does not belong to this learner"):
        end.group(0)
    assert end.group(5).start.restarts == 0


def test_a_message_before_open_is_refused_and_nobody_else_is_held_up(ends):
    end = ends()
    stranger = end.connect(0)
    stranger.send(Message(SampleMessage.TAKE))
    with pytest.raises(Disconnected, match="before OPEN"):
        stranger.receive(SECONDS)
    assert granted(end.group(0))


def test_states_are_given_between_two_unrolls_also_if_asked_for_in_the_midst_of_one(ends):
    end = ends(max_staleness=1)
    groups = [end.group(number) for number in range(GROUPS)]
    held = [granted(source) for source in groups]
    end.sink.ask_states()
    clocks = iter((20, 21))
    found = {}
    asking = threading.Thread(target=lambda: found.update(end.sink.states(lambda: None)))
    asking.start()
    for source in groups:
        source.deliver()
        assert source.take(SECONDS) is None
        assert source.wants_state
        source.give_state(state(next(clocks)))
    asking.join(SECONDS)
    assert {group: int(kept["clock"]) for group, kept in found.items()} == {0: 20, 1: 21}
    assert len(held) == 2


def test_a_group_that_dies_while_its_state_is_awaited_is_left_out(ends):
    end = ends()
    one, other = (end.group(number) for number in range(GROUPS))
    granted(one)
    end.sink.ask_states()
    found = {}
    asking = threading.Thread(target=lambda: found.update(end.sink.states(lambda: None)))
    asking.start()
    one.close()
    assert other.take(SECONDS) is None
    other.give_state(state())
    asking.join(SECONDS)
    assert list(found) == [1]


def test_a_group_goes_on_from_the_state_that_was_saved_for_it_once(ends):
    end = ends()
    end.sink.saved = {0: state(clock=9)}
    first = end.group(0)
    assert first.start.saved.keys() == state().keys()
    assert int(first.start.saved["clock"]) == 9
    first.close()
    assert end.group(0).start.saved is None


def test_what_was_saved_for_a_group_that_has_not_come_yet_is_still_its_state(ends):
    end = ends()
    end.sink.saved = {1: state(clock=9)}
    end.sink.ask_states()
    assert int(end.sink.states(lambda: None)[1]["clock"]) == 9


def test_an_error_of_another_thread_reaches_the_learner(ends):
    end = ends()
    end.sink.fail(RunError("the policy server has failed"))
    with pytest.raises(RunError, match="the policy server has failed"):
        end.gather(SECONDS)


def test_the_end_of_the_learner_is_seen_by_its_groups(ends):
    end = ends()
    source = end.group(0)
    end.sink.close()
    with pytest.raises(Disconnected):
        granted(source)
