"""The harness itself: what it promises to the tests between hosts."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from waiting import wait_until

HERE = Path(__file__).parent
ECHO = HERE / "echo.py"
SECONDS = 30


class Conversation:
    """Lines that one host sends to another, which sends them back."""

    def __init__(self, client, server):
        self.server = server.popen(sys.executable, ECHO, stdout=subprocess.PIPE)
        assert self.server.line() == "up"
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.client = client.popen(sys.executable, ECHO, server.name, **pipes)
        self.heard = self.client.line

    def say(self, line):
        self.client.stdin.write(f"{line}\n")
        self.client.stdin.flush()


def sleeper(host, **options):
    """A process that has started and goes on for long."""
    command = ["sh", "-c", "echo up; exec sleep 1000"]
    process = host.popen(*command, stdout=subprocess.PIPE, **options)
    assert process.line() == "up"
    return process


def receive_datagrams(host):
    """Starts a process that tells how many datagrams came before an empty one."""
    code = (
        "import socket\n"
        "s = socket.socket(type=socket.SOCK_DGRAM)\n"
        "s.bind(('', 7000))\n"
        "print('up', flush=True)\n"
        "print(sum(1 for _ in iter(lambda: s.recv(10), b'')))\n"
    )
    process = host.popen(sys.executable, "-c", code, stdout=subprocess.PIPE)
    assert process.line() == "up"
    return process


def send_datagrams(host, to, word, times):
    code = (
        "import socket, sys\n"
        "s = socket.socket(type=socket.SOCK_DGRAM)\n"
        "for _ in range(int(sys.argv[3])): s.sendto(sys.argv[2].encode(), (sys.argv[1], 7000))\n"
    )
    host.run(sys.executable, "-c", code, to.name, word, times)


def test_each_host_has_a_name_an_address_processes_and_shared_memory_of_its_own(hosts, tmp_path):
    first, second = hosts(2)
    (tmp_path / "shared").write_text("the same file")
    for host, other in ((first, second), (second, first)):
        assert host.run("hostname").stdout.split() == [host.name]
        assert host.run("getent", "hosts", other.name).stdout.split() == [other.address, other.name]
        assert host.run("ls", "/dev/shm").stdout == ""
        host.run("touch", f"/dev/shm/{host.name}")
        pids = [word for word in host.run("ls", "/proc").stdout.split() if word.isdigit()]
        assert "1" in pids
        assert len(pids) < 5
        assert host.run("cat", "shared").stdout == "the same file"
    with pytest.raises(AssertionError, match=r"host1.*no-such-file"):
        first.run("cat", "no-such-file")
    assert first.run("sh", "-c", "exit $CODE", env={"CODE": "3"}, check=False).returncode == 3
    with pytest.raises(subprocess.TimeoutExpired):
        first.run("sleep", 1000, timeout=0.1)


def test_a_host_whose_cable_is_cut_hears_nothing_until_it_is_healed(hosts):
    first, second = hosts(2)
    talk = Conversation(first, second)
    talk.say("before")
    assert talk.heard() == "before"
    second.cut()
    talk.say("meanwhile")
    assert talk.heard(seconds=1) is None
    second.heal()
    assert talk.heard() == "meanwhile"
    assert talk.server.poll() is None


def test_a_slow_cable_slows_a_transfer(hosts):
    first, second = hosts(2)
    line = "x" * 500_000
    talk = Conversation(first, second)
    second.rate(8)
    start = time.monotonic()
    talk.say(line)
    assert talk.heard() == line
    assert time.monotonic() - start > 0.8  # a megabyte a second, there and back
    second.rate(None)


def test_each_packet_that_is_lost_is_counted(hosts):
    first, second = hosts(2)
    receiver = receive_datagrams(second)
    second.loss(50)
    send_datagrams(first, second, "x", times=200)
    lost = second.lost
    second.loss(0)
    send_datagrams(first, second, "", times=1)
    received = int(receiver.communicate(timeout=SECONDS)[0])
    assert received + lost == 200
    assert 50 < lost < 150


def test_power_loss_ends_all_of_a_host_and_nothing_else(hosts):
    first, second, third = hosts(3)
    away = Conversation(first, second)
    near = Conversation(first, third)
    away.say("hello")
    assert away.heard() == "hello"
    orphan = second.popen("sh", "-c", "sleep 1000 & sleep 1000", stdout=subprocess.PIPE)
    stopped = sleeper(second)
    stopped.send_signal(signal.SIGSTOP)
    second.run("touch", "/dev/shm/kept")
    second.power_off()
    for process in (away.server, orphan, stopped):
        assert process.returncode == -signal.SIGKILL
    near.say("still here")
    assert near.heard() == "still here"
    assert away.heard(seconds=0.5) is None  # not even that the connection has ended
    assert away.client.poll() is None

    second.power_on()
    assert second.run("ls", "/dev/shm").stdout == ""
    again = Conversation(first, second)
    again.say("back")
    assert again.heard() == "back"


def test_signals_reach_the_process_and_its_end_is_seen(hosts):
    (host,) = hosts(1)
    process = sleeper(host)
    process.send_signal(signal.SIGSTOP)
    process.send_signal(signal.SIGCONT)
    process.terminate()
    assert process.wait(SECONDS) == -signal.SIGTERM
    stopped = sleeper(host)
    stopped.send_signal(signal.SIGSTOP)
    stopped.kill()
    assert stopped.wait(SECONDS) == -signal.SIGKILL
    left = host.run("sh", "-c", "echo /proc/[0-9]*").stdout.split()
    assert len(left) == 2  # init, and the shell


@pytest.mark.usefixtures("hosts")
def test_nothing_is_left_when_the_tests_are_killed(tmp_path):
    code = (
        "import sys\n"
        "from hosts import Network\n"
        "with Network(sys.argv[1], 2) as network:\n"
        "    for host in network.hosts: host.popen('readlink', '/proc/self/ns/net').wait(9)\n"
        "    for host in network.hosts: host.popen('sh', '-c', 'echo; sleep 1000')\n"
        "    sys.stdin.read()\n"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", code, tmp_path], cwd=HERE, **pipes) as tests:
        used = {tests.stdout.readline().strip() for _ in range(2)}
        assert [tests.stdout.readline() for _ in range(2)] == ["\n", "\n"]
        assert len(used) == 2
        assert used < network_namespaces()
        tests.kill()
        assert tests.stdout.read() == ""  # which all processes of the hosts held
    wait_until(lambda: not used & network_namespaces())


def network_namespaces():
    """Of all processes that can be asked."""
    found = set()
    for link in Path("/proc").glob("[0-9]*/ns/net"):
        with suppress(OSError):
            found.add(os.readlink(link))
    return found


def test_what_a_delayed_host_sends_and_is_sent_comes_late_and_whole(hosts):
    far, near = hosts(2)
    far.delay(10)
    told = Conversation(far, near)
    began = time.monotonic()
    for line in ("once", "twice", "x" * 100_000):
        told.say(line)
        assert told.heard() == line
    assert time.monotonic() - began >= 3 * 0.020
    far.delay(0)
    told.say("again")
    assert told.heard() == "again"
