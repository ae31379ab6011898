"""Parameters on their way through relays."""

import itertools
import math
import time
from collections import Counter
from contextlib import ExitStack, closing

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_parameters import LAYOUT, parameters

from srl.core.errors import RunError
from srl.streams.layout import Layout
from srl.streams.parameter_memory import NONE_YET
from srl.streams.parameters import Publisher, Subscriber, published_version
from srl.streams.relay import Relay, parents
from srl.streams.transport import Identity, connect, listen

SECONDS = 20
RUN = 1


class Hosts:
    """Relays and subscribers as on several hosts, all of them in this process."""

    def __init__(self, stack):
        self._stack, self._numbers = stack, itertools.count(1)
        self.connected = Counter()
        """Addresses that were connected to, and how often."""

    def publisher(self, host="learner", layout=LAYOUT, **options):
        listener = self._listen(0, host)
        publisher = Publisher(listener, layout, **options)
        publisher.address = listener.address
        return self._stack.enter_context(closing(publisher))

    def relay(self, host, **patience):
        number = next(self._numbers)
        listener = self._listen(number, host)
        relay = Relay(listener, lambda to, at: self._connect(to, at.sender, host), **patience)
        return self._stack.enter_context(closing(relay))

    def subscriber(self, address, host):
        number = next(self._numbers)
        made = Subscriber(lambda: self._connect(address, number, host))
        return self._stack.enter_context(closing(made))

    def _listen(self, number, host):
        identity = Identity(RUN, number, 0)
        return listen("cluster", identity, limit_bytes=1 << 20, host=host)

    def _connect(self, address, number, host):
        self.connected[address] += 1
        identity = Identity(RUN, number, 0)
        return connect(address, identity, limit_bytes=1 << 20, timeout=SECONDS, host=host)


