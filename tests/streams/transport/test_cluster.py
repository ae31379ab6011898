"""One listener, reached within its host by shared memory and from other hosts by network."""

import os
import select
import subprocess
import sys

import pytest
from refusals import until_refused

from srl.core.errors import RunError, UserError
from srl.streams.transport import JOINED, LEFT, Disconnected, Identity, Message, connect, listen
from srl.streams.transport.keys import Keys
from srl.streams.transport.unix import this_host
from srl.system.shared_memory import SharedMemory

RUN, LIMIT, SECONDS = 77, 1 << 20, 20
KEYS = Keys.new()
HERE, ELSEWHERE = "", "elsewhere"
WAYS = [HERE, ELSEWHERE]


@pytest.fixture
def listener():
    with listen("cluster", Identity(RUN, 0, 0), limit_bytes=LIMIT, keys=KEYS) as opened:
        yield opened


def join(listener, host, sender=1, incarnation=0):
    """A connection from a host."""
    identity = Identity(RUN, sender, incarnation)
    return connect(listener.address, identity, limit_bytes=LIMIT, keys=KEYS, host=host)


def joined(listener, host, sender=1, incarnation=0):
    """A connection from a host, and the peer that it is to the listener."""
    connection = join(listener, host, sender, incarnation)
    assert connection.address == listener.address
    peer, message = listener.receive(SECONDS)
    assert message == Message(JOINED)
    assert peer.identity == connection.identity
    return connection, peer


def test_memory_is_shared_with_peers_of_its_host_alone(listener):
    memory = SharedMemory.create(10)
    (near, one), (far, other) = joined(listener, HERE, 1), joined(listener, ELSEWHERE, 2)
    with near, far:
        assert (one.shares_memory, other.shares_memory) == (True, False)
        listener.send(one, Message(16, fds=(memory.fd,)))
        os.close(near.receive(SECONDS).fds[0])
        with pytest.raises(RunError, match="cannot be sent to another host"):
            listener.send(other, Message(16, fds=(memory.fd,)))
    memory.close()


def test_both_ways_at_once_nothing_is_lost_or_out_of_order(listener):
    ends = {sender: joined(listener, WAYS[sender % 2], sender) for sender in range(1, 7)}
    for number in range(50):
        for connection, _ in ends.values():
            connection.send(Message(16, number, body=bytes(10 * number)))
    heard = {sender: [] for sender in ends}
    for _ in range(50 * len(ends)):
        peer, message = listener.receive(SECONDS)
        assert len(message.body or b"") == 10 * message.sequence
        heard[peer.identity.sender].append(message.sequence)
        listener.send(peer, Message(17, message.sequence))
    assert all(numbers == list(range(50)) for numbers in heard.values())
    for connection, peer in ends.values():
        assert [connection.receive(SECONDS).sequence for _ in range(50)] == list(range(50))
        connection.close()
        assert listener.receive(SECONDS) == (peer, Message(LEFT))
        listener.send(peer, Message(17))  # to nobody


@pytest.mark.parametrize("way", [(HERE, ELSEWHERE), (ELSEWHERE, HERE)])
@pytest.mark.parametrize("incarnation", [3, 4])
def test_who_comes_again_by_the_other_way_takes_its_old_place(listener, way, incarnation):
    first, old = joined(listener, way[0], incarnation=3)
    with first, join(listener, way[1], incarnation=incarnation) as second:
        assert listener.receive(SECONDS) == (old, Message(LEFT))
        new, message = listener.receive(SECONDS)
        assert (message, new.identity.incarnation) == (Message(JOINED), incarnation)
        with pytest.raises(Disconnected, match="another connection took its place"):
            first.receive(SECONDS)
        second.send(Message(16, 1))
        assert listener.receive(SECONDS) == (new, Message(16, 1))
        listener.send(old, Message(17))
        listener.send(new, Message(18))
        assert second.receive(SECONDS) == Message(18)
    assert listener.receive(SECONDS) == (new, Message(LEFT))


@pytest.mark.parametrize("way", [(HERE, ELSEWHERE), (ELSEWHERE, HERE)])
def test_nothing_of_the_old_place_is_heard_after_the_new(listener, way):
    first, old = joined(listener, way[0])
    with first:
        for number in range(200):
            first.send(Message(16, number, body=bytes(1000)))
        with join(listener, way[1], incarnation=1) as second:
            second.send(Message(18))
            heard = []
            while not heard or heard[-1][1].kind != 18:
                heard.append(listener.receive(SECONDS))
    kinds = [message.kind for _, message in heard]
    left = kinds.index(LEFT)
    assert kinds[left:] == [LEFT, JOINED, 18]
    assert all(peer is old for peer, _ in heard[: left + 1])
    assert [message.sequence for _, message in heard[:left]] == list(range(left))


@pytest.mark.parametrize("way", [(HERE, ELSEWHERE), (ELSEWHERE, HERE)])
def test_an_older_start_is_refused_by_either_way(listener, way):
    newer, peer = joined(listener, way[0], incarnation=4)
    with newer, join(listener, way[1], incarnation=3) as older:
        until_refused(listener)
        with pytest.raises(Disconnected, match=r"a later incarnation of it, 4, is connected"):
            older.receive(SECONDS)
        newer.send(Message(16))
        assert listener.receive(SECONDS) == (peer, Message(16))
        assert listener.refused == 1


@pytest.mark.parametrize("host", WAYS)
def test_it_can_be_waited_for_by_its_descriptor(listener, host):
    def readable():
        return bool(select.select([listener.fileno()], [], [], SECONDS)[0])

    while listener.receive(0):
        pass
    connection = join(listener, host)
    assert readable()
    peer, message = listener.receive(SECONDS)
    assert message.kind == JOINED
    for number in range(20):
        while listener.receive(0):
            pass
        listener.send(peer, Message(16, number))  # may take what would have made it readable
        assert connection.receive(SECONDS).sequence == number
        connection.send(Message(17, number))
        assert readable()
        got = None
        while got is None:
            assert readable()
            got = listener.receive(0)
        assert got[1].sequence == number
    connection.close()


def test_a_waiting_listener_can_be_woken(listener):
    listener.wake()
    assert listener.receive(SECONDS) is None


def test_its_address_is_for_one_word_of_a_host():
    with listen("cluster", Identity(RUN, 0, 0), limit_bytes=LIMIT, host="here") as opened:
        for host, shares in (("here", True), ("elsewhere", False), ("", False)):
            identity = Identity(RUN, 1, 0)
            with connect(opened.address, identity, limit_bytes=LIMIT, host=host):
                while (got := opened.receive(SECONDS))[1].kind != JOINED:
                    pass
                assert got[0].shares_memory is shares
    with pytest.raises(UserError, match="expected one word"):
        listen("cluster", Identity(RUN, 0, 0), limit_bytes=LIMIT, host="two words")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a network namespace")
def test_each_network_namespace_is_a_host_of_its_own():
    code = "from srl.streams.transport.unix import this_host; print(this_host())"
    words = ["unshare", "--net", sys.executable, "-c", code]
    other = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    assert other.stdout.strip()
    assert other.stdout.strip() != this_host() == this_host()
