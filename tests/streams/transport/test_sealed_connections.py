"""Sealed connections: whoever is on the wire between two workers reads and changes nothing."""

import contextlib
import itertools
import socket
import threading
import time

import numpy as np
import pytest
import zmq
from refusals import until_refused
from tcp_relay import Relay

from srl.streams.transport import JOINED, LEFT, Disconnected, Identity, Message, connect, listen
from srl.streams.transport.door import ask_for_invitation
from srl.streams.transport.keys import Keys
from srl.streams.transport.message import encode
from srl.streams.transport.network_connection import NetworkConnection
from srl.streams.transport.sealing import Guests, Sealed
from srl.streams.transport.tcp import frames_of

RUN, LIMIT, SECONDS = 77, 1 << 22, 20
ME = Identity(RUN, 1, 0)
KEYS = Keys.new()
LARGE = np.resize(np.arange(251, dtype=np.uint8), 1_000_000)
SENT = [b"first " * 10, b"second" * 10, LARGE, b"last" * 10]
"""Frame 0 is JOINED, 1 and 2 the first message, 3 and 4 the second, 5 to 9 the large one."""


@pytest.fixture
def listener():
    with listen("network", Identity(RUN, 0, 0), limit_bytes=LIMIT, keys=KEYS) as opened:
        yield opened


@contextlib.contextmanager
def relayed(listener, out=iter, back=iter):
    """A connection over a wire that changes frames, its peer, and the wire."""
    relay = Relay(listener.sealed_address, out, back)
    invitation = ask_for_invitation(listener.address, SECONDS, KEYS)
    with NetworkConnection(relay.address, ME, LIMIT, SECONDS, invitation) as connection:
        peer, message = listener.receive(SECONDS)
        assert message == Message(JOINED)
        yield connection, peer, relay
    relay.close()


def content(message):
    return bytes(message.body)


def assert_admitted(listener):
    """The worker can begin a connection again."""
    with connect(listener.address, ME, limit_bytes=LIMIT, keys=KEYS, timeout=SECONDS) as connection:
        peer, message = listener.receive(SECONDS)
        assert message == Message(JOINED)
        connection.send(Message(16, body=LARGE))
        assert content(listener.receive(SECONDS)[1]) == bytes(LARGE)
    assert listener.receive(SECONDS) == (peer, Message(LEFT))


@pytest.mark.parametrize("encrypt", [True, False])
def test_what_crosses_the_wire_cannot_be_read(encrypt):
    secret = b"nobody else is to read this" * 10
    keys = KEYS if encrypt else None
    with listen("network", Identity(RUN, 0, 0), limit_bytes=LIMIT, keys=keys) as opened:
        relay = Relay(opened.sealed_address if encrypt else opened.address)
        invitation = ask_for_invitation(opened.address, SECONDS, KEYS) if encrypt else None
        with NetworkConnection(relay.address, ME, LIMIT, SECONDS, invitation) as connection:
            peer, _ = opened.receive(SECONDS)
            connection.send(Message(16, body=secret))
            assert content(opened.receive(SECONDS)[1]) == secret
            opened.send(peer, Message(16, body=secret))
            assert content(connection.receive(SECONDS)) == secret
        assert opened.receive(SECONDS)[1].kind == LEFT
        relay.close()
    assert relay.crossed.count(secret) == (0 if encrypt else 2)
    assert (b"srl\0" in relay.crossed) is not encrypt  # as a header begins


def ordered(*order):
    """Passes the first frames on in this order, and those that follow as they come."""

    def change(frames):
        kept = []
        for number in order:
            kept += itertools.islice(frames, max(number + 1 - len(kept), 0))
            yield from kept[number : number + 1]  # none if the connection has ended
        yield from frames

    return change


def altered(number, change):
    """Passes one frame on as `change` gives it."""

    def change_one(frames):
        for at, frame in enumerate(frames):
            yield change(bytearray(frame)) if at == number else frame

    return change_one


def flip(at):
    def change(frame):
        frame[at] ^= 1
        return frame

    return change


def alone(frame):
    """A header after which no body follows."""
    frame[0] &= ~1
    return frame


def shorter(frame):
    """Without its last byte."""
    frame[1] -= 1
    return frame[:-1]