def trouble(relay):
    """Why parameters are not handed on any more."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        try:
            relay.check()
        except RunError as error:
            return str(error)
    return ""


@pytest.fixture
def hosts():
    with ExitStack() as stack:
        yield Hosts(stack)


def awaited(subscriber, version):
    """The parameters that a subscriber has as soon as they are of this version."""
    deadline, known, tree = time.monotonic() + SECONDS, NONE_YET, None
    while known < version:
        assert time.monotonic() < deadline
        known, tree = subscriber.newest(known, 0.5) or (known, tree)
    assert known == version
    assert tree["w"].tolist() == [version[1]] * 5
    return tree


def test_a_hosts_workers_get_through_one_relay_what_is_sent_once(hosts):
    publisher, relay = hosts.publisher(), hosts.relay("one")
    relay.follow(publisher.address)
    workers = [hosts.subscriber(relay.address, "one") for _ in range(3)]
    for number in range(1, 4):
        publisher.publish((0, number), parameters(number))
        for worker in workers:
            awaited(worker, (0, number))
    assert publisher.bytes_sent == 3 * LAYOUT.size


def test_the_publisher_sends_no_more_however_many_hosts_there_are(hosts):
    publisher = hosts.publisher()
    names = [f"host{n}" for n in range(8)]
    relays = [hosts.relay(name) for name in names]
    for relay, parent in zip(relays, parents(names, fan_out=2), strict=True):
        relay.follow(publisher.address, "" if parent is None else relays[parent].address)
    workers = [hosts.subscriber(r.address, n) for r, n in zip(relays, names, strict=True)]
    for number in range(1, 4):
        publisher.publish((0, number), parameters(number))
        for worker in workers:
            awaited(worker, (0, number))
    assert publisher.bytes_sent == 3 * 2 * LAYOUT.size


def test_after_a_pause_the_publisher_sends_to_no_more_hosts_than_before(hosts):
    publisher = hosts.publisher()
    names = [f"host{n}" for n in range(8)]
    relays = [hosts.relay(name, quiet=1.0) for name in names]
    tree = parents(names)
    for relay, parent in zip(relays, tree, strict=True):
        relay.follow(publisher.address, "" if parent is None else relays[parent].address)
    workers = [hosts.subscriber(r.address, n) for r, n in zip(relays, names, strict=True)]
    publisher.publish((0, 1), parameters(1))
    for worker in workers:
        awaited(worker, (0, 1))
    begun, deadline = hosts.connected[publisher.address], time.monotonic() + SECONDS
    while hosts.connected[publisher.address] < begun + 2 * (len(names) - tree.count(None)):
        assert time.monotonic() < deadline, "not all have asked twice whether there is anything new"
        assert workers[0].newest((0, 1), 0.1) is None
    for relay in relays:  # else one that is a second late, on a busy machine, asks the publisher
        relay._quiet = 10 * SECONDS
    for number in range(2, 4):
        publisher.publish((0, number), parameters(number))
        for worker in workers:
            awaited(worker, (0, number))
    assert publisher.bytes_sent == 3 * 4 * LAYOUT.size


def test_hosts_that_come_long_before_the_publisher_ask_each_other_all_the_same(hosts):
    names = [f"host{n}" for n in range(8)]
    relays = [hosts.relay(name, patience=SECONDS) for name in names]
    for relay, parent in zip(relays, parents(names, fan_out=2), strict=True):
        relay.follow("", "" if parent is None else relays[parent].address)
    publisher = hosts.publisher()
    for relay in reversed(relays):  # so that some ask a parent that knows of no publisher yet
        relay.follow(publisher.address)
    publisher.publish((0, 1), parameters(1))
    for relay, name in zip(relays, names, strict=True):
        awaited(hosts.subscriber(relay.address, name), (0, 1))
    assert publisher.bytes_sent == 2 * LAYOUT.size


def test_a_relay_whose_parent_hears_of_nothing_new_asks_the_publisher_itself(hosts):
    stale, publisher, parent = hosts.publisher(), hosts.publisher("elsewhere"), hosts.relay("one")
    relay = hosts.relay("two", quiet=0.5)
    parent.follow(stale.address)
    relay.follow(publisher.address, parent.address)
    stale.publish((0, 1), parameters(1))
    worker = hosts.subscriber(relay.address, "two")
    awaited(worker, (0, 1))
    publisher.publish((1, 2), parameters(2))
    awaited(worker, (1, 2))


def test_a_relay_that_cannot_go_on_says_so(hosts):
    relay, other = hosts.relay("one"), Layout.of(parameters(0, size=6))
    first = hosts.publisher()
    relay.follow(first.address)
    first.publish((0, 1), parameters(1))
    awaited(hosts.subscriber(relay.address, "one"), (0, 1))
    relay.check()
    relay.follow(hosts.publisher("elsewhere", layout=other).address)
    assert "not of the expected layout" in trouble(relay)


def test_a_relay_whose_parent_dies_gets_them_from_the_publisher(hosts):
    publisher, parent, relay = hosts.publisher(), hosts.relay("one"), hosts.relay("two")
    parent.follow(publisher.address)
    relay.follow(publisher.address, parent.address)
    worker = hosts.subscriber(relay.address, "two")
    publisher.publish((0, 1), parameters(1))
    awaited(worker, (0, 1))
    assert publisher.bytes_sent == LAYOUT.size
    parent.close()
    publisher.publish((0, 2), parameters(2))
    awaited(worker, (0, 2))


def test_a_relay_whose_parent_has_nothing_to_give_gets_them_from_the_publisher(hosts):
    publisher, silent, relay = (
        hosts.publisher(),
        hosts.relay("one"),
        hosts.relay("two", patience=0.5),
    )
    relay.follow(publisher.address, silent.address)
    publisher.publish((0, 1), parameters(1))
    awaited(hosts.subscriber(relay.address, "two"), (0, 1))


def test_workers_stay_with_their_relay_when_another_learner_takes_over(hosts):
    first, relay = hosts.publisher(), hosts.relay("one")
    relay.follow(first.address)
    worker = hosts.subscriber(relay.address, "one")
    first.publish((0, 7), parameters(7))
    awaited(worker, (0, 7))
    first.close()
    second = hosts.publisher("elsewhere")
    relay.follow(second.address)
    second.publish((1, 5), parameters(5))
    awaited(worker, (1, 5))


def test_a_relay_that_is_left_behind_does_not_go_back_to_what_was_before(hosts):
    first, second, relay = hosts.publisher(), hosts.publisher("elsewhere"), hosts.relay("one")
    second.publish((1, 5), parameters(5))
    relay.follow(second.address)
    worker = hosts.subscriber(relay.address, "one")
    awaited(worker, (1, 5))
    first.publish((0, 9), parameters(9))
    relay.follow(first.address)
    assert worker.newest((1, 5), 1.0) is None
    relay.follow(second.address)
    second.publish((1, 6), parameters(6))
    awaited(worker, (1, 6))


@given(st.lists(st.sampled_from("abcdefghijklmnopqrstuvwxyz"), max_size=80), st.integers(1, 8))
def test_every_host_is_fed_once_and_nobody_feeds_more_than_the_fan_out(names, fan_out):
    found = parents(names, fan_out)
    first = {name: names.index(name) for name in names}
    for index, parent in enumerate(found):
        if index != first[names[index]]:
            assert parent == first[names[index]]  # within the host
        elif parent is not None:
            assert parent < index  # so there is no circle
            assert parent in first.values()
    beyond = Counter(found[index] for index in first.values())
    assert all(children <= fan_out for children in beyond.values())
    assert (None in found) == bool(names)


@given(st.integers(1, 2000), st.integers(2, 8))
def test_the_way_to_a_host_grows_as_the_logarithm_of_their_number(number, fan_out):
    found = parents([str(n) for n in range(number)], fan_out)
    depth, at = 1, number - 1
    while found[at] is not None:
        depth, at = depth + 1, found[at]
    assert depth <= math.log(number, fan_out) + 2


def test_a_relay_that_is_asked_for_the_newest_version_asks_the_publisher(hosts):
    publisher, relay = hosts.publisher(), hosts.relay("near")
    relay.follow(publisher.address, "")
    publisher.publish((0, 1), parameters(1))
    worker = hosts.subscriber(relay.address, "near")
    assert worker.newest(NONE_YET, SECONDS)
    with hosts._connect(relay.address, 99, "near") as connection:
        for number in range(2, 30):
            publisher.publish((0, number), parameters(number))
            assert published_version(connection, relay.check) == (0, number)


def test_a_question_before_the_first_parameters_does_not_end_the_subscription(hosts, caplog):
    caplog.set_level("INFO", "srl.streams.relay")
    publisher, relay = hosts.publisher(), hosts.relay("far")
    relay.follow(publisher.address, "")
    worker = hosts.subscriber(relay.address, "far")
    worker.ask_published()  # the answer has to wait for the first version
    deadline = time.monotonic() + SECONDS
    while hosts.connected[publisher.address] < 4:  # for the subscription, and to ask for it
        assert time.monotonic() < deadline
        assert worker.newest(NONE_YET, 0.01) is None
    publisher.publish((0, 1), parameters(1))
    awaited(worker, (0, 1))
    assert caplog.messages == [f"parameters come from {publisher.address}"]
