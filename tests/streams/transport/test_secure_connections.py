"""Connections between hosts: whoever has not the run's keys changes nothing, and sees nothing."""

import contextlib
import socket
import subprocess
import sys

import numpy as np
import pytest
import zmq
from refusals import until_refused

from srl.core.errors import UserError
from srl.loop.garbage import return_freed_memory
from srl.streams.transport import JOINED, LEFT, Disconnected, Identity, Message, connect, listen
from srl.streams.transport.keys import Keys
from srl.streams.transport.message import encode
from srl.streams.transport.sealing import Guests
from srl.streams.transport.tcp import most_unidentified

RUN, LIMIT, SECONDS = 77, 1 << 25, 20
ME = Identity(RUN, 1, 0)
KEYS = Keys.new()


@pytest.fixture
def listener():
    with listen("network", Identity(RUN, 0, 0), limit_bytes=LIMIT, keys=KEYS) as opened:
        yield opened


def joined(listener, sender=1, keys=KEYS):
    """A connection with the run's keys, and the peer that it is to the listener."""
    connection = connect(
        listener.address, Identity(RUN, sender, 0), limit_bytes=LIMIT, keys=keys, timeout=SECONDS
    )
    peer, message = listener.receive(SECONDS)
    assert message == Message(JOINED)
    return connection, peer


def assert_talks(listener, connection, peer):
    """They are there for each other as before."""
    connection.send(Message(16, 5, body=b"there"))
    whose, message = listener.receive(SECONDS)
    assert whose is peer
    assert bytes(message.body) == b"there"
    listener.send(peer, Message(17, 6, body=b"back"))
    assert bytes(connection.receive(SECONDS).body) == b"back"


def ports(listener):
    """The port of the door, and that of those with an invitation."""
    return [
        int(address.rpartition(":")[2]) for address in (listener.address, listener.sealed_address)
    ]


def stranger(listener, which, server_key=None, own=None, invitation=None):
    """A bare ZeroMQ socket that says what a peer would."""
    opened = zmq.Context.instance().socket(zmq.DEALER)
    opened.linger = 0
    if server_key:
        opened.curve_serverkey = server_key
        opened.curve_publickey, opened.curve_secretkey = own.public, own.secret
    if invitation:
        opened.setsockopt_string(zmq.PLAIN_USERNAME, invitation.number.hex())
        opened.setsockopt_string(zmq.PLAIN_PASSWORD, invitation.word.hex())
    opened.connect(f"tcp://127.0.0.1:{ports(listener)[which]}")
    with contextlib.suppress(zmq.Again):  # it may be refused already, and a send would never end
        opened.send(encode(Identity(RUN, 2, 0), Message(JOINED), 0), zmq.NOBLOCK)
    return opened


@pytest.mark.parametrize("size", [0, 1, 1 << 18, (1 << 18) + 1, 5_000_001, LIMIT])
def test_bodies_of_every_size_arrive_whole(listener, size):
    connection, peer = joined(listener)
    body = np.resize(np.arange(251, dtype=np.uint8), size)
    with connection:
        connection.send(Message(16, body=body))
        got = listener.receive(SECONDS)[1].body
        assert np.array_equal(np.frombuffer(got or b"", np.uint8), body)
        listener.send(peer, Message(17, body=body))
        got = connection.receive(SECONDS).body
        assert np.array_equal(np.frombuffer(got or b"", np.uint8), body)


DOOR, SEALED = 0, 1
LISTENERS_KEY = {"server_key": KEYS.public, "own": Keys.new()}
STRANGERS = {
    "without keys": (DOOR, {}),
    "with keys of another run": (DOOR, {"server_key": Keys.new().public, "own": Keys.new()}),
    "with the right key of the listener": (DOOR, LISTENERS_KEY),
    "that claims the run's key": (
        DOOR,
        {"server_key": KEYS.public, "own": Keys(KEYS.public, Keys.new().secret)},
    ),
    "without an invitation": (SEALED, {}),
    "with the keys of the run but no invitation": (
        SEALED,
        {"server_key": KEYS.public, "own": KEYS},
    ),
    "with an invitation of its own": (SEALED, {"invitation": Guests().invite(1)}),
}


@pytest.mark.parametrize(("which", "keys"), STRANGERS.values(), ids=STRANGERS)
def test_a_stranger_changes_nothing_and_is_logged(listener, which, keys, caplog):
    connection, peer = joined(listener)
    with connection, contextlib.closing(stranger(listener, which, **keys)):
        until_refused(listener)
        assert_talks(listener, connection, peer)
    assert listener.receive(SECONDS) == (peer, Message(LEFT))
    assert "refused from" in caplog.text


@pytest.mark.parametrize("keys", [None, Keys.new()], ids=["none", "others"])
def test_who_connects_without_the_keys_is_told(listener, keys):
    with pytest.raises(Disconnected, match="only processes with the keys of its run"):
        connect(listener.address, ME, limit_bytes=LIMIT, keys=keys, timeout=SECONDS)


def test_a_listener_without_the_keys_is_not_talked_to():
    for keys in (None, Keys.new()):
        with listen("network", Identity(RUN, 0, 0), limit_bytes=LIMIT, keys=keys) as impostor:
            with pytest.raises(Disconnected):
                connect(impostor.address, ME, limit_bytes=LIMIT, keys=KEYS, timeout=1)
            assert impostor.receive(0) is None


def test_listeners_of_two_runs_in_one_process_let_in_their_own(listener):
    other_keys = Keys.new()
    with listen("network", Identity(RUN, 0, 0), limit_bytes=LIMIT, keys=other_keys) as other:
        connection, peer = joined(listener)
        other_connection, other_peer = joined(other, keys=other_keys)
        with connection, other_connection:
            assert_talks(listener, connection, peer)
            assert_talks(other, other_connection, other_peer)
            with pytest.raises(Disconnected):
                connect(other.address, ME, limit_bytes=LIMIT, keys=KEYS, timeout=SECONDS)


