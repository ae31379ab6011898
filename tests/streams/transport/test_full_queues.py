"""Connections between hosts whose queues fill up: by peers that die, and by those that flood."""

import os
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, suppress

import pytest
import zmq

from srl.streams.transport import JOINED, LEFT, Disconnected, Identity, Message, connect, listen
from srl.streams.transport.keys import Keys
from srl.streams.transport.message import Refused, encode
from srl.streams.transport.tcp import most_unread_bytes

LIMIT, SECONDS, ROUNDS = 1 << 20, 30, 12
KEYS = Keys.new()
RUN = KEYS.run
MEGABYTES = 1e6
FLOODING_PEER = f"""
import os, signal, sys
from srl.streams.transport import Identity, Message, connect
from srl.streams.transport.keys import Keys
sender, *words = sys.argv[2:]
keys = Keys.from_text(words[0], "argv") if words else None
with connect(sys.argv[1], Identity({RUN}, int(sender), 0), limit_bytes={LIMIT}, keys=keys) as end:
    for number in range(200):  # so many that the first of them have surely been sent
        end.send(Message(16, number))
    os.kill(os.getpid(), signal.SIGKILL)
"""
PAUSED_LISTENER = f"""
import sys, time
from srl.streams.transport import LEFT, Identity, listen
from srl.streams.transport.keys import Keys
keys = Keys.from_text(sys.argv[1], "argv") if sys.argv[1:] else None
with listen("network", Identity({RUN}, 0, 0), limit_bytes={LIMIT}, keys=keys) as listener:
    print(listener.address, flush=True)
    rounds = int(sys.stdin.readline())  # the pause
    left, deadline = set(), time.monotonic() + {SECONDS}
    while len(left) < rounds and time.monotonic() < deadline:
        received = listener.receive(1.0)
        if received is not None and received[1].kind == LEFT:
            left.add(received[0].identity.sender)
    print("all left" if len(left) == rounds else f"only {{left}} left", flush=True)
    peer, message = listener.receive(None)
    print(peer.identity.sender, flush=True)
"""
FLOODING_LISTENER = f"""
import os, signal, sys
from srl.streams.transport import Identity, Message, listen
with listen("network", Identity({RUN}, 0, 0), limit_bytes={LIMIT}) as listener:
    print(listener.address, flush=True)
    peer, _ = listener.receive(None)
    for number in range(30):
        listener.send(peer, Message(16, number))
    listener.receive(None)
    os.kill(os.getpid(), signal.SIGKILL)
"""
PAUSED_PEER = f"""
import sys
from srl.streams.transport import Disconnected, Identity, Message, connect
ends = [
    connect(address, Identity({RUN}, 1, 0), limit_bytes={LIMIT}) for address in sys.argv[1:]
]
for end in ends:
    end.send(Message(17))
print("paused", flush=True)
sys.stdin.readline()
for end in ends:
    try:
        while True:
            end.receive(None)
    except Disconnected:
        print("disconnected", flush=True)
"""


def process(stack, code, *words):
    """A Python process, whose standard input and output are pipes."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    words = [sys.executable, "-c", code, *words]
    started = stack.enter_context(subprocess.Popen(words, text=True, **pipes))
    stack.callback(started.kill)
    return started


@pytest.mark.parametrize("keys", [(), (KEYS.to_text(),)], ids=["plain", "encrypted"])
def test_peers_that_die_with_their_queues_full_do_not_abort_a_listener_that_is_busy(keys):
    with ExitStack() as stack:
        listener = process(stack, PAUSED_LISTENER, *keys)
        address = listener.stdout.readline().strip()
        for sender in range(1, ROUNDS + 1):
            peer = process(stack, FLOODING_PEER, address, str(sender), *keys)
            ended = peer.wait(SECONDS)
            assert listener.poll() is None, listener.stderr.read()
            assert ended == -9
        listener.stdin.write(f"{ROUNDS}\n")
        listener.stdin.flush()
        assert listener.stdout.readline() == "all left\n", listener.stderr.read()
        process(stack, FLOODING_PEER, address, "99", *keys)
        assert listener.stdout.readline() == "99\n"


def test_listeners_that_die_with_their_queues_full_do_not_abort_a_peer_that_is_busy():
    with ExitStack() as stack:
        listeners = [process(stack, FLOODING_LISTENER) for _ in range(4)]
        addresses = [listener.stdout.readline().strip() for listener in listeners]
        peer = process(stack, PAUSED_PEER, *addresses)
        assert peer.stdout.readline() == "paused\n"
        for listener in listeners:
            assert listener.wait(SECONDS) == -9
        for _ in range(ROUNDS):  # the pause is as long as so many processes take to start
            assert process(stack, PAUSED_PEER).stdout.readline() == "paused\n"
            assert peer.poll() is None, peer.stderr.read()
        peer.stdin.write("\n")
        peer.stdin.flush()
        answers = [peer.stdout.readline() for _ in listeners]
        assert answers == ["disconnected\n"] * 4, peer.stderr.read()


def resident_mb():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / MEGABYTES


class MostMemory:
    """How much memory this process has come to hold in the meantime."""

    def __init__(self):
        self._before = self._most = resident_mb()

    def look(self):
        self._most = max(self._most, resident_mb())

    @property
    def megabytes(self):
        return self._most - self._before


ENDLESS_MESSAGE = f"""
import os, sys
import zmq
from srl.streams.transport import Identity, Message, connect
from srl.streams.transport.keys import Keys
from srl.streams.transport.message import encode
address, size, number, key = sys.argv[1:]
keys = Keys.from_text(key, "argv")
end = connect(address, Identity({RUN}, 1, 0), limit_bytes={LIMIT}, keys=keys)
end._socket.sndhwm = 0
frame = bytes(int(size))
end._socket.send(encode(end.identity, Message(16), 1000), zmq.SNDMORE)
for _ in range(int(number)):
    end._socket.send(frame, zmq.SNDMORE)
