"""What holds for connections of every transport."""

import logging
import os
import select
import subprocess
import sys
import threading
import time
from contextlib import ExitStack

import numpy as np
import pytest
from refusals import until_refused

from srl.core.errors import RunError, UserError
from srl.streams.transport import (
    JOINED,
    LEFT,
    Disconnected,
    Identity,
    Message,
    Refused,
    connect,
    listen,
)
from srl.streams.transport.message import MOST_COUNTS
from srl.streams.transport.schema import reject

RUN = 0xFEDCBA9876543210
LIMIT = 1 << 24
SECONDS = 20


def content(message):
    """The body as bytes."""
    return None if message.body is None else bytes(message.body)


def read_all(connection, listener):
    """Reads until it is disconnected, while the listener goes on."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        connection.receive(0.01)
        listener.receive(0)


class Ends:
    """A listener, and who connects to it."""

    def __init__(self, transport, stack):
        self.stack = stack
        transport, *host = transport.split()
        self.listener = stack.enter_context(
            listen(transport, Identity(RUN, 0, 0), limit_bytes=LIMIT, host="".join(host))
        )

    def join(self, sender=1, incarnation=0, run=RUN):
        """A connection, unread by the listener."""
        identity = Identity(run, sender, incarnation)
        opened = connect(self.listener.address, identity, limit_bytes=LIMIT)
        return self.stack.enter_context(opened)

    def joined(self, sender=1, incarnation=0):
        """A connection and the peer that it is to the listener."""
        connection = self.join(sender, incarnation)
        peer, message = self.next()
        assert message == Message(JOINED)
        assert peer.identity == connection.identity
        return connection, peer

    def next(self):
        got = self.listener.receive(SECONDS)
        assert got is not None
        return got


@pytest.fixture(params=["thread", "host", "network", "cluster", "cluster afar"])
def ends(request):
    with ExitStack() as stack:
        yield Ends(request.param, stack)


@pytest.fixture(params=["host", "network", "cluster", "cluster afar"])
def socket_ends(request):
    with ExitStack() as stack:
        yield Ends(request.param, stack)


def test_messages_arrive_whole_and_in_order(ends):
    connection, peer = ends.joined()
    bodies = [None, b"x", bytes(range(256)) * 500, np.arange(200_000), bytearray(b"abc")]
    sent = [
        Message(16 + i, i, (i - 1, 2**40), 2**64 - 1 - i, tuple(range(-i, MOST_COUNTS - i)), body)
        for i, body in enumerate(bodies)
    ]
    for message in sent:
        connection.send(message)
    for message in sent:
        whose, got = ends.next()
        assert whose is peer
        assert got[:5] == message[:5]
        assert content(got) == content(message)
        ends.listener.send(peer, got)
        back = connection.receive(SECONDS)
        assert back[:5] == message[:5]
        assert content(back) == content(message)


def test_a_peer_that_closes_has_its_last_words_read_before_it_left(ends):
    connection, peer = ends.joined()
    for number in range(5):
        connection.send(Message(16, number))
    connection.close()
    assert [ends.next()[1].sequence for _ in range(5)] == list(range(5))
    assert ends.next() == (peer, Message(LEFT))
    ends.listener.send(peer, Message(16))  # to nobody


def test_the_reason_of_an_end_is_given_however_often_it_is_asked_for(ends):
    connection, peer = ends.joined()
    ends.listener.cut_off(peer, "the learner has other plans")
    for _ in range(2):
        with pytest.raises(Disconnected, match="the learner has other plans"):
            read_all(connection, ends.listener)


def test_what_else_a_connection_has_sent_that_is_refused_is_dropped(ends):
    connection, peer = ends.joined()
    for _ in range(3):
        connection.send(Message(16))
    assert ends.next()[1] == Message(16)
    reject(ends.listener, peer, Refused("it is of no use"))
    assert ends.next() == (peer, Message(LEFT))
    assert ends.listener.receive(0) is None
    assert ends.listener.refused == 1


@pytest.mark.parametrize("transport", ["network", "cluster afar"])
def test_what_a_connection_sends_before_it_reads_that_it_was_cut_off_is_dropped(transport):
    with ExitStack() as stack:
        ends = Ends(transport, stack)
        connection, peer = ends.joined()
        ends.listener.cut_off(peer, "it is not needed")
        assert ends.next() == (peer, Message(LEFT))
        for _ in range(3):
            connection.send(Message(16))
        assert ends.listener.receive(0.2) is None
        assert ends.listener.refused == 0


def test_many_peers_are_told_apart(ends):
    connections = [ends.join(sender) for sender in range(1, 9)]
    for connection in connections:
        connection.send(Message(16, connection.identity.sender))
    heard = {}
    while sum(map(len, heard.values())) < 16:
        peer, message = ends.next()
        heard.setdefault(peer.identity.sender, []).append(message.kind)
        if message.kind == 16:
            assert message.sequence == peer.identity.sender
            ends.listener.send(peer, Message(17, message.sequence))
    assert heard == {sender: [JOINED, 16] for sender in range(1, 9)}
    for connection in connections:
        assert connection.receive(SECONDS).sequence == connection.identity.sender


def test_a_later_start_of_a_worker_takes_the_place_of_the_earlier(ends):
    old, peer = ends.joined(incarnation=3)
    new = ends.join(incarnation=4)
    assert ends.next() == (peer, Message(LEFT))
    assert ends.next()[1] == Message(JOINED)
    with pytest.raises(Disconnected, match="took its place"):
        old.receive(SECONDS)
    new.send(Message(16))
    assert ends.next()[1].kind == 16


def test_an_earlier_start_of_a_worker_is_refused(ends, caplog):
    ends.joined(incarnation=4)
    old = ends.join(incarnation=3)
    assert ends.listener.receive(0.2) is None
    with pytest.raises(Disconnected, match="a later incarnation of it, 4, is connected"):
        old.receive(SECONDS)
    assert ends.listener.refused == 1
    assert "refused from sender 1 (incarnation 3)" in caplog.text


def test_a_worker_of_another_run_is_refused(ends):
    stranger = ends.join(run=5)
    assert ends.listener.receive(0.2) is None
    with pytest.raises(Disconnected, match="run 0000000000000005, this is fedcba9876543210"):
        stranger.receive(SECONDS)
    assert ends.listener.refused == 1


def test_nothing_larger_than_the_limit_is_sent(ends):
    connection, peer = ends.joined()
    with pytest.raises(RunError, match="16,777,217 bytes, but the limit is 16,777,216"):
        connection.send(Message(16, body=bytes(LIMIT + 1)))
    with pytest.raises(RunError, match="the limit"):
        ends.listener.send(peer, Message(16, body=np.zeros(LIMIT + 1, np.uint8)))
    connection.send(Message(17))
    assert ends.next()[1].kind == 17


def test_waiting_ends_with_the_timeout(ends):
    connection, _ = ends.joined()
    for receive in (connection.receive, ends.listener.receive):
        start = time.monotonic()
        assert receive(0) is None
        assert receive(0.05) is None
        assert time.monotonic() - start >= 0.05


def test_another_thread_can_wake_a_listener(ends):
    ends.listener.wake()
    assert ends.listener.receive(SECONDS) is None
    threading.Timer(0.05, ends.listener.wake).start()
    assert ends.listener.receive(None) is None
    connection, _ = ends.joined()
    connection.send(Message(16))
    assert ends.next()[1].kind == 16  # once woken, it sleeps again


def test_a_closed_listener_disconnects_its_peers(ends):
    connection, _ = ends.joined()
    unread = ends.join(2)
    ends.listener.close()
    for peer in (connection, unread):
        with pytest.raises(Disconnected):
            peer.receive(SECONDS)
    with pytest.raises(Disconnected):
        connection.send(Message(16))
    with pytest.raises(Disconnected):
        ends.join(3)


def test_readiness_shows_in_a_descriptor(ends):
    connection, peer = ends.joined()
    for end, send in (
        (ends.listener, lambda: connection.send(Message(16))),
        (connection, lambda: ends.listener.send(peer, Message(17))),
    ):
        for _ in range(3):
            descriptor = end.fileno()
            while end.receive(0):
                pass
            send()
            assert select.select([descriptor], [], [], SECONDS)[0]
            deadline = time.monotonic() + SECONDS
            while end.receive(0) is None:  # a descriptor may be early
                assert time.monotonic() < deadline


def test_a_peer_that_reads_nothing_is_cut_off_and_holds_nobody_up(ends):
    lazy, peer = ends.joined()
    body = bytes(10_000)
    for number in range(100_000):
        ends.listener.send(peer, Message(16, number, body=body))
        if got := ends.listener.receive(0):
            break
    assert got == (peer, Message(LEFT))
    other, _ = ends.joined(2)
    other.send(Message(16))
    assert ends.next()[1].kind == 16
    with pytest.raises(Disconnected, match=r"does not read|has closed"):
        read_all(lazy, ends.listener)


def test_a_slow_listener_makes_its_peers_wait(ends):
    connection, _ = ends.joined()
    sent = 0

    def send():
        nonlocal sent
        for number in range(3000):
            connection.send(Message(16, number, body=bytes(20_000)))
            sent += 1

    thread = threading.Thread(target=send)
    thread.start()
    deadline = time.monotonic() + SECONDS
    before = -1
    while sent != before:  # it stands still when the transport is full
        before = sent
        thread.join(0.2)
        assert time.monotonic() < deadline
    assert sent < 3000
    assert [ends.next()[1].sequence for _ in range(3000)] == list(range(3000))
    thread.join()


def test_a_closed_end_says_nothing_more_and_may_be_closed_again(ends):
    connection, _ = ends.joined()
    connection.close()
    connection.close()
    with pytest.raises(Disconnected):
        connection.send(Message(16))
    with pytest.raises(Disconnected):
        connection.receive(0)


def test_arrays_that_are_not_contiguous_are_refused(socket_ends):
    connection, _ = socket_ends.joined()
    with pytest.raises(RunError, match="not contiguous"):
        connection.send(Message(16, body=np.zeros((4, 4))[:, 0]))


def test_numbers_that_do_not_fit_are_refused(socket_ends):
    connection, _ = socket_ends.joined()
    for message in (Message(1 << 16), Message(16, counts=(1 << 63,)), Message(16, counts=(0,) * 9)):
        with pytest.raises(RunError, match="cannot be sent"):
            connection.send(message)


def test_wrong_addresses_are_told():
    with pytest.raises(UserError, match="expected thread:"):
        connect("ipc:///tmp/x", Identity(RUN, 1, 0), limit_bytes=LIMIT)
    with pytest.raises(UserError, match="thread, host, network or cluster"):
        listen("pigeon", Identity(RUN, 1, 0), limit_bytes=LIMIT)
    for address in ("thread:none", "unix:none", "tcp://127.0.0.1:9"):
        with pytest.raises(Disconnected, match=address):
            connect(address, Identity(RUN, 1, 0), limit_bytes=LIMIT, timeout=5)


def test_connections_leave_no_descriptor_behind(ends):
    before = len(os.listdir("/proc/self/fd"))
    for sender in range(1, 6):
        connection, peer = ends.joined(sender)
        connection.send(Message(16, body=bytes(1_000_000)))
        ends.next()
        ends.listener.send(peer, Message(16, body=bytes(1_000_000)))
        connection.close()
        assert ends.next()[1].kind == LEFT
    del connection, peer
    deadline = time.monotonic() + SECONDS
    while len(os.listdir("/proc/self/fd")) > before:  # ZeroMQ ends a socket some time after
        assert time.monotonic() < deadline
        ends.listener.receive(0.01)


def test_a_fence_ends_the_earlier_start_and_keeps_it_out(ends, caplog):
    zombie, peer = ends.joined(1, incarnation=3)
    bystander, other = ends.joined(2, incarnation=0)
    ends.listener.fence(1, 4)
    assert ends.listener.receive(SECONDS) in (None, (peer, Message(LEFT)))
    with pytest.raises(Disconnected, match="fenced off: only start 4 or a later one"):
        read_all(zombie, ends.listener)
    again = ends.join(1, incarnation=3)
    until_refused(ends.listener)
    assert ends.listener.refused == 1
    with pytest.raises(Disconnected, match="fenced off"):
        read_all(again, ends.listener)
    assert "sender 1 (incarnation 3): it is fenced off" in caplog.text
    bystander.send(Message(16))
    assert ends.next() == (other, Message(16))
    ends.joined(1, incarnation=4)
    assert ends.listener.refused == 1


def test_what_was_said_before_a_fence_and_is_unread_is_refused(ends):
    zombie, peer = ends.joined(1, incarnation=3)
    bystander, other = ends.joined(2, incarnation=0)
    for number in range(5):
        zombie.send(Message(16, number, body=bytes(1000)))
    zombie.close()
    bystander.send(Message(17))
    while (got := ends.next())[1].kind == 16 and got[1].sequence < 1:
        pass  # the rest has come, too, or is on its way
    ends.listener.fence(1, 4)
    heard = [got]
    while {(peer, LEFT), (other, 17)} - {(whose, m.kind) for whose, m in filter(None, heard)}:
        heard.append(ends.listener.receive(SECONDS))
    after = [message for whose, message in filter(None, heard[1:]) if whose is peer]
    assert after == [Message(LEFT)][: len(after)]


def test_a_fence_stands_before_anyone_has_come_and_never_sinks(ends):
    ends.listener.fence(1, 4)
    ends.listener.fence(1, 2)
    early = ends.join(1, incarnation=3)
    until_refused(ends.listener)
    assert ends.listener.refused == 1
    with pytest.raises(Disconnected, match="only start 4 or a later one may come"):
        read_all(early, ends.listener)
    ends.joined(1, incarnation=5)


def test_a_fence_can_be_put_up_while_another_thread_waits(ends):
    zombie, peer = ends.joined(1, incarnation=0)
    thread = threading.Timer(0.05, ends.listener.fence, (1, 1))
    thread.start()
    heard = None
    while heard is None:
        heard = ends.listener.receive(SECONDS)
    assert heard == (peer, Message(LEFT))
    thread.join()
    with pytest.raises(Disconnected):
        read_all(zombie, ends.listener)


def test_importing_streams_loads_neither_jax_nor_zmq():
    code = (
        "import sys, srl.streams\n"
        "heavy = {'jax', 'flax', 'zmq', 'gymnasium', 'multiprocessing'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.fixture(autouse=True)
def refusals_are_logged(caplog):
    caplog.set_level(logging.WARNING)