FAULTS = {
    "a message repeated": (ordered(0, 1, 2, 1, 2, 3, 4), 1),
    "an old message again": (ordered(0, 1, 2, 3, 4, 1, 2), 2),
    "two messages in turn": (ordered(0, 3, 4, 1, 2), 0),
    "a message left out": (ordered(0, 3, 4, 5, 6, 7, 8, 9), 0),
    "a bit of a header": (altered(3, flip(40)), 1),
    "a bit of a body": (altered(4, flip(20)), 1),
    "a bit of a tag": (altered(4, flip(-1)), 1),
    "a bit of the last part": (altered(9, flip(1000)), 2),
    "two parts of a body in turn": (ordered(0, 1, 2, 3, 4, 5, 6, 8, 7, 9), 2),
    "a body of another message": (ordered(0, 1, 2, 3, 2), 1),
    "a body cut off": (altered(3, alone), 1),
    "a shorter body": (altered(4, shorter), 1),
    "a header in place of a body": (ordered(0, 1, 2, 3, 3, 4), 1),
}


@pytest.mark.parametrize(("fault", "arrive"), FAULTS.values(), ids=FAULTS)
def test_a_fault_on_the_way_to_a_listener_ends_the_connection(listener, fault, arrive):
    with relayed(listener, out=fault) as (connection, peer, _):
        with contextlib.suppress(Disconnected):  # the end may come before all is sent
            for body in SENT:
                connection.send(Message(16, body=body))
        for body in SENT[:arrive]:
            whose, message = listener.receive(SECONDS)
            assert whose is peer
            assert content(message) == bytes(body)
        assert listener.receive(SECONDS) == (peer, Message(LEFT))
        with pytest.raises(Disconnected):
            connection.wait(lambda: listener.receive(0))
    assert listener.refused == 1
    assert_admitted(listener)
    assert listener.refused == 1


@pytest.mark.parametrize("fault", [altered(2, flip(30)), altered(1, alone), ordered(0, 3, 4, 1, 2)])
def test_a_fault_on_the_way_from_a_listener_ends_the_connection(listener, fault):
    with relayed(listener, back=fault) as (connection, peer, _):
        for body in SENT:
            listener.send(peer, Message(16, body=body))
        with pytest.raises(Disconnected, match="it sent"):
            connection.wait(lambda: None)
        assert listener.receive(SECONDS) == (peer, Message(LEFT))
    assert_admitted(listener)


def keeping(seen):
    """Passes frames on and keeps them."""

    def keep(frames):
        for frame in frames:
            seen.append(frame)
            yield frame

    return keep


def test_messages_of_another_connection_or_direction_are_refused(listener):
    """All begin as JOINED and the first message, but their keys differ."""
    seen = []
    keep = keeping(seen)

    def instead(frames):
        yield next(frames)
        for frame in frames:
            yield seen.pop(0) if seen else frame

    with relayed(listener, out=keep) as (connection, peer, _):
        connection.send(Message(16, body=b"from a worker"))
        assert content(listener.receive(SECONDS)[1]) == b"from a worker"
    assert listener.receive(SECONDS) == (peer, Message(LEFT))
    del seen[0]  # its JOINED
    with relayed(listener, out=instead) as (connection, peer, _):
        connection.send(Message(16, body=b"of a later one"))
        assert listener.receive(SECONDS) == (peer, Message(LEFT))
    with relayed(listener, out=instead, back=keep) as (connection, peer, _):
        seen.clear()
        listener.send(peer, Message(16, body=b"from the listener"))
        assert content(connection.receive(SECONDS)) == b"from the listener"
        connection.send(Message(16, body=b"from a worker"))
        assert listener.receive(SECONDS) == (peer, Message(LEFT))
    assert listener.refused == 2


def by_invitation(listener, invitation):
    """A bare ZeroMQ socket that shows an invitation, and whose JOINED is not sealed."""
    opened = zmq.Context.instance().socket(zmq.DEALER)
    opened.linger = 0
    opened.reconnect_ivl = -1
    opened.setsockopt_string(zmq.PLAIN_USERNAME, invitation.number.hex())
    opened.setsockopt_string(zmq.PLAIN_PASSWORD, invitation.word.hex())
    opened.connect(listener.sealed_address)
    with contextlib.suppress(zmq.Again):  # it may be refused already
        opened.send(encode(ME, Message(JOINED), 0), zmq.NOBLOCK)
    return opened


def test_an_invitation_that_was_read_on_the_wire_is_of_no_use(listener, caplog):
    invitation = ask_for_invitation(listener.address, SECONDS, KEYS)
    with NetworkConnection(listener.sealed_address, ME, LIMIT, SECONDS, invitation) as connection:
        listener.receive(SECONDS)
        with contextlib.closing(by_invitation(listener, invitation)):
            until_refused(listener)
        connection.send(Message(16, body=b"still here"))
        assert content(listener.receive(SECONDS)[1]) == b"still here"
        assert "it was not invited" in caplog.text


