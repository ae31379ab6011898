"""Hosts of a real network, on one machine: each has a name, an address, processes and mounts.

A host is a set of Linux namespaces that exist as long as its init runs. Nothing of it has a name
outside: when its init is killed, the kernel ends its processes and takes its cable, mounts and
names away. The inits read a pipe that nobody writes: they end, too, when the tests are killed.
"""

import math
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

BOOT = """
hostname {name}
mount --bind {names} /etc/hosts
mount -t tmpfs tmpfs /dev/shm
ip link set lo up
trap '' CHLD  # so that the kernel buries those whose parents have died
echo up
exec cat
"""
# Frames that come by the cable are bridged to a device that only the relay reads: so the kernel
# cuts them up and sums them first, as for any real device.
DELAYED = """
ip link set eth0 down
ip address flush dev eth0
ip link set eth0 name cable address 02:00:0a:4d:01:01
ip tuntap add dev eth0 mode tap
ip tuntap add dev relay mode tap
ip link set eth0 address {mac}
ip address add {address}/24 dev eth0
ip link add late type bridge
for port in cable relay; do ip link set $port master late; done
for device in cable relay late eth0; do ip link set $device up; done
"""
SWITCH = "ip link add switch type bridge && ip link set switch up && echo up && exec cat"
NAMESPACES = ["--net", "--uts", "--ipc", "--mount"]
UNSHARE = ["unshare", *NAMESPACES, "--pid", "--fork", "--kill-child", "--mount-proc"]
TOOLS = {
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "ip": "iproute2",
    "tc": "iproute2",
    "nft": "nftables",
}
RELAY = Path(__file__).with_name("late.py")
SECONDS = 30
"""That a command of the harness itself may take."""


def why_no_hosts() -> str | None:
    """What this machine lacks for hosts, if anything."""
    if os.geteuid() != 0:
        return "hosts need root, for network namespaces"
    for tool, package in TOOLS.items():
        if not shutil.which(tool):
            return f"hosts need {tool}, of the package {package}"
    pair = "ip link add one type veth peer name two"
    devices = f"{pair} && ip link add three type bridge && ip tuntap add four mode tap"
    tried = subprocess.run([*UNSHARE, "sh", "-c", devices], capture_output=True, timeout=SECONDS)
    return (
        f"hosts need namespaces, veth and tap: {tried.stderr.decode()}"
        if tried.returncode
        else None
    )


class Process(subprocess.Popen):
    """A process in namespaces, behind one outside that enters them, waits, and ends as it does."""

    _unread = b""
    _killed = False

    def wait(self, timeout=None):
        """Waits for the end; the one outside may have stopped itself after it was woken."""
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        while self._killed and self.poll() is None and time.monotonic() < deadline:
            self.wake()
            time.sleep(0.01)
        return super().wait(timeout)

    def line(self, seconds=SECONDS) -> str | None:
        """The next line of its output, without its end; None if it has ended, or says none in time.

        Args:
            seconds: To wait at most.
        """
        deadline = time.monotonic() + seconds
        while b"\n" not in self._unread:
            left = max(0.0, deadline - time.monotonic())
            readable, _, _ = select.select([self.stdout], [], [], left)
            if not readable or not (more := os.read(self.stdout.fileno(), 1 << 16)):
                return None
            self._unread += more
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode()

    def send_signal(self, number):
        """Signals the process itself."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children")
        with suppress(OSError):  # it may end at any moment
            while self.poll() is None and not (inner := children.read_text().split()):
                time.sleep(0.001)  # until it has entered
            if self.returncode is None:
                os.kill(int(inner[0]), number)
        self._killed |= number == signal.SIGKILL
        if number in (signal.SIGKILL, signal.SIGCONT):
            self.wake()

    def wake(self):
        """Lets the one outside, which stops when the process is stopped, see what became of it."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGCONT)