FLOOD = """
import contextlib, os, socket, sys
number, first, *ports = sys.argv[1:]
for turn in range(int(number)):
    with socket.create_connection(("127.0.0.1", int(ports[turn % len(ports)]))) as stranger:
        with contextlib.suppress(OSError):
            stranger.sendall(bytes.fromhex(first) + os.urandom(500))
"""


def greeting(mechanism):
    """The first bytes of a connection by ZMTP."""
    return b"\xff" + bytes(8) + b"\x7f\x03\x01" + mechanism.ljust(20, b"\0") + bytes(32)


GREETING = greeting(b"CURVE")


def flood(listener, number, first=b""):
    """A process that begins so many connections and says `first`, then garbage."""
    words = [sys.executable, "-c", FLOOD, str(number), first.hex(), *map(str, ports(listener))]
    return subprocess.Popen(words)


def resident_mb():
    """Memory in use: what was freed before may be taken again."""
    return_freed_memory()
    with open("/proc/self/smaps_rollup") as rollup:
        return int(rollup.read().split("Rss:")[1].split()[0]) / 1024


def test_thousands_of_strangers_take_no_memory_and_fill_no_log(listener, caplog):
    connection, peer = joined(listener)
    with connection:
        for number, first in ((100, b""), (100, GREETING)):
            assert flood(listener, number, first).wait(SECONDS) == 0
        until_refused(listener, 200)
        before = resident_mb()
        with flood(listener, 1000) as one, flood(listener, 1000, GREETING) as other:
            while one.poll() is None or other.poll() is None:
                assert_talks(listener, connection, peer)
        until_refused(listener, 2200)
        assert resident_mb() - before < 4
        assert_talks(listener, connection, peer)
    assert 20 <= caplog.text.count("refused from") < 30
    assert len(caplog.text) < 10_000


def test_strangers_at_a_listener_that_is_busy_hold_up_nobody_else(listener):
    """ZeroMQ has one thread for all connections of a process, which must never wait."""
    with listen("network", Identity(RUN, 0, 0), limit_bytes=LIMIT, keys=KEYS) as busy:
        connection, peer = joined(listener)
        with connection, flood(busy, 1500) as strangers:
            assert strangers.wait(SECONDS) == 0
            assert_talks(listener, connection, peer)
        until_refused(busy, 1500)


def send_frame(opened, flag, piece):
    opened.sendall(flag + (LIMIT // 2).to_bytes(8, "big"))
    for _ in range(LIMIT // 2 // len(piece)):
        opened.sendall(piece)


@pytest.mark.parametrize(("which", "mechanism"), [(DOOR, b"CURVE"), (SEALED, b"PLAIN")])
def test_a_frame_before_the_handshake_takes_no_memory(listener, which, mechanism):
    """ZeroMQ would take in a whole frame before it asks whose it is."""
    piece = bytes(1 << 16)  # what is sent is this process's own memory, too
    before = resident_mb()
    for flag in (b"\x02", b"\x06"):
        with socket.create_connection(("127.0.0.1", ports(listener)[which])) as opened:
            opened.settimeout(SECONDS)
            opened.sendall(greeting(mechanism))
            assert opened.recv(64, socket.MSG_WAITALL)
            with pytest.raises((BrokenPipeError, ConnectionResetError)):
                send_frame(opened, flag, piece)
    until_refused(listener, 2)
    assert resident_mb() - before < LIMIT / 4 / 1e6


@pytest.mark.parametrize("which", [DOOR, SEALED])
def test_only_so_many_connections_may_be_silent(which, monkeypatch, caplog):
    monkeypatch.setattr("srl.streams.transport.network.most_unidentified", lambda: 4)
    with listen("network", Identity(RUN, 0, 0), limit_bytes=LIMIT, keys=KEYS) as listener:
        there = "127.0.0.1", ports(listener)[which]
        with contextlib.ExitStack() as stack:
            first, *_ = opened = [
                stack.enter_context(socket.create_connection(there)) for _ in range(10)
            ]
            until_refused(listener, 6)
            first.settimeout(SECONDS)
            assert first.recv(1) == b"\xff"  # it is still waited for
            assert len(opened) == 10
            assert caplog.text.count("refused from 127.0.0.1:") == 6
        connection, peer = joined(listener)
        with connection:
            assert_talks(listener, connection, peer)
    assert most_unidentified() > 4


def test_beyond_this_host_nobody_listens_or_connects_without_keys(listener):
    for host in ("192.168.1.7", "example"):
        with pytest.raises(UserError, match="without the run's keys"):
            listen("network", ME, limit_bytes=LIMIT, interface=host)
        with pytest.raises(UserError, match="without the run's keys"):
            connect(f"tcp://{host}:5", ME, limit_bytes=LIMIT)
    with pytest.raises(UserError, match="every interface of this host; name the one"):
        listen("network", ME, limit_bytes=LIMIT, interface="0.0.0.0", keys=KEYS)


def test_an_interface_goes_by_its_name_or_address():
    for interface in ("lo", "127.0.0.7"):
        with listen("network", ME, limit_bytes=LIMIT, interface=interface, keys=KEYS) as opened:
            assert opened.address.startswith("tcp+aes://127.0.0.")
            connection, peer = joined(opened, 2)
            with connection:
                assert_talks(opened, connection, peer)
    for interface in ("nonsense0", "203.0.113.5"):
        with pytest.raises(UserError, match="one of its network interfaces"):
            listen("network", ME, limit_bytes=LIMIT, interface=interface, keys=KEYS)