def test_whoever_catches_an_invitation_cannot_speak_and_is_cut_off(listener):
    """On the wire the word of an invitation can be read and taken, but not its keys."""
    invitation = ask_for_invitation(listener.address, SECONDS, KEYS)
    with contextlib.closing(by_invitation(listener, invitation)) as thief:
        until_refused(listener)
        deadline = time.monotonic() + SECONDS
        while thief.poll(0, zmq.POLLOUT):  # until there is no connection to send to
            thief.send(bytes(1 << 16), zmq.NOBLOCK)
            assert listener.receive(0) is None
            assert time.monotonic() < deadline
    with pytest.raises(Disconnected):
        NetworkConnection(listener.sealed_address, ME, LIMIT, SECONDS, invitation)
    assert_admitted(listener)


def test_unused_invitations_lapse_when_there_are_very_many():
    guests = Guests()
    first, *_, last = [guests.invite(1) for _ in range(4097)]
    shown = [(each.number.hex().encode(), each.word.hex().encode()) for each in (first, last)]
    assert [guests.admits(*each) for each in (*shown, shown[1])] == [False, True, False]


def test_keys_are_renewed_before_their_counters_end(listener, monkeypatch):
    """With one key and nonce the same message would cross as the same frames."""
    monkeypatch.setattr("srl.streams.transport.sealing._KEY_FRAMES", 4)
    out, back = [], []
    with relayed(listener, keeping(out), keeping(back)) as (connection, peer, _):
        for _ in range(20):
            connection.send(Message(16, body=LARGE))
            assert content(listener.receive(SECONDS)[1]) == bytes(LARGE)
            listener.send(peer, Message(16, body=b"the same each time"))
            assert content(connection.receive(SECONDS)) == b"the same each time"
    assert len(out) > 100
    assert len(set(out)) == len(out)
    assert len(set(back)) == len(back) == 41  # with the answer to JOINED


def test_all_keys_differ():
    one, other = (Guests().invite(1) for _ in range(2))
    assert len({*one[3:], *other[3:]}) == 4


def test_a_processor_without_aes_has_curve_instead(monkeypatch):
    monkeypatch.setattr("srl.streams.transport.door.processor_has_aes", lambda: False)
    with listen("network", Identity(RUN, 0, 0), limit_bytes=LIMIT, keys=KEYS) as listener:
        assert listener.address.startswith("tcp://")
        assert_admitted(listener)
        with pytest.raises(Disconnected, match="only processes with the keys of its run"):
            connect(listener.address, ME, limit_bytes=LIMIT, keys=Keys.new(), timeout=SECONDS)


def endless(frames):
    """Passes one message of very many frames on, in place of the first, which never ends."""
    next(frames)
    for _ in range(64):
        yield b"\1\0" * (1 << 14)
    yield from nothing(frames)


def nothing(frames):
    for _ in frames:
        yield b""


@contextlib.contextmanager
def worker_behind(listener, out):
    """A worker that a stranger on the wire lets make the handshake, and then speaks for."""
    relay = Relay(listener.sealed_address, out)
    invitation = ask_for_invitation(listener.address, SECONDS, KEYS)
    with NetworkConnection(relay.address, ME, LIMIT, SECONDS, invitation) as connection:
        yield connection
    relay.close()


def test_a_message_without_end_from_a_stranger_ends_its_connection(listener, caplog):
    """ZeroMQ hands over whole messages alone, so no frame of it is ever opened."""
    with worker_behind(listener, endless) as connection:
        until_refused(listener)
        with pytest.raises(Disconnected):
            connection.wait(lambda: None)
    assert "bytes that were not read yet; at most 196,608 may wait" in caplog.text
    assert_admitted(listener)
    assert listener.refused == 1


def test_a_stranger_that_stays_silent_is_cut_off(listener, caplog, monkeypatch):
    monkeypatch.setattr("srl.streams.transport.network._SILENT_SECONDS", 0.2)
    with worker_behind(listener, nothing) as connection:
        until_refused(listener)
        with pytest.raises(Disconnected):
            connection.wait(lambda: None)
    assert "no message within 0.2 s" in caplog.text