class Host:
    """One host of a network."""

    def __init__(self, network, number):
        """Starts nothing; a number counts from 1."""
        self.name, self.address = f"host{number}", f"10.77.0.{10 + number}"
        self._mac = f"02:00:0a:4d:00:{10 + number:02x}"
        self._network, self._init, self._processes = network, None, []
        self._relay = None

    def power_on(self):
        """Boots it, with an empty /dev/shm, and plugs it into the network."""
        self._relay = None
        boot = BOOT.format(name=self.name, names=self._network.names)
        self._init = _start(boot)
        end = ["peer", "name", "eth0", "address", self._mac, "netns", str(self._init.pid)]
        self._at_switch("ip", "link", "add", self.name, "type", "veth", *end)
        self._at_card("ip", "address", "add", f"{self.address}/24", "dev", "eth0")
        self._at_card("ip", "link", "set", "eth0", "up")
        self._at_switch("ip", "link", "set", self.name, "master", "switch", "up")

    def power_off(self):
        """Ends all of it at once; its peers hear nothing of that, not even that sockets close."""
        if self._init is None:
            return
        with suppress(AssertionError):  # where it was never plugged in
            self._at_switch("ip", "link", "delete", self.name)
        self._init.kill()
        for process in self._processes:
            process.wake()
        for process in [*self._processes, self._init]:
            process.wait(SECONDS)
        self._init.stdin.close()
        self._init = None

    def close(self):
        """Powers it off, and closes what the test has open of its processes."""
        self.power_off()
        for process in self._processes:
            process.__exit__(None, None, None)

    def popen(self, *command, env=None, cwd=None, **options) -> Process:
        """Starts a process on the host, which ends with it.

        Args:
            *command: Words.
            env: Variables besides those of this process.
            cwd: The network's folder, if not given.
            **options: Of `subprocess.Popen`; text is the default.
        """
        words = ["env", f"--chdir={cwd or self._network.folder}", *map(str, command)]
        options = {"text": True, "env": os.environ | (env or {})} | options
        process = Process([*self._entered(), *words], start_new_session=True, **options)
        self._processes.append(process)
        return process

    def run(self, *command, timeout=SECONDS, check=True, **options) -> subprocess.CompletedProcess:
        """Runs a command on the host to its end; a failed one fails the test unless not `check`.

        Args:
            *command: Words.
            timeout: Seconds, after which it is killed and `subprocess.TimeoutExpired` is raised.
            check: Whether it has to exit with 0.
            **options: As for `popen`.
        """
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with self.popen(*command, **pipes, **options) as process:
            try:
                out, err = process.communicate(timeout=timeout)
            except BaseException:
                process.kill()
                raise
        self._processes.remove(process)
        assert not (check and process.returncode), f"{self.name}: {command} failed:\n{out}{err}"
        return subprocess.CompletedProcess(command, process.returncode, out, err)

    def cut(self):
        """Pulls its cable out."""
        self._at_switch("ip", "link", "set", self.name, "down")

    def heal(self):
        """Plugs its cable in again."""
        self._at_switch("ip", "link", "set", self.name, "up")

    def rate(self, mbit):
        """Lets its cable carry so many megabits a second each way; None means all it can."""
        for at, device in ((self._at_switch, self.name), (self._at_card, "eth0")):
            if mbit is None:
                at("tc", "qdisc", "delete", "dev", device, "root")
            else:
                limit = ["rate", f"{mbit}mbit", "burst", "64kb", "latency", "200ms"]
                at("tc", "qdisc", "replace", "dev", device, "root", "tbf", *limit)

    def delay(self, milliseconds):
        """Has what it sends, and what it is sent, be so late; with 0 only a relay is in the way."""
        if self._relay is None:
            self._at_card("sh", "-ec", DELAYED.format(mac=self._mac, address=self.address))
        else:
            self._relay.kill()
            self._relay.wait(SECONDS)
        words = [sys.executable, RELAY, "eth0", "relay", milliseconds]
        self._relay = self.popen(*words, stdout=subprocess.PIPE)
        assert self._relay.line() == "up"

    def loss(self, percent):
        """Drops that share of the packets that come to it, and begins to count them in `lost`."""
        self._at_card("nft", "add table inet loss; delete table inet loss")
        if percent:
            drop = f'iifname "eth0" numgen random mod 100 < {percent} counter drop'
            chain = f"chain input {{\n type filter hook input priority 0\n {drop}\n }}"
            self._at_card("nft", f"table inet loss {{\n {chain}\n }}")

    @property
    def lost(self) -> int:
        """Packets dropped by the present `loss`."""
        told = self._at_card("nft", "list", "table", "inet", "loss")
        return int(re.search(r"counter packets (\d+)", told)[1])

    def _entered(self):
        pid = self._init.pid
        inside = f"--pid=/proc/{pid}/ns/pid_for_children"
        return ["nsenter", f"--target={pid}", *NAMESPACES, inside]

    def _at_card(self, *command):
        return _in_network_of(self._init, *command)

    def _at_switch(self, *command):
        return _in_network_of(self._network.switch, *command)


class Network:
    """Some hosts at a switch, with no way out."""

    def __init__(self, folder, count):
        """Starts nothing.

        Args:
            folder: Where the hosts' processes start; all of the file system is shared.
            count: Of hosts, 200 at most.
        """
        self.folder, self.names, self.switch = Path(folder), Path(folder) / "names", None
        self.hosts = [Host(self, number) for number in range(1, count + 1)]

    def __enter__(self):
        lines = [f"{host.address} {host.name}\n" for host in self.hosts]
        self.names.write_text("".join(["127.0.0.1 localhost\n", *lines]))
        try:
            self.switch = _start(SWITCH)
            for host in self.hosts:
                host.power_on()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error):
        for host in self.hosts:
            host.close()
        if self.switch is not None:
            self.switch.kill()
            self.switch.wait(SECONDS)
            self.switch.stdin.close()


def _start(script):
    """Runs a script in new namespaces, which end with this process, until it says that it is up."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    process = Process([*UNSHARE, "sh", "-ec", script], start_new_session=True, text=True, **pipes)
    with process.stdout:
        line = process.stdout.readline()
    if line != "up\n":
        process.kill()
        process.wait(SECONDS)
        process.stdin.close()
        raise AssertionError(f"a host does not start: {line}")
    return process


def _in_network_of(process, *command):
    """Runs a command with the network of another process, and all else of this one."""
    entered = ["nsenter", f"--target={process.pid}", "--net", *command]
    done = subprocess.run(entered, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, f"{command} failed: {done.stderr}"
    return done.stdout
