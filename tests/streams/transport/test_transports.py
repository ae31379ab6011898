"""What is particular to a transport: dead processes, descriptors, and whatever else may come in."""

import contextlib
import os
import select
import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest
import refusals
import zmq

from srl.core.errors import RunError
from srl.streams.transport import JOINED, LEFT, Identity, Message, Refused, connect, listen
from srl.streams.transport.message import HEADER_BYTES, encode
from srl.streams.transport.unix import INLINE_BYTES
from srl.system.shared_memory import SharedMemory

RUN = 77
LIMIT = 1 << 20
SECONDS = 20
ME = Identity(RUN, 1, 0)


@pytest.fixture(params=["host", "network"])
def listener(request):
    with listen(request.param, Identity(RUN, 0, 0), limit_bytes=LIMIT) as opened:
        yield opened


@pytest.fixture
def host():
    with listen("host", Identity(RUN, 0, 0), limit_bytes=LIMIT) as opened:
        yield opened


@pytest.fixture
def network():
    with listen("network", Identity(RUN, 0, 0), limit_bytes=LIMIT) as opened:
        yield opened


def talker(address, **options):
    """A process that sends without end."""
    program = Path(__file__).parent / "talker.py"
    return subprocess.Popen([sys.executable, str(program), address, str(RUN)], **options)


def open_files():
    """How much memory and how many pipes are open; ZeroMQ's sockets go some time after."""
    paths = []
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            paths.append(os.readlink(f"/proc/self/fd/{fd}"))
    return sum(path.startswith(("pipe:", "/memfd:", "/dev")) for path in paths)


def until_refused(listener, number):
    refusals.until_refused(listener, number)
    assert listener.refused == number


def test_a_killed_process_has_left_after_what_it_said(listener):
    with talker(listener.address) as process:
        assert listener.receive(SECONDS)[1] == Message(JOINED)
        numbers = [listener.receive(SECONDS)[1].sequence for _ in range(50)]
        process.kill()
    while (got := listener.receive(SECONDS)[1]).kind == 16:
        assert got.body is None or len(got.body) == got.sequence % 1000
        numbers.append(got.sequence)
    assert got == Message(LEFT)
    assert numbers == list(range(len(numbers)))


def test_a_stopped_process_holds_nobody_up(listener):
    with talker(listener.address) as process:
        stopped, _ = listener.receive(SECONDS)
        os.kill(process.pid, signal.SIGSTOP)
        with connect(listener.address, Identity(RUN, 2, 0), limit_bytes=LIMIT) as connection:
            for number in range(200):
                listener.send(stopped, Message(17))
                connection.send(Message(18, number))
            heard = []
            while len(heard) < 200:
                peer, message = listener.receive(SECONDS)
                heard += [message.sequence] if message.kind == 18 else []
                if message.kind == 18:
                    listener.send(peer, Message(19, message.sequence))
            assert [connection.receive(SECONDS).sequence for _ in range(200)] == heard
        process.kill()


def test_a_peer_sees_at_once_that_its_listener_was_killed():
    code = (
        "import sys; from srl.streams.transport import *\n"
        f"opened = listen(sys.argv[1], Identity({RUN}, 0, 0), limit_bytes={LIMIT})\n"
        "print(opened.address, flush=True)\n"
        "while True: opened.receive(None)\n"
    )
    for transport in ("host", "network"):
        words = [sys.executable, "-c", code, transport]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout
            connection = connect(process.stdout.readline().strip(), ME, limit_bytes=LIMIT)
            connection.send(Message(16))
            process.kill()
        with connection, pytest.raises(RunError, match="has closed"):
            connection.receive(SECONDS)


def test_descriptors_pass_within_a_host(host):
    memory = SharedMemory.create(100)
    with connect(host.address, ME, limit_bytes=LIMIT) as connection:
        connection.send(Message(16, fds=(memory.fd,) * 16, body=bytes(500_000)))
        peer, _ = host.receive(SECONDS)
        _, message = host.receive(SECONDS)
        assert len(message.fds) == 16
        assert len(message.body) == 500_000
        mapped = SharedMemory.attach(message.fds[0], 100)
        mapped.array[:] = 7
        assert (memory.array == 7).all()
        for fd in message.fds:
            assert not os.get_inheritable(fd)
            os.close(fd)
        host.send(peer, Message(17, fds=(memory.fd,)))
        os.close(connection.receive(SECONDS).fds[0])
        with pytest.raises(RunError, match="17 descriptors; at most 16"):
            connection.send(Message(16, fds=(memory.fd,) * 17))
    memory.close()


def test_a_busy_peer_gets_all_descriptors_later_and_none_stays_behind(host):
    before = open_files()
    with connect(host.address, ME, limit_bytes=LIMIT) as connection:
        peer, _ = host.receive(SECONDS)
        for number in range(100):
            reading, writing = os.pipe()
            body = bytes(INLINE_BYTES + number % 2)
            host.send(peer, Message(16, number, body=body, fds=(writing,)))
            os.close(reading)
            os.close(writing)
        for number in range(100):
            while (message := connection.receive(0)) is None:
                host.receive(0)
            assert message.sequence == number
            assert len(message.body) == INLINE_BYTES + number % 2
            message.close_fds()
        for _ in range(100):
            host.send(peer, Message(16, body=bytes(INLINE_BYTES + 1), fds=(0,)))
        del message
    assert host.receive(SECONDS)[1].kind == LEFT
    assert open_files() == before