end._socket.send(b"")
end.wait(lambda: None)
"""


@pytest.mark.parametrize(("size", "number"), [(1 << 18, 1200), (1000, 300_000), (0, 2_000_000)])
def test_a_message_of_very_many_frames_takes_little_memory_and_ends_its_connection(
    size, number, caplog
):
    with (
        ExitStack() as stack,
        listen("network", Identity(RUN, 0, 0), limit_bytes=LIMIT, keys=KEYS) as listener,
    ):
        process(stack, ENDLESS_MESSAGE, listener.address, str(size), str(number), KEYS.to_text())
        peer, message = listener.receive(SECONDS)
        assert message.kind == JOINED
        memory, deadline = MostMemory(), time.monotonic() + SECONDS
        while (got := listener.receive(0.01)) is None:
            memory.look()
            assert time.monotonic() < deadline
        memory.look()
        assert got == (peer, Message(LEFT))
        assert memory.megabytes < 200  # where the message has 300 or more
    # Empty frames are so few bytes that the whole message comes; it is not sealed.
    reason = "bytes that were not read yet; at most" if size else "a message that was changed"
    assert reason in caplog.text


def receive_all(end):
    while True:
        with suppress(Refused):  # the message, if it came before the connection ended
            end.receive(SECONDS)


def test_a_listener_that_sends_too_many_frames_is_left(monkeypatch):
    """A worker does not let another fill its memory, either."""
    monkeypatch.setattr(
        "srl.streams.transport.network_connection.most_unread_bytes", lambda limit, keys: 1 << 20
    )
    with (
        ExitStack() as stack,
        zmq.Context.instance().socket(zmq.ROUTER) as router,
    ):
        router.linger = 0
        router.sndhwm = 0
        port = router.bind_to_random_port("tcp://127.0.0.1")
        end = stack.enter_context(
            connect(f"tcp://127.0.0.1:{port}", Identity(RUN, 1, 0), limit_bytes=LIMIT)
        )
        route, _ = router.recv_multipart()
        header = encode(Identity(RUN, 0, 0), Message(16), 1000)
        router.send_multipart([route, header, *[bytes(1 << 16)] * 200])
        deadline = time.monotonic() + SECONDS
        while not end._tcp.exceeded:
            assert time.monotonic() < deadline
        with pytest.raises(Disconnected, match=r"it sent .* bytes that were not read yet"):
            receive_all(end)


@pytest.mark.parametrize("keys", [None, KEYS], ids=["plain", "encrypted"])
def test_what_an_honest_peer_can_send_to_a_busy_reader_is_never_too_much(keys):
    """Every number of bytes on the wire is counted exactly, or long runs would end so."""
    with (
        listen("network", Identity(RUN, 0, 0), limit_bytes=LIMIT, keys=keys) as listener,
        connect(listener.address, Identity(RUN, 1, 0), limit_bytes=LIMIT, keys=keys) as end,
    ):
        sizes = [0, 1, 220, 221, 222, 223, 255, 256, 1 << 18, (1 << 18) + 1, LIMIT] * 9
        sender = threading.Thread(
            target=lambda: [end.send(Message(16, body=bytes(n))) for n in sizes]
        )
        sender.start()
        assert listener.receive(SECONDS)[1].kind == JOINED
        for size in sizes:
            assert len(listener.receive(SECONDS)[1].body or b"") == size
        sender.join()
        (counted,) = listener._connected.values()
        counted.most_unread = 1 << 10  # but for the handshake nothing is left to be read
        counted.look(time.monotonic())
        assert counted.exceeded == ""
    assert most_unread_bytes(LIMIT, keys) < 18 * LIMIT