def test_a_worker_is_not_late_where_its_first_message_waits_to_be_read(listener, monkeypatch):
    with connect(listener.address, ME, limit_bytes=LIMIT, keys=KEYS) as connection:
        assert listener._socket.poll(1000 * SECONDS)
        monkeypatch.setattr("srl.streams.transport.network._SILENT_SECONDS", 0.0)
        peer, message = listener.receive(SECONDS)
        assert message == Message(JOINED)
        assert listener.receive(0) is None
        listener.send(peer, Message(16))
        assert connection.receive(SECONDS) == Message(16)


def test_a_message_without_end_in_place_of_a_listeners_ends_the_connection(listener):
    with relayed(listener, back=endless) as (connection, peer, _):
        with pytest.raises(Disconnected, match=r"it sent .* bytes without a first message"):
            connection.receive(SECONDS)
        assert listener.receive(SECONDS) == (peer, Message(LEFT))


def test_a_worker_sends_little_until_the_listener_has_opened_a_message(listener):
    """More could not be told from a stranger's while the listener is busy."""
    with connect(listener.address, ME, limit_bytes=LIMIT, keys=KEYS) as connection:
        sender = threading.Thread(
            target=lambda: [connection.send(Message(16, body=LARGE)) for _ in range(60)]
        )
        sender.start()
        sender.join(0.2)  # more than the queues hold
        peer, message = listener.receive(SECONDS)
        assert message == Message(JOINED)
        for _ in range(60):
            whose, message = listener.receive(SECONDS)
            assert whose is peer
            assert content(message) == bytes(LARGE)
        sender.join(SECONDS)
    assert listener.refused == 0


def test_a_refused_worker_is_counted_once_whatever_it_goes_on_to_send(listener):
    invitation = ask_for_invitation(listener.address, SECONDS, KEYS)
    other_run = Identity(RUN + 1, 1, 0)
    with NetworkConnection(
        listener.sealed_address, other_run, LIMIT, SECONDS, invitation
    ) as connection:
        for _ in range(5):
            connection.send(Message(16, body=b"more"))
        with pytest.raises(Disconnected, match="it belongs to run"):
            connection.wait(lambda: listener.receive(0))
    assert_admitted(listener)
    assert listener.refused == 1


def test_the_end_of_a_connection_spares_a_later_one_of_its_number(listener):
    with relayed(listener) as (_, before, _):
        pass
    assert listener.receive(SECONDS) == (before, Message(LEFT))
    with relayed(listener) as (connection, peer, _):
        (number,) = listener._identified
        listener._break_off(before, number)
        connection.send(Message(16, body=b"still here"))
        assert listener.receive(SECONDS)[0] is peer


def read_all(connection, alive):
    while True:
        connection.wait(alive)


def test_a_worker_that_does_not_read_gets_the_reason_for_its_end(listener):
    """What had no room was never sent, so nothing is missing before the reason."""
    with connect(listener.address, ME, limit_bytes=LIMIT, keys=KEYS) as connection:
        peer, _ = listener.receive(SECONDS)
        while (got := listener.receive(0)) is None:
            listener.send(peer, Message(16, body=bytes(1000)))
        assert got == (peer, Message(LEFT))
        with pytest.raises(Disconnected, match="it does not read what it is sent"):
            read_all(connection, lambda: listener.receive(0))


def test_frames_that_were_taken_back_leave_no_gap_at_the_change_of_a_key(monkeypatch):
    monkeypatch.setattr("srl.streams.transport.sealing._KEY_FRAMES", 4)
    invitation = Guests().invite(1)
    here = invitation.codec(LIMIT)
    there = Sealed(LIMIT, invitation.from_listener, invitation.to_listener)
    for _ in range(5):
        here.close(frames_of(ME, Message(16, body=LARGE), LIMIT, 1 << 18))
        here.take_back()
        header, *parts = here.close(frames_of(ME, Message(17, body=LARGE), LIMIT, 1 << 18))
        _, message = there.open(header, [memoryview(part) for part in parts])
        assert content(message) == bytes(LARGE)


def test_one_deadline_holds_for_the_door_and_what_is_behind_it(listener):
    invitation = ask_for_invitation(listener.address, SECONDS, KEYS)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port, now = silent.getsockname()[1], time.monotonic()
        with pytest.raises(Disconnected, match=f"nothing answers within {SECONDS} s"):
            ask_for_invitation(f"tcp+aes://127.0.0.1:{port}", SECONDS, KEYS, now - SECONDS)
        behind = f"tcp://127.0.0.1:{port}"
        with pytest.raises(Disconnected, match=f"nothing answers within {SECONDS} s"):
            NetworkConnection(behind, ME, LIMIT, SECONDS, invitation, now - SECONDS)
        assert time.monotonic() < now + SECONDS