def test_descriptors_do_not_pass_between_hosts(network):
    with connect(network.address, ME, limit_bytes=LIMIT) as connection:
        with pytest.raises(RunError, match="descriptors cannot be sent to another host"):
            connection.send(Message(16, fds=(0,)))


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_processes_of_other_users_are_turned_away(host):
    code = (
        "import os, socket, sys\n"
        "os.setuid(65534)\n"
        "opened = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
        "opened.connect('\\0' + sys.argv[1])\n"
        "sys.exit(len(opened.recv(9)))\n"
    )
    name = host.address.removeprefix("unix:")
    with subprocess.Popen([sys.executable, "-I", "-c", code, name]) as stranger:
        until_refused(host, 1)
        assert stranger.wait(SECONDS) == 0


def raw(host):
    """A bare socket that is connected to the listener."""
    opened = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    opened.connect("\0" + host.address.removeprefix("unix:"))
    return opened


HELLO = encode(ME, Message(JOINED), 0)
BAD = {
    "short": b"srl",
    "long": encode(ME, Message(16), 0) + b"x",
    "body missing": encode(ME, Message(16), 5),
    "body too large": encode(ME, Message(16), LIMIT + 1),
    "wrong magic": b"x" + HELLO[1:],
    "wrong format": HELLO[:4] + b"\xff" + HELLO[5:],
    "too many counts": HELLO[:5] + b"\x09" + HELLO[6:],
    "of another": encode(Identity(RUN, 2, 0), Message(16), 0),
    "of another run": encode(Identity(RUN + 1, 1, 0), Message(16), 0),
    "joined twice": HELLO,
    "huge": bytes(1 << 18),
}


@pytest.mark.parametrize("data", BAD.values(), ids=BAD)
def test_a_packet_that_does_not_fit_is_refused_and_the_next_is_read(host, data, caplog):
    with raw(host) as opened:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 19)
        opened.send(HELLO)
        assert host.receive(SECONDS)[1].kind == JOINED
        opened.send(data)
        until_refused(host, 1)
        assert "refused from sender 1" in caplog.text
        opened.send(encode(ME, Message(16), 2) + b"ok")
        assert host.receive(SECONDS)[1].body == b"ok"


@pytest.mark.parametrize("data", [*BAD.values()][:7], ids=[*BAD][:7])
def test_who_does_not_begin_as_a_peer_is_turned_away(host, data):
    with raw(host) as opened:
        opened.send(data)
        until_refused(host, 1)
        with contextlib.suppress(ConnectionResetError):
            while opened.recv(1000):
                pass


@pytest.mark.parametrize("size", [0, 100, 1000])
def test_bodies_in_memory_that_may_vanish_are_refused(host, size):
    before = open_files()
    with raw(host) as opened:
        opened.send(HELLO)
        assert host.receive(SECONDS)[1].kind == JOINED
        fd = os.memfd_create("body")
        os.truncate(fd, size)
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("2i", fd, fd))]
        opened.sendmsg([encode(ME, Message(16), 1000)], rights)
        os.close(fd)
        until_refused(host, 1)
    assert host.receive(SECONDS)[1].kind == LEFT
    assert open_files() == before


def dealer(network):
    """A bare ZeroMQ socket that is connected to the listener."""
    opened = zmq.Context.instance().socket(zmq.DEALER)
    opened.linger = 0
    opened.connect(network.address)
    return opened


@pytest.mark.parametrize(
    "frames",
    [*([data] for data in BAD.values()), [HELLO, b""], [HELLO, b"x"], [HELLO] * 9, [b"", HELLO]],
)
def test_frames_that_do_not_fit_are_refused_and_the_next_are_read(network, frames):
    with dealer(network) as opened:
        opened.send(HELLO)
        assert network.receive(SECONDS)[1].kind == JOINED
        opened.send_multipart(frames)
        until_refused(network, 1)
        opened.send_multipart([encode(ME, Message(16), 2), b"ok"])
        assert bytes(network.receive(SECONDS)[1].body) == b"ok"


def test_a_frame_above_the_limit_ends_its_connection(network):
    with dealer(network) as opened:
        opened.send(HELLO)
        assert network.receive(SECONDS)[1].kind == JOINED
        opened.send_multipart([encode(ME, Message(16), LIMIT), bytes(LIMIT + 1)])
        assert network.receive(SECONDS)[1].kind == LEFT


def test_a_stranger_to_zeromq_changes_nothing(network):
    port = int(network.address.rpartition(":")[2])
    for data in (b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 200, b""):
        with socket.create_connection(("127.0.0.1", port)) as stranger:
            stranger.sendall(data)
    with connect(network.address, ME, limit_bytes=LIMIT) as connection:
        connection.send(Message(16))
        assert [network.receive(SECONDS)[1].kind for _ in range(2)] == [JOINED, 16]


def test_a_listener_answers_only_for_its_own_run():
    """A connection refuses what comes from elsewhere, such as from a name that was taken anew."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as other:
        other.bind("")
        other.listen()
        address = "unix:" + other.getsockname()[1:].decode()
        connection = connect(address, ME, limit_bytes=LIMIT)
        accepted, _ = other.accept()
        with accepted, connection:
            assert len(accepted.recv(1000)) == HEADER_BYTES
            accepted.send(encode(Identity(RUN + 1, 0, 0), Message(16), 0))
            assert select.select([connection.fileno()], [], [], SECONDS)[0]
            with pytest.raises(Refused, match="answers for run"):
                connection.receive(SECONDS)
